"""Schedule in two speeds: runtime changes pass at once, reloads keep the minimum interval.

The coordinator says twice what should run: *prepared*, after phase 1, and
*validated*, once HAProxy has accepted all of it. What is prepared is deployed
at once and without permission to reload, so endpoints take what is data and
hold back the rest. What is validated may reload, as often as the interval
allows. When it does, the data that was prepared since comes along, so a
reload never turns an endpoint back to older servers.

Some data takes a reload on an older HAProxy, which needs no check to be safe.
Where structure that is being checked was prepared with it, it waits for that:
one reload does for both.
"""

from collections.abc import Callable, Collection, Mapping
from math import inf
from typing import TypeAlias

from haptic_trio.dataplane.endpoint import Endpoint
from haptic_trio.haproxy.model import Generation
from haptic_trio.messages import (
    ConfigPrepared,
    ConfigValidated,
    DeploymentCompleted,
    DeploymentScheduled,
    EndpointsDiscovered,
    Reason,
    Standing,
    ValidationFailed,
)

Input: TypeAlias = ConfigPrepared | ConfigValidated | ValidationFailed | EndpointsDiscovered | DeploymentCompleted

PATIENCE = 1.0
"""Seconds in which a deployment that may reload is expected to complete; those who hold back are asked again then."""

AddData = Callable[[Generation, Generation], Generation]
"""Return the first generation with what the second one changes of it that needs no reload."""


