"""Decision which deployment is due, when, and whether it may reload. Without clock, socket or task.

The coordinator publishes a configuration twice: *prepared*, after the parser
accepted it, and *validated*, after `haproxy -c` accepted it. A prepared
configuration is deployed at once and without permission to reload: endpoints
apply the runtime changes and hold back the rest. A validated configuration may
reload, as often as the interval allows. Its deployment includes the runtime
changes that were prepared since, so a reload never restores older servers.

Some runtime changes need a reload on an older HAProxy; they are safe without a
check. If they were prepared together with a structural change that is being
checked, they wait for the check, so that one reload covers both.

Both decisions need the valid generation with the runtime changes of the
prepared one. To compute it takes CPU time that grows with the cluster, so the
caller does: `comparison` returns the two generations when a deployment needs
the result, and `Compared` brings it in. Deployments that do not need it go on
meanwhile.

Changes of namespaces that have caused many reloads are slowed down: endpoints
hold them back until the hold of the namespace ends (`reload_pacing`), or until
they reload for another change.

Without the fast lane (`reconciler.mode: classic`) nothing is published as
prepared, and every deployment keeps the interval.
"""

from collections.abc import Collection, Mapping
from math import inf
from typing import NamedTuple, TypeAlias

from haptic_trio.dataplane.endpoint import Endpoint
from haptic_trio.haproxy.model import Generation
from haptic_trio.messages import (
    ConfigPrepared,
    ConfigValidated,
    DeploymentCompleted,
    DeploymentReason,
    DeploymentScheduled,
    DeploymentState,
    EndpointsDiscovered,
    Reason,
    ValidationFailed,
)


class Compared(NamedTuple):
    """Result of a comparison: *valid* with those changes of *prepared* that need no reload."""

    valid: Generation
    prepared: Generation
    mixed: Generation


Input: TypeAlias = (
    ConfigPrepared | ConfigValidated | ValidationFailed | EndpointsDiscovered | DeploymentCompleted | Compared
)

PATIENCE = 1.0
"""Seconds within which a deployment that may reload is expected to complete. Endpoints that hold back a change get
the next deployment after that time."""


