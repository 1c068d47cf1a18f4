"""Coordinator: runs one reconciliation after another and publishes the result of each."""

from collections.abc import Callable
from functools import partial

import msgspec
import trio

from haptic_trio.channels import CycleEvent, EventBuffer, Latest, pass_on
from haptic_trio.dataplane.planner import AddData, KeepServers, OnlyData
from haptic_trio.heartbeat import Heartbeat
from haptic_trio.messages import (
    ConfigPrepared,
    ConfigValidated,
    DeploymentCompleted,
    Reason,
    ReconcileStarted,
    ReconcileTriggered,
    ValidationFailed,
)
from haptic_trio.pipeline.checker import run_checker
from haptic_trio.pipeline.cycle import Pipeline, Prepared
from haptic_trio.pipeline.rejection.errors import RejectedError, report_rejection


class FastLane(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of the fast lane: a configuration is published before `haproxy -c`, which runs in parallel."""

    prepared: Latest[ConfigPrepared]
    """Receives each configuration that the parser accepted."""
    completed: Latest[DeploymentCompleted]
    """Reports which endpoints wait for a check."""
    interval: float
    """Minimum time in seconds between the starts of two checks that no endpoint waits for."""
    only_data: OnlyData
    add_data: AddData
    keep_servers: KeepServers
    next_correlation: Callable[[], str]
    """Gives the id of the cycle that follows a rejection."""
    heartbeat: Heartbeat


class CheckedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration that the pipeline has made and checked already."""

    valid: ConfigValidated
    trigger: ReconcileTriggered
    """The reconciliation that publishes it."""


async def run_coordinator(
    triggers: trio.MemoryReceiveChannel[ReconcileTriggered],
    cycles: trio.MemorySendChannel[CycleEvent],
    validated: Latest[ConfigValidated],
    rejected: Latest[ValidationFailed],
    *,
    pipeline: Pipeline,
    fast_lane: FastLane | None,
    checked: CheckedConfig | None = None,
    events: EventBuffer,
    heartbeat: Heartbeat,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Reconcile for each trigger until *triggers* ends, never two at a time.

    Triggers that arrive during a reconciliation are handled together: the
    stores contain the changes of all of them. Without *fast_lane* nothing is
    published before `haproxy -c` has accepted it. With it, a rejection leads
    to another cycle without the rejected output, and a check that waits for
    its turn when *triggers* ends is cancelled. Takes ownership of the channel
    ends.

    With *checked*, started() means that it is published, and before it what
    has changed since its check.
    """
    run = _Coordinator(cycles, validated, rejected, pipeline, fast_lane, checked, events, heartbeat)
    with triggers, cycles:
        async with trio.open_nursery() as nursery:
            if checked is not None:
                await run.publish(checked)
            if fast_lane is not None:
                await nursery.start(
                    partial(
                        run_checker,
                        run.candidates,
                        cycles.clone(),
                        validated,
                        rejected,
                        fast_lane.completed,
                        pipeline=pipeline,
                        interval=fast_lane.interval,
                        only_data=fast_lane.only_data,
                        add_data=fast_lane.add_data,
                        keep_servers=fast_lane.keep_servers,
                        last_valid=checked.valid.generation if checked is not None else None,
                        retry=partial(run.repeat, fast_lane, Reason.REJECTED),
                        events=events,
                        heartbeat=fast_lane.heartbeat,
                    )
                )
            task_status.started()
            await run.catch_up(fast_lane, triggers)
            async for trigger in triggers:
                async with run.one_at_a_time:
                    with heartbeat.busy() as progress:
                        await run.reconcile(await _take_waiting(trigger, triggers, cycles), progress)
                await run.catch_up(fast_lane, triggers)
            nursery.cancel_scope.cancel(reason="there are no more triggers")


class _Coordinator:
    """Reconciliations, and where their results go."""

    def __init__(
        self,
        cycles: trio.MemorySendChannel[CycleEvent],
        validated: Latest[ConfigValidated],
        rejected: Latest[ValidationFailed],
        pipeline: Pipeline,
        fast_lane: FastLane | None,
        checked: CheckedConfig | None,
        events: EventBuffer,
        heartbeat: Heartbeat,
    ) -> None:
        self._cycles = cycles
        self._validated = validated
        self._rejected = rejected
        self._pipeline = pipeline
        self._fast_lane = fast_lane
        self._checked = checked.valid if checked is not None else None
        self._events = events
        self._heartbeat = heartbeat
        self.candidates = Latest[Prepared]()
        self.one_at_a_time = trio.Lock()

    async def reconcile(self, trigger: ReconcileTriggered, progress: Callable[[], None]) -> None:
        """Run the pipeline once and publish the outcome."""
        self._events.record(
            ReconcileStarted(correlation=trigger.correlation, reason=trigger.reason, changes=trigger.changes)
        )
        started = trio.current_time()
        candidate: Prepared | None = None
        outcome: ConfigPrepared | ConfigValidated | ValidationFailed
        try:
            if self._fast_lane is None:
                outcome = await self._pipeline.run(trigger.correlation, trigger.reason, progress=progress)
            else:
                candidate = await self._pipeline.prepare(trigger.correlation, trigger.reason)
                outcome = self._known_outcome(candidate, self._fast_lane)
        except RejectedError as exc:
            outcome = report_rejection(
                exc, correlation=trigger.correlation, reason=trigger.reason, started=started, events=self._events
            )
        else:
            self._events.record(outcome)
        # The ledger first: it has to know the cycle before its deployment completes.
        await pass_on(self._cycles, outcome)
        match outcome:
            case ConfigValidated():
                self._validated.put(outcome)
            case ValidationFailed():
                self._rejected.put(outcome)
            case ConfigPrepared() if self._fast_lane is not None and candidate is not None:
                self._fast_lane.prepared.put(outcome)
                self.candidates.put(candidate)

    def _known_outcome(self, candidate: Prepared, lane: FastLane) -> ConfigPrepared | ConfigValidated:
        """Return the message of *candidate*, or that its generation is valid: the newest one, which was checked before.

        Most changes in a cluster change no output; these need no other check, and no deployment.
        """
        prepared, newest = candidate.message, lane.prepared.value
        valid = self._checked if self._checked is not None else self._validated.value
        known = prepared.generation.id
        if valid is None or valid.generation.id != known or (newest is not None and newest.generation.id != known):
            return prepared
        if self._checked is None:
            if candidate.rendered.contents:
                # The check decides about contents that are new, whether they change the output or not.
                return prepared
            self._pipeline.accept(candidate.rendered)
        is_deployed = prepared.reason is Reason.CHANGED and _runs_everywhere(lane.completed.value, valid)
        return _validated_again(valid, prepared, is_deployed=is_deployed)

    async def publish(self, checked: CheckedConfig) -> None:
        """Publish *checked*, and before it what has changed since its check."""
        await self._begin(checked.trigger)
        # Only the first cycle may repeat it: nothing else is published yet.
        self._checked = None
        # Last: endpoints get the newest data with its structure, never older data.
        if self._validated.value is None:
            self._validated.put(checked.valid)

    async def catch_up(self, lane: FastLane | None, triggers: trio.MemoryReceiveChannel[ReconcileTriggered]) -> None:
        """Reconcile again until no changes wait, or a trigger does; without *lane*, none ever waits.

        At least once, so that triggers do not hold up what waits. A cycle for a trigger takes in nothing that waits.
        """
        while lane is not None and self._pipeline.is_behind:
            async with self.one_at_a_time:
                with self._heartbeat.busy():
                    is_due = await self._pipeline.render_ahead()
            if is_due:
                await self.repeat(lane, Reason.WAITED)
            if triggers.statistics().current_buffer_used:
                return

    async def repeat(self, lane: FastLane, reason: Reason) -> None:
        """Reconcile again: without rejected output, or with changes that have waited."""
        async with self.one_at_a_time:
            trigger = ReconcileTriggered(
                correlation=lane.next_correlation(), reason=reason, changes=0, seen=trio.current_time()
            )
            await self._begin(trigger)

    async def _begin(self, trigger: ReconcileTriggered) -> None:
        """Reconcile for a *trigger* that comes from here, not from the debouncer."""
        self._events.record(trigger)
        await pass_on(self._cycles, trigger)
        with self._heartbeat.busy() as progress:
            await self.reconcile(trigger, progress)


def _runs_everywhere(completed: DeploymentCompleted | None, valid: ConfigValidated) -> bool:
    if completed is None or completed.generation != valid.generation.id:
        return False
    if not valid.is_deployed and completed.correlation != valid.correlation:
        # Its own deployment is outstanding: suspected drift, for example, deploys a generation again.
        return False
    return completed.is_complete


def _validated_again(valid: ConfigValidated, prepared: ConfigPrepared, *, is_deployed: bool) -> ConfigValidated:
    """Return *valid* as the outcome of the cycle that made *prepared*, the same generation."""
    return msgspec.structs.replace(
        valid,
        correlation=prepared.correlation,
        reason=prepared.reason,
        generation=prepared.generation,
        phases=prepared.phases,
        started=prepared.started,
        is_deployed=is_deployed,
    )


async def _take_waiting(
    trigger: ReconcileTriggered,
    triggers: trio.MemoryReceiveChannel[ReconcileTriggered],
    cycles: trio.MemorySendChannel[CycleEvent],
) -> ReconcileTriggered:
    """Return the newest of *trigger* and the waiting ones, after sending each to the ledger.

    Suspected drift stays the reason: a cycle for changes alone may end without a deployment.
    """
    is_drift = False
    while True:
        # Gives up the turn: in a burst of changes, further triggers arrive meanwhile, and one cycle is for all of them.
        await cycles.send(trigger)
        is_drift |= trigger.reason is Reason.DRIFT
        try:
            trigger = triggers.receive_nowait()
        except (trio.WouldBlock, trio.EndOfChannel):
            return msgspec.structs.replace(trigger, reason=Reason.DRIFT) if is_drift else trigger
