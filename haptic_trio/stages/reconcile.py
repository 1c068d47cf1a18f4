"""Stage 5: debouncer, coordinator, discovery, drift monitor and leadership; from here on changes reach HAProxy."""

from collections.abc import Callable
from functools import partial

import trio

from haptic_trio.channels import Channels
from haptic_trio.deployment.discovery import run_discovery
from haptic_trio.deployment.drift import run_drift_monitor
from haptic_trio.messages import ConfigValidated
from haptic_trio.pipeline.coordinator import run_coordinator
from haptic_trio.pipeline.debounce import run_debouncer
from haptic_trio.stages.leadership import run_term, run_terms
from haptic_trio.stages.parts import Parts
from haptic_trio.stages.process import Process


async def run_reconcile(
    process: Process,
    parts: Parts,
    channels: Channels,
    *,
    next_correlation: Callable[[], str],
    last_valid: ConfigValidated | None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Reconcile until cancelled. The first trigger is the index synchronisation that stage 3 has sent.

    *last_valid* is of the iteration before; see `run_scheduler`.
    """
    config, facts, pulses = parts.config, process.facts, parts.pulses
    async with trio.open_nursery() as nursery:
        await nursery.start(
            partial(run_discovery, process.instances, channels.endpoints, facts=facts),
        )
        await nursery.start(
            partial(
                run_coordinator,
                channels.triggers_out.clone(),
                channels.cycles_in.clone(),
                channels.validated,
                channels.refused,
                pipeline=parts.pipeline,
                facts=facts,
                pulse=pulses.add(
                    "coordinator", limit=config.templating.render_timeout + config.validation.check_timeout
                ),
            )
        )
        await nursery.start(
            partial(
                run_terms,
                process.leadership,
                partial(
                    run_term,
                    channels,
                    config,
                    last_valid=last_valid,
                    facts=facts,
                    pulses=pulses,
                    metrics=process.queue_metrics,
                ),
                cycles=channels.cycles_in.clone(),
            )
        )
        await nursery.start(
            partial(
                run_drift_monitor,
                channels.completed,
                channels.changes_in.clone(),
                interval=config.dataplane.drift_prevention_interval,
                facts=facts,
                pulse=pulses.add("drift monitor", limit=config.dataplane.drift_prevention_interval),
            )
        )
        # Last, so that whatever it triggers finds everybody ready.
        await nursery.start(
            partial(
                run_debouncer,
                channels.changes_out.clone(),
                channels.triggers_in.clone(),
                interval=config.reconciler.debounce_interval,
                next_correlation=next_correlation,
                facts=facts,
                pulse=pulses.add("debouncer", limit=30.0),
            )
        )
        task_status.started()
