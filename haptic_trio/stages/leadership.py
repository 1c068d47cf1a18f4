"""Leadership term: schedules and deploys while this replica leads."""

from collections.abc import Awaitable, Callable
from functools import partial

import trio

from haptic_trio.channels import Channels, CycleEvent, EventBuffer, Latest
from haptic_trio.config.model import Config, ControllerConfig, ReconcilerMode
from haptic_trio.dataplane.endpoint import PortsUnavailableError
from haptic_trio.dataplane.planner import Planner
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.deployment.deployer import run_deployer
from haptic_trio.deployment.reload_pacing import ReloadPacing
from haptic_trio.deployment.schedule import Schedule
from haptic_trio.deployment.scheduler import run_scheduler
from haptic_trio.deployment.verification import Verification
from haptic_trio.heartbeat import Heartbeats
from haptic_trio.messages import ConfigValidated, DeploymentScheduled, LeadershipChanged
from haptic_trio.terms import run_terms
from haptic_trio.workqueue.metrics import WorkQueueMetrics


async def run_leadership_terms(
    leadership: Latest[LeadershipChanged],
    lead: Callable[[], Awaitable[None]],
    *,
    cycles: trio.MemorySendChannel[CycleEvent],
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run *lead* during each term and send each change of leadership to *cycles*, until cancelled.

    Takes ownership of *cycles*.
    """
    with cycles:
        await run_terms(leadership, lead, notify=cycles.send, task_status=task_status)


async def run_term(
    channels: Channels,
    config: Config,
    *,
    last_valid: ConfigValidated | None,
    planner: Planner,
    events: EventBuffer,
    heartbeats: Heartbeats,
    metrics: WorkQueueMetrics | None,
    report_ports: Callable[[PortsUnavailableError], None],
    verification: Verification,
    reload_pacing: ReloadPacing,
    leadership: Latest[LeadershipChanged],
) -> None:
    """Run scheduler and deployer, beginning with the present values of *channels*, until cancelled."""
    if leadership.value is not None:
        verification.begin(leadership.value.term)
    dataplane = config.dataplane
    reload_pacing.set_interval(dataplane.namespace_reload_interval)
    # Capacity 0: the scheduler can replace a deployment that the deployer has not received yet.
    deployments_in, deployments_out = trio.open_memory_channel[DeploymentScheduled](0)
    with deployments_in, deployments_out:
        async with trio.open_nursery() as nursery:
            await nursery.start(
                partial(
                    run_deployer,
                    deployments_out,
                    channels.cycles_in.clone(),
                    channels.completed,
                    channels.endpoints,
                    sync=partial(sync_endpoint, planner=planner),
                    deployment_timeout=dataplane.deployment_timeout,
                    drain_timeout=drain_limit(config.controller),
                    max_parallel=dataplane.max_parallel,
                    reload_pacing=reload_pacing,
                    report_ports=report_ports,
                    instances=channels.instances,
                    verify_interval=dataplane.drift_prevention_interval,
                    verification=verification,
                    events=events,
                    heartbeat=heartbeats.add("deployer", limit=2 * dataplane.deployment_timeout),
                    metrics=metrics,
                )
            )
            await nursery.start(
                partial(
                    run_scheduler,
                    channels.prepared,
                    channels.validated,
                    channels.rejected,
                    channels.endpoints,
                    channels.completed,
                    deployments_in,
                    schedule=make_schedule(config, last_valid),
                    add_data=planner.add_data,
                    events=events,
                    heartbeat=heartbeats.add("scheduler", limit=30.0),
                )
            )


def drain_limit(controller: ControllerConfig) -> float:
    """Return how long a running deployment may continue after the Lease is lost, before another replica can hold it."""
    election = controller.leader_election
    if not election.enabled:
        return controller.drain_timeout
    return min(controller.drain_timeout, election.lease_duration - election.renew_deadline)


def make_schedule(config: Config, last_valid: ConfigValidated | None) -> Schedule:
    """Return the schedule for `reconciler.mode`; *last_valid* comes from the previous iteration."""
    interval = config.dataplane.min_deployment_interval
    fast_lane = config.reconciler.mode is not ReconcilerMode.CLASSIC
    if fast_lane:
        interval = max(interval, config.reconciler.debounce_interval)
    return Schedule(interval, last_valid, fast_lane=fast_lane)
