"""Rounds: what each endpoint should run, and when a deployment counts as completed.

A *round* is one scheduled deployment over its endpoints. Endpoints go on
independently: a newer round gives an endpoint a newer target, and what the
endpoint had not begun of the older one is superseded. A round is completed
when each of its endpoints has succeeded, failed once, or been superseded;
retries belong to no round.
"""

import math
from collections.abc import KeysView
from typing import Final

import msgspec

from haptic_trio.dataplane.endpoint import Endpoint, SyncResult
from haptic_trio.messages import DeploymentCompleted, DeploymentScheduled, Standing

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""Seconds until an endpoint is asked again to take what it has failed to take: doubled up to the longest."""


class Target(msgspec.Struct, frozen=True):
    """What an endpoint should run."""

    round: int
    deployment: DeploymentScheduled
    endpoint: Endpoint


class _Setback(msgspec.Struct, frozen=True):
    """How often an endpoint has failed to take what it holds back."""

    held: tuple[str, ...]
    """Why it needs a reload."""
    failures: int
    until: float


class _Round:
    def __init__(self, deployment: DeploymentScheduled, began: float) -> None:
        self.deployment = deployment
        self.began = began
        self.outstanding = {endpoint.name for endpoint in deployment.endpoints}
        self.results: list[SyncResult] = []
        self.failed: list[str] = []
        self.superseded: list[str] = []

    def completed(self, now: float, standing: Standing) -> DeploymentCompleted:
        return DeploymentCompleted(
            correlation=self.deployment.correlation,
            generation=self.deployment.generation.id,
            results=tuple(sorted(self.results, key=lambda result: result.endpoint)),
            failed=tuple(sorted(self.failed)),
            superseded=tuple(sorted(self.superseded)),
            seconds=now - self.began,
            standing=standing,
            started=self.deployment.started,
        )


class Rounds:
    """The decision; no clock of its own. Times are seconds of any monotonic clock."""

    def __init__(self) -> None:
        self._numbers = 0
        self._rounds: dict[int, _Round] = {}
        self._targets: dict[str, Target] = {}
        # By endpoint: the round that it is being deployed for now.
        self._in_hand: dict[str, int] = {}
        # By endpoint: why it holds something back.
        self._held: dict[str, tuple[str, ...]] = {}
        self._setbacks: dict[str, _Setback] = {}
        self._reloaded = self._begun = -math.inf

    @property
    def open(self) -> int:
        """How many rounds are not completed."""
        return len(self._rounds)

    @property
    def names(self) -> KeysView[str]:
        """Names of the endpoints that have a target."""
        return self._targets.keys()

    def begin(self, deployment: DeploymentScheduled, now: float) -> list[DeploymentCompleted]:
        """Make *deployment* the target of its endpoints; return the rounds that this completes, oldest first."""
        self._numbers += 1
        self._begun = deployment.scheduled
        self._rounds[self._numbers] = _Round(deployment, now)
        for endpoint in deployment.endpoints:
            self._supersede(endpoint.name)
            self._targets[endpoint.name] = Target(self._numbers, deployment, endpoint)
        return self._close(now)

    def take(self, name: str) -> Target | None:
        """Return what the endpoint *name* should run, and note that it is being deployed; None if nothing is wanted."""
        target = self._targets.get(name)
        if target is not None:
            self._in_hand[name] = target.round
        return target

    def succeed(self, target: Target, result: SyncResult, now: float) -> list[DeploymentCompleted]:
        """Note that a taken *target* is running; return the rounds that this completes."""
        name, setback = result.endpoint, self._setbacks.get(result.endpoint)
        if result.held:
            self._held[name] = result.held
        else:
            self._held.pop(name, None)
        # What it holds back now has not failed yet, unless it is the same as before.
        if setback is not None and (not result.held or setback.held != result.held):
            del self._setbacks[name]
        if result.reloaded and target.deployment.why.keeps_interval:
            self._reloaded = max(self._reloaded, target.deployment.scheduled)
        current = self._give_back(target)
        if current is not None:
            current.results.append(result)
        return self._close(now)

    def fail(self, target: Target, now: float) -> list[DeploymentCompleted]:
        """Note that a taken *target* was not reached; return the rounds that this completes."""
        name = target.endpoint.name
        if target.deployment.may_reload:
            former = self._setbacks.get(name)
            failures = former.failures + 1 if former is not None else 1
            pause = min(FIRST_PAUSE * 2.0 ** min(failures - 1, 30), LONGEST_PAUSE)
            self._setbacks[name] = _Setback(self._held.get(name, ()), failures, now + pause)
        current = self._give_back(target)
        if current is not None:
            current.failed.append(name)
        return self._close(now)

    def drop(self, name: str, now: float) -> list[DeploymentCompleted]:
        """Want nothing of the endpoint *name* any more: it is gone; return the rounds that this completes."""
        self._supersede(name)
        self._targets.pop(name, None)
        self._held.pop(name, None)
        self._setbacks.pop(name, None)
        return self._close(now)

    def _supersede(self, name: str) -> None:
        target = self._targets.get(name)
        # What is being deployed is left to end; its outcome counts for its own round.
        if target is None or self._in_hand.get(name) == target.round:
            return
        older = self._rounds.get(target.round)
        if older is not None and name in older.outstanding:
            older.outstanding.discard(name)
            older.superseded.append(name)

    def _give_back(self, target: Target) -> _Round | None:
        name = target.endpoint.name
        self._in_hand.pop(name, None)
        current = self._rounds.get(target.round)
        if current is None or name not in current.outstanding:
            return None
        current.outstanding.discard(name)
        return current

    def _close(self, now: float) -> list[DeploymentCompleted]:
        done = [number for number, current in self._rounds.items() if not current.outstanding]
        ended = [self._rounds.pop(number) for number in done]
        return [one.completed(now, self.standing) for one in ended]

    @property
    def standing(self) -> Standing:
        """How all deployments stand."""
        return Standing(
            held=tuple(sorted(self._held)),
            reloaded=self._reloaded,
            open=tuple(
                one.deployment.scheduled
                for one in self._rounds.values()
                if one.deployment.may_reload and one.deployment.why.keeps_interval
            ),
            begun=self._begun,
            paused=tuple(sorted((name, setback.until) for name, setback in self._setbacks.items())),
        )
