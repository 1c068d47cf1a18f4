"""Deployment scheduler: minimum interval, newest generation first, redeployment of the last valid one on drift.

`OneSpeed` and `TwoSpeeds` decide, without clock, socket or task; `run_scheduler` feeds them.
"""

from collections.abc import Iterable, Mapping
from math import inf
from typing import Protocol

import trio

from haptic_trio.channels import Facts, Latest, News
from haptic_trio.dataplane.endpoint import Endpoint
from haptic_trio.deployment.two_speeds import Input
from haptic_trio.heartbeat import Pulse
from haptic_trio.messages import (
    ConfigPrepared,
    ConfigValidated,
    DeploymentCompleted,
    DeploymentScheduled,
    EndpointsDiscovered,
    Reason,
    ValidationFailed,
)


class Schedule(Protocol):
    """A decision which deployment is due, and when. Times are seconds of any monotonic clock."""

    def take(self, message: Input, now: float) -> None:
        """Take in a fact."""
        ...

    def due(self) -> float | None:
        """Return when the next deployment is due; None while nothing waits. A time in the past means now."""
        ...

    def start(self, now: float) -> DeploymentScheduled:
        """Start the deployment that is due, and return it."""
        ...


class OneSpeed:
    """The decision which deployment is due, and when, whatever it changes.

    Times are seconds of any monotonic clock. Deployments keep the minimum
    interval from the start of the one before, and from its end if that came
    in time; an endpoint that takes longer does not hold up the others. What
    becomes valid meanwhile replaces what waited.
    """

    def __init__(self, min_interval: float, last_valid: ConfigValidated | None = None) -> None:
        """*last_valid*, of before, is what to deploy once a configuration is refused before any was valid."""
        self._min_interval = min_interval
        self._last_valid = last_valid
        self._valid: ConfigValidated | None = None
        self._endpoints: Mapping[str, Endpoint] = {}
        self._last = -inf
        self._why: str | None = None
        # Endpoints that came since the last deployment, and wait for nobody.
        self._new: set[str] = set()

    def take(self, message: Input, now: float) -> None:
        """Take in a fact."""
        match message:
            case ConfigValidated():
                self._valid = message
                self._why = "validated"
            case ValidationFailed():
                # A new configuration of ours that is no good leaves in force what was valid before it.
                self._valid = self._valid or self._last_valid
                # The templates fail now, but what runs may still have been tampered with.
                if message.reason is Reason.DRIFT and self._valid is not None:
                    self._why = self._why or "drift"
            case EndpointsDiscovered():
                before = self._endpoints
                self._endpoints = {endpoint.name: endpoint for endpoint in message.endpoints}
                # An endpoint that came back under its name is another object, and knows nothing of before.
                self._new |= {name for name, endpoint in self._endpoints.items() if before.get(name) is not endpoint}
                self._new &= self._endpoints.keys()
            case DeploymentCompleted():
                self._last = max(self._last, now)

    def due(self) -> float | None:
        """Return when the next deployment is due; None while nothing waits. A time in the past means now."""
        if self._valid is None:
            return None
        if self._new:
            return -inf
        return None if self._why is None or not self._endpoints else self._last + self._min_interval

    def start(self, now: float) -> DeploymentScheduled:
        """Start the deployment that is due, and return it."""
        assert self._valid is not None
        if self._why is not None and self._last + self._min_interval <= now:
            names: Iterable[str] = self._endpoints
            why, self._why = self._why, None
            self._last = now
        else:
            # Outside the minimum interval: these serve nobody until they have a configuration.
            names, why = self._new, "endpoints"
        self._new = set()
        return DeploymentScheduled(
            correlation=self._valid.correlation,
            generation=self._valid.generation,
            endpoints=tuple(self._endpoints[name] for name in sorted(names)),
            why=why,
            scheduled=now,
            started=self._valid.started,
        )


async def run_scheduler(
    validated: Latest[ConfigValidated],
    refused: Latest[ValidationFailed],
    endpoints: Latest[EndpointsDiscovered],
    completed: Latest[DeploymentCompleted],
    deployments: trio.MemorySendChannel[DeploymentScheduled],
    *,
    schedule: Schedule,
    prepared: Latest[ConfigPrepared] | None = None,
    facts: Facts,
    pulse: Pulse,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Schedule deployments until the deployer, who reads them, is gone.

    A scheduler that starts late, with a new leadership term, deploys the
    present values at once. *prepared* is for a schedule of two speeds. Takes
    ownership of *deployments*.
    """
    with deployments:
        # Endpoints first: what is there when the term begins is one deployment, not two.
        states = (endpoints, validated, *((prepared,) if prepared is not None else ()))
        for cell in states:
            if cell.value is not None:
                schedule.take(cell.value, trio.current_time())
        # Refusals and completions of before this term are no news.
        news = News((*states, refused, completed))
        task_status.started()
        while True:
            due = schedule.due()
            messages: list[Input] = []
            with trio.move_on_at(inf if due is None else max(due, trio.current_time())):
                messages = await news.wait()
            with pulse.busy():
                for message in messages:
                    schedule.take(message, trio.current_time())
                if messages:
                    continue
                deployment = schedule.start(trio.current_time())
                facts.tell(deployment)
                try:
                    await deployments.send(deployment)
                except trio.BrokenResourceError:
                    # The deployer is gone.
                    return
