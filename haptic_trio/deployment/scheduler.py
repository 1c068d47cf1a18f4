"""When to deploy what: minimum interval, newest wins, retries, and the last valid configuration against drift.

`Schedule` decides and has no clock, socket or task; `run_scheduler` feeds it.
"""

from collections.abc import Mapping
from functools import partial
from math import inf
from typing import Any, TypeAlias

import trio

from haptic_trio.channels import Facts, Latest
from haptic_trio.dataplane.endpoint import Endpoint
from haptic_trio.messages import (
    ConfigValidated,
    DeploymentCompleted,
    DeploymentScheduled,
    EndpointsDiscovered,
    Reason,
    ValidationFailed,
)
from haptic_trio.pulse import Pulse

RETRY_BASE = 1.0
RETRY_MAX = 60.0

Input: TypeAlias = ConfigValidated | ValidationFailed | EndpointsDiscovered | DeploymentCompleted


class Schedule:
    """The decision which deployment is due, and when.

    Times are seconds of any monotonic clock. One deployment runs at a time;
    what comes meanwhile replaces what waited.
    """

    def __init__(self, min_interval: float) -> None:
        self._min_interval = min_interval
        self._valid: ConfigValidated | None = None
        self._endpoints: Mapping[str, Endpoint] = {}
        self._running: DeploymentScheduled | None = None
        self._ended = -inf
        self._failures = 0
        # Endpoints that wait for a deployment, by why; the dict keeps the latest reason.
        self._waiting: dict[str, str] = {}
        self._due = -inf

    @property
    def running(self) -> DeploymentScheduled | None:
        """The deployment that runs now."""
        return self._running

    def take(self, message: Input, now: float) -> None:
        """Take in a fact."""
        match message:
            case ConfigValidated():
                self._valid = message
                self._wait_for(self._endpoints, "validated", self._ended + self._min_interval)
                self._failures = 0
            case ValidationFailed():
                # The templates fail now, but what runs may still have been tampered with.
                if message.reason is Reason.DRIFT and self._valid is not None:
                    self._wait_for(self._endpoints, "drift", self._ended + self._min_interval)
            case EndpointsDiscovered():
                self._discover(message)
            case DeploymentCompleted():
                self._complete(message, now)

    def _wait_for(self, names: Mapping[str, Endpoint] | set[str], why: str, due: float) -> None:
        self._waiting.update(dict.fromkeys(names, why))
        self._due = due

    def _discover(self, message: EndpointsDiscovered) -> None:
        before = self._endpoints
        self._endpoints = {endpoint.name: endpoint for endpoint in message.endpoints}
        self._waiting = {name: why for name, why in self._waiting.items() if name in self._endpoints}
        # An endpoint that came back under its name is another object, and knows nothing of before.
        new = {name for name, endpoint in self._endpoints.items() if before.get(name) is not endpoint}
        if new and self._valid is not None:
            # Outside the minimum interval: it serves nobody until it has a configuration.
            self._wait_for(new, "endpoints", -inf)

    def _complete(self, message: DeploymentCompleted, now: float) -> None:
        self._running = None
        self._ended = now
        retry = {name for name in message.failed if name in self._endpoints and name not in self._waiting}
        if not retry:
            self._failures = 0
            self._due = max(self._due, now + self._min_interval) if self._waiting else self._due
            return
        backoff = min(RETRY_MAX, max(self._min_interval, RETRY_BASE) * 2.0 ** min(self._failures, 16))
        self._failures += 1
        due = now + self._min_interval if self._waiting else now + backoff
        self._wait_for(retry, "retry", due)

    def due(self) -> float | None:
        """Return when the next deployment is due; None while nothing waits or one runs."""
        if self._running is not None or self._valid is None or not self._waiting:
            return None
        return self._due

    def start(self) -> DeploymentScheduled:
        """Start the deployment that is due, and return it."""
        assert self._valid is not None
        names, self._waiting = self._waiting, {}
        reasons = set(names.values())
        why = next(why for why in ("validated", "drift", "endpoints", "retry") if why in reasons)
        self._running = DeploymentScheduled(
            correlation=self._valid.correlation,
            generation=self._valid.generation,
            endpoints=tuple(self._endpoints[name] for name in sorted(names)),
            why=why,
            started=self._valid.started,
        )
        return self._running


async def run_scheduler(
    validated: Latest[ConfigValidated],
    refused: Latest[ValidationFailed],
    endpoints: Latest[EndpointsDiscovered],
    completions: trio.MemoryReceiveChannel[DeploymentCompleted],
    deployments: trio.MemorySendChannel[DeploymentScheduled],
    *,
    min_interval: float,
    facts: Facts,
    pulse: Pulse,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Schedule deployments until *completions* ends.

    A scheduler that starts late, with a new leadership term, deploys the
    present values at once. Takes ownership of both channel ends.
    """
    schedule = Schedule(min_interval)
    # A handover: the pumps hold back what the loop has not asked for yet.
    inbox_in, inbox_out = trio.open_memory_channel[Input](0)
    with deployments, inbox_in, inbox_out:
        async with trio.open_nursery() as nursery:
            # Endpoints first: what is there when the term begins is one deployment, not two.
            for cell in (endpoints, validated):
                if cell.value is not None:
                    schedule.take(cell.value, trio.current_time())
                nursery.start_soon(partial(_pump_latest, cell, inbox_in.clone(), seen=cell.version))
            # Refusals of before this term are no news; a drift check will come again.
            nursery.start_soon(partial(_pump_latest, refused, inbox_in.clone(), seen=refused.version))
            nursery.start_soon(_pump_completions, completions, inbox_in.clone(), nursery)
            task_status.started()
            while True:
                due = schedule.due()
                message: Input | None = None
                with trio.move_on_at(inf if due is None else max(due, trio.current_time())):
                    message = await inbox_out.receive()
                with pulse.busy():
                    if message is not None:
                        schedule.take(message, trio.current_time())
                        continue
                    deployment = schedule.start()
                    facts.tell(deployment)
                    await deployments.send(deployment)


async def _pump_latest(cell: Latest[Any], inbox: trio.MemorySendChannel[Input], *, seen: int) -> None:
    with inbox:
        while True:
            seen, value = await cell.wait_newer(seen)
            await inbox.send(value)


async def _pump_completions(
    completions: trio.MemoryReceiveChannel[DeploymentCompleted],
    inbox: trio.MemorySendChannel[Input],
    nursery: trio.Nursery,
) -> None:
    with completions, inbox:
        async for message in completions:
            await inbox.send(message)
    nursery.cancel_scope.cancel(reason="the deployer is gone")
