"""Deployer: one work item for each endpoint, each with its own pace, outcome and backoff.

An endpoint that is busy while newer configurations arrive gets only the
newest. One that got only a part of its changes is deployed to again at once.
A failing endpoint is retried with exponential backoff and does not delay the
others.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from math import inf
from typing import Protocol

import msgspec
import trio

from haptic_trio.cancellation import finish_despite_cancel
from haptic_trio.channels import CycleEvent, EventBuffer, InstanceState, Latest, pass_on
from haptic_trio.dataplane.endpoint import Endpoint, EndpointTimeoutError, PortsUnavailableError, SyncResult
from haptic_trio.dataplane.sync import WaitNewer
from haptic_trio.deployment.instance_states import InstanceStates
from haptic_trio.deployment.reload_pacing import ReloadPacing
from haptic_trio.deployment.rounds import Rounds, Target
from haptic_trio.deployment.verification import Verification
from haptic_trio.errors import HapticError, text_of
from haptic_trio.haproxy.model import Generation
from haptic_trio.heartbeat import Heartbeat
from haptic_trio.messages import (
    DeploymentCompleted,
    DeploymentScheduled,
    DeploymentStarted,
    DriftRepaired,
    EndpointsDiscovered,
    InstanceDeployed,
    InstanceFailed,
)
from haptic_trio.workqueue.limiter import ExponentialLimiter
from haptic_trio.workqueue.metrics import WorkQueueMetrics
from haptic_trio.workqueue.work_queue import QueueShutdown, WorkQueue

RETRY_BASE = 1.0
RETRY_MAX = 60.0


class SyncEndpoint(Protocol):
    """Brings an endpoint to a generation; see `haptic_trio.dataplane.sync`."""

    async def __call__(
        self,
        endpoint: Endpoint,
        desired: Generation,
        /,
        *,
        verify: bool,
        may_reload: bool,
        slowed: frozenset[str],
        checked: Generation | None,
        wait_newer: WaitNewer,
    ) -> SyncResult: ...


async def run_deployer(
    deployments: trio.MemoryReceiveChannel[DeploymentScheduled],
    cycles: trio.MemorySendChannel[CycleEvent],
    completed: Latest[DeploymentCompleted],
    endpoints: Latest[EndpointsDiscovered],
    *,
    sync: SyncEndpoint,
    deployment_timeout: float,
    drain_timeout: float,
    max_parallel: int,
    reload_pacing: ReloadPacing | None = None,
    verify_interval: float = inf,
    verification: Verification | None = None,
    report_ports: Callable[[PortsUnavailableError], None],
    instances: Latest[Mapping[str, InstanceState]] | None = None,
    events: EventBuffer,
    heartbeat: Heartbeat,
    metrics: WorkQueueMetrics | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Execute deployments until *deployments* ends and every ready work item was tried.

    A deployment that takes longer than *deployment_timeout* seconds fails.
    Failed endpoints are retried with backoff while they are among
    *endpoints*. A deployment that is in flight when this task is cancelled
    may continue for *drain_timeout* seconds. At most *max_parallel* endpoints
    are deployed to at once; 0 means no limit. The first deployment to an
    endpoint also verifies its process (drift), and so does each deployment
    that starts *verify_interval* seconds or more after the last verification;
    *verification* knows about earlier ones. *reload_pacing* counts reloads by namespace.
    *report_ports* is also called if an endpoint cannot listen on an address.
    *instances* gets the state of all endpoints after each deployment to one.
    Takes ownership of the channel ends.
    """
    queue: WorkQueue[str] = WorkQueue(
        name="deployments",
        limiter=ExponentialLimiter(RETRY_BASE, RETRY_MAX),
        metrics=metrics,
        # A newer configuration is tried at once and ends the backoff of the endpoint.
        collapse_deferred=True,
    )
    rounds = Rounds(reload_pacing)
    syncs = _Syncs(sync, verify_interval, verification or Verification())
    states = InstanceStates(instances if instances is not None else Latest())

    async def complete(messages: list[DeploymentCompleted]) -> None:
        for message in messages:
            events.record(message)
            completed.put(message)
            await pass_on(cycles, message)

    workers = 0

    async def work() -> None:
        nonlocal workers
        # Lost endpoints are dropped by workers, which then end: no more workers than endpoints.
        while workers <= len(rounds.names):
            try:
                async with queue.item() as name:
                    with heartbeat.busy():
                        await deploy_to(name)
            except QueueShutdown:
                break
        workers -= 1

    async def deploy_to(name: str) -> None:
        target = rounds.take(name)
        if target is None or not _is_known(target.endpoint, endpoints):
            queue.forget(name)
            syncs.forget(name)
            states.forget(name)
            await complete(rounds.drop(name, trio.current_time()))
            return
        result = await _sync_one(target, syncs.deploy, deployment_timeout, drain_timeout, events, report_ports, states)
        _settle(queue, name, result)
        now = trio.current_time()
        await complete(rounds.fail(target, now) if result is None else rounds.succeed(target, result, now))
        _publish_state(completed, rounds)

    with deployments, cycles:
        async with trio.open_nursery() as nursery:
            await nursery.start(_run_queue, queue, rounds, endpoints)
            task_status.started()
            async for deployment in deployments:
                names = tuple(endpoint.name for endpoint in deployment.endpoints)
                events.record(
                    DeploymentStarted(
                        correlation=deployment.correlation, generation=deployment.generation.id, endpoints=names
                    )
                )
                states.announce(names, deployment.generation.id)
                await complete(rounds.begin(deployment, trio.current_time()))
                for name in names:
                    syncs.announce(name, deployment.generation)
                    queue.add(name)
                # One worker for each endpoint, so that no endpoint waits for the timeout of another.
                wanted = min(len(rounds.names), max_parallel or inf)
                while workers < wanted:
                    workers += 1
                    nursery.start_soon(work)
            queue.shutdown(drain=True)


