"""Stage 5, `reconcile`: debouncer, coordinator, discovery, drift monitor and leadership."""

from collections.abc import Callable
from functools import partial

import trio

from haptic_trio.channels import Channels
from haptic_trio.config.model import ReconcilerMode, StoreKind, ValidationMode
from haptic_trio.dataplane.planner import Planner
from haptic_trio.deployment.discovery import run_discovery
from haptic_trio.deployment.drift import run_drift_monitor
from haptic_trio.deployment.instance_count import INSTANCES, run_instance_count
from haptic_trio.deployment.taken_ports import listening_settings, run_taken_ports
from haptic_trio.gateway.listeners.port_rules import TAKEN_PORTS
from haptic_trio.k8s.on_demand import FETCH_ALLOWANCE
from haptic_trio.messages import ConfigValidated, Reason, ReconcileTriggered
from haptic_trio.pipeline.contents.policy import fetches
from haptic_trio.pipeline.coordinator import CheckedConfig, FastLane, run_coordinator
from haptic_trio.pipeline.debounce import run_debouncer
from haptic_trio.pipeline.rejection.setbacks import run_attempts
from haptic_trio.pipeline.validate import CHECK_TIMES
from haptic_trio.stages.config_publisher import publish_config, publish_valid
from haptic_trio.stages.iteration_components import IterationComponents
from haptic_trio.stages.leadership import run_leadership_terms, run_term
from haptic_trio.stages.process import Process
from haptic_trio.stages.status_writers import lead_and_write_status


async def run_reconcile(
    process: Process,
    components: IterationComponents,
    channels: Channels,
    *,
    next_correlation: Callable[[], str],
    last_valid: ConfigValidated | None,
    checked: ConfigValidated | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Reconcile until cancelled. Stage `watch_resources` has sent the first trigger: the index synchronisation.

    *last_valid* comes from the previous iteration; see `run_scheduler`.
    *checked* is published instead of the first reconciliation.
    started() when all tasks of the stage are ready.
    """
    config, events, heartbeats = components.config, process.events, components.heartbeats
    planner = Planner()
    publish_config(process)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(publish_valid, process, channels.validated)
        await nursery.start(
            partial(run_discovery, process.endpoints, channels.endpoints, events=events),
        )
        await nursery.start(
            partial(
                run_taken_ports,
                channels.changes_in.clone(),
                components.stores.get(TAKEN_PORTS),
                taken=process.retained.taken_ports,
                settings=listening_settings(config.templating.extra_context),
            )
        )
        await nursery.start(
            partial(
                run_instance_count, process.endpoints, channels.changes_in.clone(), components.stores.get(INSTANCES)
            )
        )
        await nursery.start(
            partial(_run_coordinator, components, channels, next_correlation, process, planner, checked)
        )
        await nursery.start(
            partial(
                run_leadership_terms,
                process.leadership,
                partial(
                    lead_and_write_status,
                    partial(
                        run_term,
                        channels,
                        config,
                        last_valid=last_valid,
                        planner=planner,
                        events=events,
                        heartbeats=heartbeats,
                        metrics=process.queue_metrics,
                        report_ports=process.retained.taken_ports.report,
                        verification=process.retained.verification,
                        reload_pacing=process.retained.reload_pacing,
                        leadership=process.leadership,
                    ),
                    process,
                    components,
                    channels,
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
                events=events,
                heartbeat=heartbeats.add("drift monitor", limit=config.dataplane.drift_prevention_interval),
            )
        )
        await nursery.start(partial(run_attempts, process.retained.quarantine.setbacks, channels.changes_in.clone()))
        # Last, so that all other tasks are ready for its first trigger.
        await nursery.start(
            partial(
                run_debouncer,
                channels.changes_out.clone(),
                channels.triggers_in.clone(),
                interval=(
                    config.reconciler.debounce_interval
                    if config.reconciler.mode is ReconcilerMode.CLASSIC
                    else config.reconciler.runtime_interval
                ),
                next_correlation=next_correlation,
                events=events,
                heartbeat=heartbeats.add("debouncer", limit=30.0),
            )
        )
        task_status.started()


async def _run_coordinator(
    components: IterationComponents,
    channels: Channels,
    next_correlation: Callable[[], str],
    process: Process,
    planner: Planner,
    checked: ConfigValidated | None,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    # The heartbeats must not refer to the components, which refer to them: they are freed without collecting garbage.
    config, heartbeats, pipeline = components.config, components.heartbeats, components.pipeline
    render_limit = float(config.templating.render_timeout)
    check_limit = CHECK_TIMES * config.validation.check_timeout
    on_demand = any(watched.store is StoreKind.ON_DEMAND for watched in config.watched_resources.values())
    if on_demand or fetches(config):
        render_limit += FETCH_ALLOWANCE
    coordinator_limit, fast_lane = render_limit + check_limit, None
    if config.validation.mode is ValidationMode.FAST and config.reconciler.mode is not ReconcilerMode.CLASSIC:
        coordinator_limit = render_limit
        fast_lane = FastLane(
            prepared=channels.prepared,
            completed=channels.completed,
            interval=config.validation.interval,
            only_data=planner.is_only_data,
            add_data=planner.add_data,
            keep_servers=planner.keep_servers,
            next_correlation=next_correlation,
            heartbeat=heartbeats.add("checker", limit=check_limit + render_limit, steps=lambda: pipeline.steps),
        )
    await run_coordinator(
        channels.triggers_out.clone(),
        channels.cycles_in.clone(),
        channels.validated,
        channels.rejected,
        pipeline=pipeline,
        fast_lane=fast_lane,
        checked=_checked_config(checked, next_correlation) if checked is not None else None,
        events=process.events,
        heartbeat=heartbeats.add("coordinator", limit=coordinator_limit, steps=lambda: pipeline.steps),
        task_status=task_status,
    )


def _checked_config(valid: ConfigValidated, next_correlation: Callable[[], str]) -> CheckedConfig:
    trigger = ReconcileTriggered(
        correlation=next_correlation(), reason=Reason.SYNCHRONIZED, changes=0, seen=trio.current_time()
    )
    return CheckedConfig(valid=valid, trigger=trigger)