class Schedule:
    """The decision which deployment is due, when, and whether it may reload.

    Times are seconds of any monotonic clock. At least *interval* seconds pass
    between the starts of two deployments that reload. A deployment that may
    reload, and has not reported yet whether it did, counts as one that did.

    Without *fast_lane*, *interval* separates all deployments: from the start
    of the previous one, and from its end if it ended in time, so a slow
    endpoint does not delay the others by more than one interval. New
    endpoints are deployed to at once in both modes.
    """

    def __init__(
        self,
        interval: float,
        last_valid: ConfigValidated | None = None,
        *,
        fast_lane: bool = True,
    ) -> None:
        """*last_valid*: the configuration of the previous iteration, deployed if the first one of this is rejected."""
        self._interval = interval
        self._last_valid = last_valid
        self._fast_lane = fast_lane
        self._prepared: ConfigPrepared | None = None
        self._valid: ConfigValidated | None = None
        self._why: DeploymentReason | None = None
        # A deployment that might reload left out a prepared configuration that is not valid yet.
        self._left_out = False
        self._endpoints: Mapping[str, Endpoint] = {}
        # Endpoints that appeared since the last deployment: they serve nothing until they have a configuration.
        self._new: set[str] = set()
        self._state = DeploymentState()
        # Starts of deployments that may reload and that the state does not include yet.
        self._allowed: set[float] = set()
        # Start or end of the last deployment, whichever is later. Counts without the fast lane only.
        self._last = -inf
        # The valid generation that all endpoints were offered with permission to reload, and the one that all run.
        self._offered = self._taken = ""
        # The cycle whose deployment made them run it.
        self._taken_by = ""
        self._compared: Compared | None = None
        self._is_comparing = self._is_late = False

    def take(self, message: Input, now: float) -> None:
        """Take in *message*."""
        match message:
            case ConfigPrepared() if self._valid is not None and not _is_newer(message, self._valid):
                # The messages arrive by different channels: the check of a newer configuration came first.
                pass
            case ConfigPrepared():
                self._prepared = message
                self._why = DeploymentReason.PREPARED
            case ConfigValidated():
                self._valid = message
                if self._prepared is not None and not _is_newer(self._prepared, message):
                    self._prepared = None
                if (self._prepared is None or self._left_out) and not self._runs_everywhere(message):
                    self._why = DeploymentReason.VALIDATED
                # Else endpoints have, or get, a newer configuration, and report whether they hold back a part of it.
            case ValidationFailed():
                self._take_rejection(message)
            case EndpointsDiscovered():
                before = self._endpoints
                self._endpoints = {endpoint.name: endpoint for endpoint in message.endpoints}
                # An endpoint that came back under its name is another object without the former's state.
                self._new |= {name for name, endpoint in self._endpoints.items() if before.get(name) is not endpoint}
                self._new &= self._endpoints.keys()
            case DeploymentCompleted():
                self._last = max(self._last, now)
                self._state = message.state
                self._allowed = {start for start in self._allowed if start > message.state.begun}
                if message.is_complete:
                    self._taken, self._taken_by = message.generation, message.correlation
            case Compared():
                self._compared, self._is_comparing = message, False
                self._is_late = self._lacks_comparison()

    def _runs_everywhere(self, valid: ConfigValidated) -> bool:
        """Whether another deployment of *valid* would change nothing, and report nothing new."""
        is_known = valid.is_deployed or valid.correlation == self._taken_by
        return self._fast_lane and is_known and valid.generation.id == self._taken

    def _take_rejection(self, rejection: ValidationFailed) -> None:
        # If the first output of a new ConfigMap is rejected, the previous valid configuration stays in force.
        self._valid = self._valid or self._last_valid
        if rejection.keeps_data:
            # Its data is part of the valid configuration, and newer data continues it.
            if self._prepared is not None and self._prepared.correlation == rejection.correlation:
                self._prepared = None
        elif self._prepared is not None and rejection.phase == "check" and rejection.is_verdict:
            # One of its runtime changes may be the rejected one. The valid generation replaces it until the next.
            self._prepared = None
            self._why = DeploymentReason.ROLLBACK
        elif rejection.reason is Reason.DRIFT:
            # The templates fail now, but the running configuration may still have been changed from outside.
            self._why = self._why or DeploymentReason.DRIFT
        if self._valid is None and self._prepared is None:
            self._why = None

    def due(self) -> float | None:
        """Return when the next deployment is due; None while nothing waits. A time in the past means now."""
        # What needs the result of a comparison that runs waits for it.
        is_open = not (self._is_comparing and self._lacks_comparison())
        if self._new and self._valid is not None and is_open:
            return -inf
        if not self._endpoints.keys() - self._new:
            return None
        if self._why is not None and (is_open or self._why is DeploymentReason.PREPARED):
            return -inf if self._fast_lane else self._last + self._interval
        held = self._endpoints.keys() & set(self._state.held)
        if self._valid is None or not held or not is_open or self._awaits_check():
            return None
        paused = dict(self._state.paused)
        ready = min(paused.get(name, -inf) for name in held)
        # Deployments that may reload and are not completed will change which endpoints hold back a part.
        outstanding = max((*self._state.open, *self._allowed), default=-inf)
        return max(self._reload_due(), outstanding + PATIENCE, ready)

    def comparison(self, now: float) -> tuple[Generation, Generation] | None:
        """Return the valid and the prepared generation if the deployment that is due needs them compared; else None.

        The caller takes in `Compared` before it asks again. Until then `due`
        names only deployments that do not need the result.
        """
        if self._is_comparing or self._valid is None or self._prepared is None or not self._lacks_comparison():
            return None
        if not self._new and (self._why is DeploymentReason.PREPARED or not self._may_reload(now)):
            return None
        self._is_comparing = True
        return self._valid.generation, self._prepared.generation

    @property
    def is_late(self) -> bool:
        """Whether newer generations had arrived before the result of the last comparison."""
        return self._is_late

    def _may_reload(self, now: float) -> bool:
        """Whether the interval and the pauses of the endpoints permit a reload now."""
        # Without permission they report whether there is anything to reload for besides what they are paused for.
        paused = {name for name, until in self._state.paused if until > now}
        return (
            self._valid is not None and self._reload_due() <= now and not self._endpoints.keys() - self._new <= paused
        )

    def _awaits_check(self) -> bool:
        """Whether a reload now would only apply data, so that the structure prepared with it needed another reload.

        False while the two generations have not been compared.
        """
        if self._valid is None or self._prepared is None or self._mixed is None:
            return False
        if self._valid.generation.id not in {self._offered, self._taken}:
            return False
        return self._mixed.id != self._prepared.generation.id

    @property
    def _mixed(self) -> Generation | None:
        """The valid generation with the runtime changes of the prepared one; None if it is not known."""
        known, valid, prepared = self._compared, self._valid, self._prepared
        if known is None or valid is None or prepared is None:
            return None
        is_current = (known.valid.id, known.prepared.id) == (valid.generation.id, prepared.generation.id)
        return known.mixed if is_current else None

    def _reload_due(self) -> float:
        return max(self._state.reloaded, *self._state.open, *self._allowed, -inf) + self._interval

    def start(self, now: float) -> DeploymentScheduled:
        """Start the deployment that is due, and return it. `comparison` must have returned None at *now*."""
        if self._new and self._valid is not None and not self._includes_new(now) and not self._lacks_comparison():
            return self._start_new(self._valid, now)
        if not self._fast_lane:
            assert self._valid is not None
            why, self._why = self._why or DeploymentReason.HELD_BACK, None
            self._new, self._last = set(), now
            return self._deploy(self._endpoints.keys(), why, now, may_reload=True, message=self._valid)
        why, self._why = self._why or DeploymentReason.HELD_BACK, None
        # Most of a prepared configuration needs no reload; endpoints that hold back a part get another deployment.
        may_reload = why is not DeploymentReason.PREPARED and self._may_reload(now) and not self._awaits_check()
        self._left_out &= why is DeploymentReason.PREPARED
        names = self._endpoints.keys() - self._new
        if self._prepared is None:
            assert self._valid is not None
            return self._deploy(names, why, now, may_reload=may_reload, message=self._valid)
        if not may_reload:
            return self._deploy(names, why, now, may_reload=False, message=self._prepared)
        allowed = self._mixed
        assert self._valid is not None
        assert allowed is not None
        whole = allowed.id == self._prepared.generation.id
        self._left_out = not whole
        message = self._prepared if whole else self._valid
        return self._deploy(names, why, now, may_reload=True, message=message, generation=allowed)

    def _lacks_comparison(self) -> bool:
        return self._prepared is not None and self._mixed is None

    def _includes_new(self, now: float) -> bool:
        """Whether the deployment that is due goes to all endpoints, new ones included."""
        return not self._fast_lane and self._why is not None and self._last + self._interval <= now

    def _start_new(self, valid: ConfigValidated, now: float) -> DeploymentScheduled:
        """Start a deployment to the new endpoints, outside the interval."""
        names, self._new = self._new, set()
        generation = valid.generation
        if self._prepared is not None:
            # The prepared configuration follows, to all endpoints.
            self._why = self._why or DeploymentReason.PREPARED
            # The endpoint may have come back, and may have served the runtime changes before.
            assert self._mixed is not None
            generation = self._mixed
        elif self._fast_lane and names == self._endpoints.keys():
            self._why = None
        return self._deploy(
            names, DeploymentReason.ENDPOINTS, now, may_reload=True, message=valid, generation=generation
        )

    def _deploy(
        self,
        names: Collection[str],
        why: DeploymentReason,
        now: float,
        *,
        may_reload: bool,
        message: ConfigPrepared | ConfigValidated,
        generation: Generation | None = None,
    ) -> DeploymentScheduled:
        if may_reload and why.keeps_interval:
            self._allowed.add(now)
        if may_reload and self._valid is not None and len(names) == len(self._endpoints):
            self._offered = self._valid.generation.id
        checked = self._valid.generation if self._valid is not None else None
        generation = generation or message.generation
        return DeploymentScheduled(
            correlation=message.correlation,
            generation=generation,
            endpoints=tuple(self._endpoints[name] for name in sorted(names)),
            why=why,
            may_reload=may_reload,
            slowed=frozenset(name for name, until in self._state.slowed if until > now),
            checked=checked if checked is not generation else None,
            scheduled=now,
            started=message.started,
        )


def _is_newer(prepared: ConfigPrepared, valid: ConfigValidated) -> bool:
    return prepared.correlation != valid.correlation and prepared.started >= valid.started
