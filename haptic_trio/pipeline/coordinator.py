"""One reconciliation after another: render, validate, and say how it went."""

import trio

from haptic_trio.channels import CycleEvent, Facts, Latest
from haptic_trio.messages import (
    ConfigValidated,
    ReconcileFailed,
    ReconcileStarted,
    ReconcileTriggered,
    ValidationFailed,
)
from haptic_trio.pipeline.cycle import Pipeline
from haptic_trio.pipeline.refusal import RefusedError
from haptic_trio.pulse import Pulse


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
    """Reconcile for each trigger until *triggers* ends, never two at a time.

    Triggers that came while one ran are taken as one: the stores have what
    all of them announced. Takes ownership of the channel ends.
    """
    with triggers, cycles:
        task_status.started()
        async for trigger in triggers:
            with pulse.busy():
                newest = trigger
                await cycles.send(trigger)
                for newest in _take_waiting(triggers):
                    await cycles.send(newest)
                outcome = await _reconcile(newest, pipeline, facts)
                # The ledger first: it has to know the cycle before its deployment completes.
                await cycles.send(outcome)
                if isinstance(outcome, ConfigValidated):
                    validated.put(outcome)
                else:
                    refused.put(outcome)


def _take_waiting(triggers: trio.MemoryReceiveChannel[ReconcileTriggered]) -> list[ReconcileTriggered]:
    waiting = []
    while True:
        try:
            waiting.append(triggers.receive_nowait())
        except (trio.WouldBlock, trio.EndOfChannel):
            return waiting


async def _reconcile(
    trigger: ReconcileTriggered, pipeline: Pipeline, facts: Facts
) -> ConfigValidated | ValidationFailed:
    started = trio.current_time()
    facts.tell(ReconcileStarted(correlation=trigger.correlation, reason=trigger.reason, changes=trigger.changes))
    outcome: ConfigValidated | ValidationFailed
    try:
        valid = await pipeline.run(trigger.correlation)
    except RefusedError as exc:
        outcome = ValidationFailed(
            correlation=trigger.correlation, reason=trigger.reason, phase=exc.phase, problems=exc.problems
        )
        facts.tell(outcome)
        facts.tell(
            ReconcileFailed(
                correlation=trigger.correlation,
                phase=exc.phase,
                seconds=trio.current_time() - started,
                phases=exc.phases,
            )
        )
        return outcome
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