class TwoSpeeds:
    """The decision which deployment is due, when, and whether it may reload.

    Times are seconds of any monotonic clock. Between the starts of two
    deployments that reload there are *reload_interval* seconds at least; one
    that was allowed to, and has not said yet whether it did, counts as one
    that did.
    """

    def __init__(self, reload_interval: float, add_data: AddData, last_valid: ConfigValidated | None = None) -> None:
        """*last_valid*, of before, is what to deploy once a configuration is refused before any was valid."""
        self._interval = reload_interval
        self._add_data = add_data
        self._last_valid = last_valid
        self._prepared: ConfigPrepared | None = None
        self._valid: ConfigValidated | None = None
        self._why: str | None = None
        # What was prepared and is not valid yet was left out of a deployment that might reload.
        self._left_out = False
        self._endpoints: Mapping[str, Endpoint] = {}
        # Endpoints that came since the last deployment: they serve nobody until they have a configuration.
        self._new: set[str] = set()
        self._standing = Standing()
        # Starts of deployments that may reload and of which the standing does not tell yet.
        self._allowed: set[float] = set()
        # The valid generation that all were given with permission to reload, and what all have taken as a whole.
        self._offered = self._taken = ""
        self._mixed: tuple[str, str, Generation] | None = None

    def take(self, message: Input, now: float) -> None:  # noqa: ARG002  as other schedules
        """Take in a fact."""
        match message:
            case ConfigPrepared() if self._valid is not None and not _is_newer(message, self._valid):
                # The two come by different ways, and the check has overtaken it.
                pass
            case ConfigPrepared():
                self._prepared = message
                self._why = "prepared"
            case ConfigValidated():
                self._valid = message
                if self._prepared is not None and not _is_newer(self._prepared, message):
                    self._prepared = None
                if self._prepared is None or self._left_out:
                    self._why = "validated"
                # Else endpoints have, or get, what is newer; whether they hold back something of it they will say.
            case ValidationFailed():
                self._take_refusal(message)
            case EndpointsDiscovered():
                before = self._endpoints
                self._endpoints = {endpoint.name: endpoint for endpoint in message.endpoints}
                # An endpoint that came back under its name is another object, and knows nothing of before.
                self._new |= {name for name, endpoint in self._endpoints.items() if before.get(name) is not endpoint}
                self._new &= self._endpoints.keys()
            case DeploymentCompleted():
                self._standing = message.standing
                self._allowed = {start for start in self._allowed if start > message.standing.begun}
                if not (message.standing.held or message.failed or message.superseded):
                    self._taken = message.generation

    def _take_refusal(self, refusal: ValidationFailed) -> None:
        # A new configuration of ours that is no good leaves in force what was valid before it.
        self._valid = self._valid or self._last_valid
        if self._prepared is not None and refusal.phase == "check" and refusal.is_verdict:
            # Its data may be what was refused. What is valid takes its place until the next is prepared.
            self._prepared = None
            self._why = "rollback"
        elif refusal.reason is Reason.DRIFT:
            # The templates fail now, but what runs may still have been tampered with.
            self._why = self._why or "drift"
        if self._valid is None and self._prepared is None:
            self._why = None

    def due(self) -> float | None:
        """Return when the next deployment is due; None while nothing waits. A time in the past means now."""
        if self._new and self._valid is not None:
            return -inf
        if not self._endpoints.keys() - self._new:
            return None
        if self._why is not None:
            return -inf
        held = self._endpoints.keys() & set(self._standing.held)
        if self._valid is None or not held or self._awaits_check():
            return None
        paused = dict(self._standing.paused)
        ready = min(paused.get(name, -inf) for name in held)
        # What may reload already and is not completed will change who holds back what.
        outstanding = max((*self._standing.open, *self._allowed), default=-inf)
        return max(self._reload_due(), outstanding + PATIENCE, ready)

    def _awaits_check(self) -> bool:
        """Whether a reload now would serve data alone, and another had to follow for the structure prepared with it."""
        if self._valid is None or self._prepared is None:
            return False
        valid = self._valid.generation
        if valid.id not in {self._offered, self._taken}:
            return False
        return self._mix(valid, self._prepared.generation).id != self._prepared.generation.id

    def _mix(self, valid: Generation, prepared: Generation) -> Generation:
        """Return *valid* with the data of *prepared*, which takes long to find out where much differs."""
        if self._mixed is None or self._mixed[:2] != (valid.id, prepared.id):
            self._mixed = valid.id, prepared.id, self._add_data(valid, prepared)
        return self._mixed[2]

    def _reload_due(self) -> float:
        return max(self._standing.reloaded, *self._standing.open, *self._allowed, -inf) + self._interval

    def start(self, now: float) -> DeploymentScheduled:
        """Start the deployment that is due, and return it."""
        if self._new and self._valid is not None:
            names, self._new = self._new, set()
            # Outside the interval. What was prepared since follows, with the others.
            if self._prepared is not None:
                self._why = self._why or "prepared"
            elif names == self._endpoints.keys():
                self._why = None
            generation = self._valid.generation
            if self._prepared is not None:
                # It may be one that came back, and has served this already.
                generation = self._mix(generation, self._prepared.generation)
            return self._deploy(names, "endpoints", now, may_reload=True, message=self._valid, generation=generation)
        why, self._why = self._why or "held back", None
        # Most of what is prepared needs no reload; who holds back something of it is deployed to once more.
        may_reload = why != "prepared" and self._valid is not None and self._reload_due() <= now
        may_reload = may_reload and not self._awaits_check()
        self._left_out &= why == "prepared"
        names = self._endpoints.keys() - self._new
        # Whether there is anything else than what has failed, they will say.
        may_reload = may_reload and not names <= {name for name, until in self._standing.paused if until > now}
        if self._prepared is None:
            assert self._valid is not None
            return self._deploy(names, why, now, may_reload=may_reload, message=self._valid)
        if not may_reload:
            return self._deploy(names, why, now, may_reload=False, message=self._prepared)
        assert self._valid is not None
        allowed = self._mix(self._valid.generation, self._prepared.generation)
        whole = allowed.id == self._prepared.generation.id
        self._left_out = not whole
        message = self._prepared if whole else self._valid
        return self._deploy(names, why, now, may_reload=True, message=message, generation=allowed)

    def _deploy(
        self,
        names: Collection[str],
        why: str,
        now: float,
        *,
        may_reload: bool,
        message: ConfigPrepared | ConfigValidated,
        generation: Generation | None = None,
    ) -> DeploymentScheduled:
        if may_reload and why != "endpoints":
            self._allowed.add(now)
        if may_reload and self._valid is not None and len(names) == len(self._endpoints):
            self._offered = self._valid.generation.id
        return DeploymentScheduled(
            correlation=message.correlation,
            generation=generation or message.generation,
            endpoints=tuple(self._endpoints[name] for name in sorted(names)),
            why=why,
            may_reload=may_reload,
            scheduled=now,
            started=message.started,
        )


def _is_newer(prepared: ConfigPrepared, valid: ConfigValidated) -> bool:
    return prepared.correlation != valid.correlation and prepared.started >= valid.started
