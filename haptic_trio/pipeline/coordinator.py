"""Coordinator: runs one reconciliation after another and reports the outcome of each."""

from collections.abc import Callable
from functools import partial

import trio

from haptic_trio.channels import CycleEvent, Facts, Latest
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
from haptic_trio.pipeline.checker import Candidate, OnlyData, run_checker
from haptic_trio.pipeline.cycle import Pipeline
from haptic_trio.pipeline.rejection.errors import RefusedError, tell_refusal


async def run_coordinator(
    triggers: trio.MemoryReceiveChannel[ReconcileTriggered],
    cycles: trio.MemorySendChannel[CycleEvent],
    validated: Latest[ConfigValidated],
    refused: Latest[ValidationFailed],
    *,
    pipeline: Pipeline,
    facts: Facts,
    pulse: Pulse,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Reconcile for each trigger until *triggers* ends, never two at a time; nothing is published before phase 2.

    Triggers that came while one ran are taken as one: the stores have what
    all of them announced. Takes ownership of the channel ends.
    """

    async def reconcile(trigger: ReconcileTriggered, progress: Callable[[], None]) -> None:
        outcome = await _reconcile(trigger, pipeline, facts, progress)
        # The ledger first: it has to know the cycle before its deployment completes.
        await cycles.send(outcome)
        if isinstance(outcome, ConfigValidated):
            validated.put(outcome)
        else:
            refused.put(outcome)

    with triggers, cycles:
        task_status.started()
        async for trigger in triggers:
            with pulse.busy() as progress:
                await reconcile(await _take_waiting(trigger, triggers, cycles), progress)


async def run_fast_lane(
    triggers: trio.MemoryReceiveChannel[ReconcileTriggered],
    cycles: trio.MemorySendChannel[CycleEvent],
    prepared: Latest[ConfigPrepared],
    validated: Latest[ConfigValidated],
    refused: Latest[ValidationFailed],
    completed: Latest[DeploymentCompleted],
    *,
    pipeline: Pipeline,
    next_correlation: Callable[[], str],
    check_interval: float,
    only_data: OnlyData,
    facts: Facts,
    pulse: Pulse,
    check_pulse: Pulse,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """As `run_coordinator`, but publish what has passed phase 1 to *prepared* at once; phase 2 runs beside.

    A refusal by phase 2 leads to another cycle without what was refused. A
    check that waits for its turn when *triggers* ends is given up. Takes
    ownership of the channel ends.
    """
    candidates = Latest[Candidate]()
    one_at_a_time = trio.Lock()

    async def reconcile(trigger: ReconcileTriggered) -> None:
        started = trio.current_time()
        outcome = await _prepare(trigger, pipeline, facts)
        if isinstance(outcome, ValidationFailed):
            await cycles.send(outcome)
            refused.put(outcome)
            return
        message = ConfigPrepared(
            correlation=trigger.correlation,
            reason=trigger.reason,
            generation=outcome.prepared.generation,
            phases=outcome.prepared.phases,
            started=started,
        )
        facts.tell(message)
        await cycles.send(message)
        prepared.put(message)
        candidates.put(outcome)

    async def retry() -> None:
        async with one_at_a_time:
            trigger = ReconcileTriggered(
                correlation=next_correlation(), reason=Reason.REFUSED, changes=0, seen=trio.current_time()
            )
            facts.tell(trigger)
            await cycles.send(trigger)
            await reconcile(trigger)

    with triggers, cycles:
        async with trio.open_nursery() as nursery:
            await nursery.start(
                partial(
                    run_checker,
                    candidates,
                    cycles.clone(),
                    validated,
                    refused,
                    completed,
                    pipeline=pipeline,
                    interval=check_interval,
                    only_data=only_data,
                    retry=retry,
                    facts=facts,
                    pulse=check_pulse,
                )
            )
            task_status.started()
            async for trigger in triggers:
                async with one_at_a_time:
                    with pulse.busy():
                        await reconcile(await _take_waiting(trigger, triggers, cycles))
            nursery.cancel_scope.cancel(reason="nothing triggers any more")


async def _take_waiting(
    trigger: ReconcileTriggered,
    triggers: trio.MemoryReceiveChannel[ReconcileTriggered],
    cycles: trio.MemorySendChannel[CycleEvent],
) -> ReconcileTriggered:
    """Return the newest of *trigger* and those that wait, and tell the ledger of each."""
    while True:
        await cycles.send(trigger)
        try:
            trigger = triggers.receive_nowait()
        except (trio.WouldBlock, trio.EndOfChannel):
            return trigger


async def _reconcile(
    trigger: ReconcileTriggered, pipeline: Pipeline, facts: Facts, progress: Callable[[], None]
) -> ConfigValidated | ValidationFailed:
    started = trio.current_time()
    facts.tell(ReconcileStarted(correlation=trigger.correlation, reason=trigger.reason, changes=trigger.changes))
    try:
        valid = await pipeline.run(trigger.correlation, progress=progress)
    except RefusedError as exc:
        return tell_refusal(exc, correlation=trigger.correlation, reason=trigger.reason, started=started, facts=facts)
    outcome = ConfigValidated(
        correlation=trigger.correlation,
        reason=trigger.reason,
        generation=valid.generation,
        phases=valid.phases,
        warnings=valid.warnings,
        started=started,
    )
    facts.tell(outcome)
    return outcome


async def _prepare(trigger: ReconcileTriggered, pipeline: Pipeline, facts: Facts) -> Candidate | ValidationFailed:
    started = trio.current_time()
    facts.tell(ReconcileStarted(correlation=trigger.correlation, reason=trigger.reason, changes=trigger.changes))
    try:
        prepared = await pipeline.prepare(trigger.correlation)
    except RefusedError as exc:
        return tell_refusal(exc, correlation=trigger.correlation, reason=trigger.reason, started=started, facts=facts)
    return Candidate(correlation=trigger.correlation, reason=trigger.reason, prepared=prepared, started=started)