def _settle(queue: WorkQueue[str], name: str, result: SyncResult | None) -> None:
    """Add the endpoint *name* to *queue* again if its deployment failed (None), later, or was partial, at once."""
    if result is None:
        queue.add_rate_limited(name)
        return
    queue.forget(name)
    if result.is_partial:
        queue.add(name)


async def _run_queue(
    queue: WorkQueue[str],
    rounds: Rounds,
    endpoints: Latest[EndpointsDiscovered],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run *queue*, and add lost endpoints to it: a worker drops their targets, each of which refers to a generation."""

    async def add_lost() -> None:
        seen = 0
        while True:
            seen, message = await endpoints.wait_newer(seen)
            for name in rounds.names - {endpoint.name for endpoint in message.endpoints}:
                queue.add(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(add_lost)
        await queue.run(task_status=task_status)
        nursery.cancel_scope.cancel(reason="the queue is shut down")


class _Syncs:
    """Deployments to single endpoints: which of them verify, and the newest generation for each."""

    def __init__(self, sync: SyncEndpoint, interval: float, verification: Verification) -> None:
        self._sync = sync
        self._interval = interval
        self._verification = verification
        self._newest: dict[str, Latest[Generation]] = {}

    def announce(self, name: str, generation: Generation) -> None:
        """Record the newest generation for endpoint *name*: a process that is being replaced gets its servers."""
        self._newest.setdefault(name, Latest()).put(generation)

    async def deploy(self, endpoint: Endpoint, deployment: DeploymentScheduled) -> SyncResult:
        """Deploy the generation of *deployment* to *endpoint*; verify the process first if that is due."""
        began = trio.current_time()
        verify = self._verification.is_due(endpoint, began, self._interval)
        result = await self._sync(
            endpoint,
            deployment.generation,
            verify=verify,
            may_reload=deployment.may_reload,
            slowed=deployment.slowed,
            checked=deployment.checked,
            wait_newer=partial(_wait_newer, self._newest[endpoint.name]),
        )
        if verify:
            self._verification.record(endpoint, began)
        return result

    def forget(self, name: str) -> None:
        """Forget the lost endpoint *name*."""
        self._verification.forget(name)
        self._newest.pop(name, None)


async def _wait_newer(newest: Latest[Generation], known: Generation) -> Generation:
    seen = 0
    while True:
        seen, generation = await newest.wait_newer(seen)
        if generation is not known:
            return generation


def _publish_state(completed: Latest[DeploymentCompleted], rounds: Rounds) -> None:
    """Publish the state after a retry: a retry belongs to no round and completes none."""
    newest = completed.value
    if newest is not None and newest.state != rounds.state:
        completed.put(msgspec.structs.replace(newest, state=rounds.state))


def _is_known(endpoint: Endpoint, endpoints: Latest[EndpointsDiscovered]) -> bool:
    return endpoints.value is not None and any(known is endpoint for known in endpoints.value.endpoints)


async def _sync_one(
    target: Target,
    sync: Callable[[Endpoint, DeploymentScheduled], Awaitable[SyncResult]],
    limit: float,
    drain_timeout: float,
    events: EventBuffer,
    report_ports: Callable[[PortsUnavailableError], None],
    states: InstanceStates,
) -> SyncResult | None:
    deployment, endpoint = target.deployment, target.endpoint
    results: list[SyncResult] = []

    def report_failure(error: Exception) -> None:
        text = text_of(error)
        states.record(endpoint.name, deployment.generation.id, None, text)
        events.record(
            InstanceFailed(
                correlation=deployment.correlation,
                endpoint=endpoint.name,
                error=text,
                seconds=trio.current_time() - began,
            )
        )

    async def deploy() -> None:
        try:
            with trio.fail_after(limit):
                result = await sync(endpoint, deployment)
        except trio.TooSlowError:
            report_failure(EndpointTimeoutError(endpoint.name, f"deployment took longer than {limit:g} s"))
        except PortsUnavailableError as exc:
            report_failure(exc)
            report_ports(exc)
        except (HapticError, OSError) as exc:
            report_failure(exc)
        else:
            states.record(endpoint.name, deployment.generation.id, result)
            events.record(InstanceDeployed(correlation=deployment.correlation, result=result))
            if result.drift:
                events.record(_make_drift_event(deployment.correlation, result))
            results.append(result)

    began = trio.current_time()
    await finish_despite_cancel(deploy, grace=drain_timeout)
    return results[0] if results else None


def _make_drift_event(correlation: str, result: SyncResult) -> DriftRepaired:
    return DriftRepaired(
        correlation=correlation,
        endpoint=result.endpoint,
        found=result.drift,
        operations=result.operations,
        reloaded=result.reloaded,
    )
