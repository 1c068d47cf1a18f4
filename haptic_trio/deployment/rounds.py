"""Rounds: the target of each endpoint, and when a deployment is completed.

A *round* is one scheduled deployment over its endpoints. Endpoints proceed
independently: a newer round gives an endpoint a newer target and supersedes
an older target that the endpoint has not started, or has deployed in part. A
round is completed when each of its endpoints succeeded, failed once, or was
superseded; retries belong to no round.
"""

import math
from collections.abc import KeysView
from typing import Final

import msgspec

from haptic_trio.dataplane.endpoint import Endpoint, SyncResult
from haptic_trio.deployment.reload_pacing import ReloadPacing
from haptic_trio.haproxy.causes import UNATTRIBUTED
from haptic_trio.messages import DeploymentCompleted, DeploymentScheduled, DeploymentState

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""Seconds before a change that failed to reload is tried again: doubled from the first to the longest."""


class Target(msgspec.Struct, frozen=True):
    """The deployment that an endpoint should run."""

    round: int
    deployment: DeploymentScheduled
    endpoint: Endpoint


class _Setback(msgspec.Struct, frozen=True):
    """Number of failed attempts of an endpoint to apply the changes that it holds back."""

    held: tuple[str, ...]
    """Reasons why these changes need a reload."""
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
        self.is_continued = False

    def completed(self, now: float, state: DeploymentState) -> DeploymentCompleted:
        return DeploymentCompleted(
            correlation=self.deployment.correlation,
            generation=self.deployment.generation.id,
            results=tuple(sorted(self.results, key=lambda result: result.endpoint)),
            failed=tuple(sorted(self.failed)),
            superseded=tuple(sorted(self.superseded)),
            is_continued=self.is_continued,
            seconds=now - self.began,
            state=state,
            started=self.deployment.started,
        )


class Rounds:
    """State of all rounds, without a clock: times are seconds of any monotonic clock."""

    def __init__(self, pacing: ReloadPacing | None = None) -> None:
        """By default the reloads of a namespace have no limit."""
        self._pacing = pacing or ReloadPacing(0.0)
        self._numbers = 0
        self._rounds: dict[int, _Round] = {}
        self._targets: dict[str, Target] = {}
        # By endpoint: the round of the deployment in progress.
        self._in_hand: dict[str, int] = {}
        # By endpoint: the result by which it holds back changes.
        self._held: dict[str, SyncResult] = {}
        self._setbacks: dict[str, _Setback] = {}
        self._reloaded = self._begun = -math.inf
        # Namespaces for which the newest deployment that has reloaded an endpoint was counted.
        self._counted: frozenset[str] = frozenset()

    @property
    def open(self) -> int:
        """Number of rounds that are not completed."""
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
            self._supersede(endpoint.name, deployment)
            self._targets[endpoint.name] = Target(self._numbers, deployment, endpoint)
        return self._close(now)

    def take(self, name: str) -> Target | None:
        """Return the target of the endpoint *name* and mark it as being deployed; None if there is no target."""
        target = self._targets.get(name)
        if target is not None:
            self._in_hand[name] = target.round
        return target

    def succeed(self, target: Target, result: SyncResult, now: float) -> list[DeploymentCompleted]:
        """Record that the deployment of *target* succeeded; return the rounds that this completes.

        After a partial one the endpoint still belongs to its round, unless it has a newer target.
        """
        name, setback = result.endpoint, self._setbacks.get(result.endpoint)
        if result.held:
            self._held[name] = result
        else:
            self._held.pop(name, None)
        # The changes that it holds back now have not failed yet, unless they are the same as before.
        if setback is not None and (not result.held or setback.held != result.held):
            del self._setbacks[name]
        if result.reloaded and target.deployment.why.keeps_interval:
            self._count_reload(target.deployment, result.causes, now)
        if result.is_partial:
            self._in_hand.pop(name, None)
            newer = self._targets.get(name)
            if newer is not None and newer.round != target.round:
                self._leave(name, target, newer.deployment)
            return self._close(now)
        current = self._finish(target)
        if current is not None:
            current.results.append(result)
        return self._close(now)

    def _count_reload(self, deployment: DeploymentScheduled, causes: frozenset[str], now: float) -> None:
        if deployment.scheduled > self._reloaded:
            self._reloaded, self._counted = deployment.scheduled, frozenset()
        # One deployment counts once, on however many endpoints. What only accompanies other changes costs no reload.
        fresh = causes - deployment.slowed - self._counted - UNATTRIBUTED
        self._counted |= fresh
        self._pacing.record(fresh, now)

    def fail(self, target: Target, now: float) -> list[DeploymentCompleted]:
        """Record that the deployment of *target* failed; return the rounds that this completes."""
        name = target.endpoint.name
        if target.deployment.may_reload:
            former = self._setbacks.get(name)
            failures = former.failures + 1 if former is not None else 1
            pause = min(FIRST_PAUSE * 2.0 ** min(failures - 1, 30), LONGEST_PAUSE)
            held = self._held[name].held if name in self._held else ()
            self._setbacks[name] = _Setback(held, failures, now + pause)
        current = self._finish(target)
        if current is not None:
            current.failed.append(name)
        return self._close(now)

    def drop(self, name: str, now: float) -> list[DeploymentCompleted]:
        """Remove the target of the lost endpoint *name*; return the rounds that this completes.

        The target may have been taken, but must not be deployed after that.
        """
        self._in_hand.pop(name, None)
        self._supersede(name, None)
        self._targets.pop(name, None)
        self._held.pop(name, None)
        self._setbacks.pop(name, None)
        return self._close(now)

    def _supersede(self, name: str, newer: DeploymentScheduled | None) -> None:
        """Take the endpoint *name*, whose next target is *newer*, out of the round of its present target."""
        target = self._targets.get(name)
        # A deployment in progress continues; its outcome counts for its own round.
        if target is not None and self._in_hand.get(name) != target.round:
            self._leave(name, target, newer)

    def _leave(self, name: str, target: Target, newer: DeploymentScheduled | None) -> None:
        older = self._rounds.get(target.round)
        if older is None or name not in older.outstanding:
            return
        older.outstanding.discard(name)
        older.superseded.append(name)
        if newer is not None and older.deployment.correlation == newer.correlation:
            older.is_continued = True

    def _finish(self, target: Target) -> _Round | None:
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
        return [one.completed(now, self.state) for one in ended]

    @property
    def state(self) -> DeploymentState:
        """State of all deployments."""
        slowed = dict(self._pacing.holds)
        paused = {name: setback.until for name, setback in self._setbacks.items()}
        for name, result in self._held.items():
            if result.affected and result.affected <= slowed.keys():
                ready = min(slowed[namespace] for namespace in result.affected)
                paused[name] = max(ready, paused.get(name, ready))
        return DeploymentState(
            held=tuple(sorted(self._held)),
            reloaded=self._reloaded,
            open=tuple(
                one.deployment.scheduled
                for one in self._rounds.values()
                if one.deployment.may_reload and one.deployment.why.keeps_interval
            ),
            begun=self._begun,
            paused=tuple(sorted(paused.items())),
            slowed=tuple(slowed.items()),
        )
