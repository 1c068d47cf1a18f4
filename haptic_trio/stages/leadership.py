"""The term: while this replica leads, it schedules and deploys."""

from collections.abc import Awaitable, Callable
from functools import partial

import trio

from haptic_trio.channels import Channels, CycleEvent, Facts, Latest
from haptic_trio.config.model import Config
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.deployment.deployer import run_deployer
from haptic_trio.deployment.scheduler import run_scheduler
from haptic_trio.messages import ConfigValidated, DeploymentScheduled, LeadershipChanged
from haptic_trio.pulse import Pulses
from haptic_trio.workqueue.metrics import WorkQueueMetrics


async def run_terms(
    leadership: Latest[LeadershipChanged],
    lead: Callable[[], Awaitable[None]],
    *,
    cycles: trio.MemorySendChannel[CycleEvent],
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run *lead* for as long as, and whenever, this replica leads. Takes ownership of *cycles*."""
    version, state = await leadership.wait_newer(0)
    with cycles:
        task_status.started()
        while True:
            await cycles.send(state)
            if state.is_leader:
                async with trio.open_nursery() as term:
                    term.start_soon(lead)
                    version, state = await _wait_lost(leadership, version)
                    term.cancel_scope.cancel(reason="leadership lost")
            else:
                version, state = await leadership.wait_newer(version)


async def _wait_lost(leadership: Latest[LeadershipChanged], seen: int) -> tuple[int, LeadershipChanged]:
    while True:
        seen, state = await leadership.wait_newer(seen)
        if not state.is_leader:
            return seen, state


async def run_term(
    channels: Channels,
    config: Config,
    *,
    last_valid: ConfigValidated | None,
    facts: Facts,
    pulses: Pulses,
    metrics: WorkQueueMetrics | None,
) -> None:
    """Schedule and deploy, from the present values on, until cancelled."""
    dataplane = config.dataplane
    # A handover: what the deployer has not taken yet is still the scheduler's to replace.
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
                    sync=sync_endpoint,
                    deployment_timeout=dataplane.deployment_timeout,
                    drain_timeout=config.controller.drain_timeout,
                    max_parallel=dataplane.max_parallel,
                    facts=facts,
                    pulse=pulses.add("deployer", limit=2 * dataplane.deployment_timeout),
                    metrics=metrics,
                )
            )
            await nursery.start(
                partial(
                    run_scheduler,
                    channels.validated,
                    channels.refused,
                    channels.endpoints,
                    channels.completed,
                    deployments_in,
                    min_interval=dataplane.min_deployment_interval,
                    last_valid=last_valid,
                    facts=facts,
                    pulse=pulses.add("scheduler", limit=30.0),
                )
            )
