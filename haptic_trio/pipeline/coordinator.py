"""Coordinator: runs one reconciliation after another and publishes the result of each."""

from collections.abc import Callable
from functools import partial

import msgspec
import trio

from haptic_trio.channels import CycleEvent, EventBuffer, Latest
from haptic_trio.heartbeat import Pulse
from haptic_trio.messages import (
    ConfigPrepared,
    ConfigValidated,
    DeploymentCompleted,
    Reason,
    ReconcileStarted,
    ReconcileTriggered,
    ValidationFailed,
)
from haptic_trio.pipeline.checker import OnlyData, run_checker
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
    next_correlation: Callable[[], str]
    """Gives the id of the cycle that follows a rejection."""
    pulse: Pulse


async def run_coordinator(
    triggers: trio.MemoryReceiveChannel[ReconcileTriggered],
    cycles: trio.MemorySendChannel[CycleEvent],
    validated: Latest[ConfigValidated],
    rejected: Latest[ValidationFailed],
    *,
    pipeline: Pipeline,
    fast_lane: FastLane | None,
    events: EventBuffer,
    pulse: Pulse,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Reconcile for each trigger until *triggers* ends, never two at a time.

    Triggers that arrive during a reconciliation are handled together: the
    stores contain the changes of all of them. Without *fast_lane* nothing is
    published before `haproxy -c` has accepted it. With it, a rejection leads
    to another cycle without the rejected output, and a check that waits for
    its turn when *triggers* ends is cancelled. Takes ownership of the channel
    ends.
    """
    candidates = Latest[Prepared]()
    one_at_a_time = trio.Lock()

    async def reconcile(trigger: ReconcileTriggered, progress: Callable[[], None]) -> None:
        events.record(ReconcileStarted(correlation=trigger.correlation, reason=trigger.reason, changes=trigger.changes))
        started = trio.current_time()
        candidate: Prepared | None = None
        outcome: ConfigPrepared | ConfigValidated | ValidationFailed
        try:
            if fast_lane is None:
                outcome = await pipeline.run(trigger.correlation, trigger.reason, progress=progress)
            else:
                candidate = await pipeline.prepare(trigger.correlation, trigger.reason)
                outcome = candidate.message
        except RejectedError as exc:
            outcome = report_rejection(
                exc, correlation=trigger.correlation, reason=trigger.reason, started=started, events=events
            )
        else:
            events.record(outcome)
        # The ledger first: it has to know the cycle before its deployment completes.
        await cycles.send(outcome)
        match outcome:
            case ConfigValidated():
                validated.put(outcome)
            case ValidationFailed():
                rejected.put(outcome)
            case ConfigPrepared() if fast_lane is not None and candidate is not None:
                fast_lane.prepared.put(outcome)
                candidates.put(candidate)

    async def retry(lane: FastLane) -> None:
        async with one_at_a_time:
            trigger = ReconcileTriggered(
                correlation=lane.next_correlation(), reason=Reason.REJECTED, changes=0, seen=trio.current_time()
            )
            events.record(trigger)
            await cycles.send(trigger)
            with pulse.busy() as progress:
                await reconcile(trigger, progress)

    with triggers, cycles:
        async with trio.open_nursery() as nursery:
            if fast_lane is not None:
                await nursery.start(
                    partial(
                        run_checker,
                        candidates,
                        cycles.clone(),
                        validated,
                        rejected,
                        fast_lane.completed,
                        pipeline=pipeline,
                        interval=fast_lane.interval,
                        only_data=fast_lane.only_data,
                        retry=partial(retry, fast_lane),
                        events=events,
                        pulse=fast_lane.pulse,
                    )
                )
            task_status.started()
            async for trigger in triggers:
                async with one_at_a_time:
                    with pulse.busy() as progress:
                        await reconcile(await _take_waiting(trigger, triggers, cycles), progress)
            nursery.cancel_scope.cancel(reason="there are no more triggers")


async def _take_waiting(
    trigger: ReconcileTriggered,
    triggers: trio.MemoryReceiveChannel[ReconcileTriggered],
    cycles: trio.MemorySendChannel[CycleEvent],
) -> ReconcileTriggered:
    """Return the newest of *trigger* and the waiting ones, after sending each to the ledger."""
    while True:
        await cycles.send(trigger)
        try:
            trigger = triggers.receive_nowait()
        except (trio.WouldBlock, trio.EndOfChannel):
            return trigger
