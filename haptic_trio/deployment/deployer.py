"""Carry out deployments: all endpoints in parallel, each with its own outcome, one completion at the end."""

from collections.abc import Awaitable, Callable
from functools import partial

import trio

from haptic_trio.channels import CycleEvent, Facts, Latest
from haptic_trio.dataplane.endpoint import Endpoint, EndpointTimeoutError, SyncResult
from haptic_trio.errors import HapticError
from haptic_trio.haproxy.model import Generation
from haptic_trio.messages import (
    DeploymentCompleted,
    DeploymentScheduled,
    DeploymentStarted,
    InstanceDeployed,
    InstanceFailed,
)
from haptic_trio.pulse import Pulse

SyncEndpoint = Callable[[Endpoint, Generation], Awaitable[SyncResult]]


async def run_deployer(
    deployments: trio.MemoryReceiveChannel[DeploymentScheduled],
    completions: trio.MemorySendChannel[DeploymentCompleted],
    cycles: trio.MemorySendChannel[CycleEvent],
    completed: Latest[DeploymentCompleted],
    *,
    sync: SyncEndpoint,
    deployment_timeout: float,
    drain_timeout: float,
    max_parallel: int,
    facts: Facts,
    pulse: Pulse,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Execute deployments, one after another, until *deployments* ends.

    An endpoint that takes longer than *deployment_timeout* seconds counts as
    failed. A deployment in flight when this task is cancelled may go on for
    *drain_timeout* seconds. Takes ownership of the channel ends.
    """
    with deployments, completions, cycles:
        task_status.started()
        async for deployment in deployments:
            with pulse.busy():
                message = await _deploy(
                    deployment, partial(_sync_one, sync, deployment_timeout, facts), max_parallel, drain_timeout, facts
                )
                completed.put(message)
                await cycles.send(message)
                await completions.send(message)


async def _deploy(
    deployment: DeploymentScheduled,
    sync_one: Callable[[DeploymentScheduled, Endpoint], Awaitable[SyncResult | None]],
    max_parallel: int,
    drain_timeout: float,
    facts: Facts,
) -> DeploymentCompleted:
    began = trio.current_time()
    names = tuple(endpoint.name for endpoint in deployment.endpoints)
    facts.tell(
        DeploymentStarted(correlation=deployment.correlation, generation=deployment.generation.id, endpoints=names)
    )
    results: list[SyncResult] = []
    limiter = trio.CapacityLimiter(max_parallel or max(1, len(names)))

    async def deploy_to(endpoint: Endpoint) -> None:
        async with limiter:
            result = await sync_one(deployment, endpoint)
        if result is not None:
            results.append(result)

    async def deploy_to_all() -> None:
        async with trio.open_nursery() as nursery:
            for endpoint in deployment.endpoints:
                nursery.start_soon(deploy_to, endpoint)

    await finish_despite_cancel(deploy_to_all, grace=drain_timeout)
    succeeded = {result.endpoint for result in results}
    message = DeploymentCompleted(
        correlation=deployment.correlation,
        generation=deployment.generation.id,
        results=tuple(sorted(results, key=lambda result: result.endpoint)),
        failed=tuple(name for name in names if name not in succeeded),
        seconds=trio.current_time() - began,
        started=deployment.started,
    )
    facts.tell(message)
    return message


async def _sync_one(
    sync: SyncEndpoint, limit: float, facts: Facts, deployment: DeploymentScheduled, endpoint: Endpoint
) -> SyncResult | None:
    began = trio.current_time()
    try:
        try:
            with trio.fail_after(limit):
                result = await sync(endpoint, deployment.generation)
        except trio.TooSlowError as exc:
            raise EndpointTimeoutError(endpoint.name, f"deployment took longer than {limit:g} s") from exc
    except (HapticError, OSError) as exc:
        facts.tell(
            InstanceFailed(
                correlation=deployment.correlation,
                endpoint=endpoint.name,
                error=str(exc),
                seconds=trio.current_time() - began,
            )
        )
        return None
    facts.tell(InstanceDeployed(correlation=deployment.correlation, result=result))
    return result


async def finish_despite_cancel(work: Callable[[], Awaitable[None]], *, grace: float) -> None:
    """Run *work*; when cancelled from outside meanwhile, let it go on for at most *grace* seconds."""
    shielded = trio.CancelScope(shield=True)

    async def shorten_when_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            shielded.deadline = min(shielded.deadline, trio.current_time() + grace)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(shorten_when_cancelled)
        with shielded:
            await work()
        nursery.cancel_scope.cancel(reason="work is finished")
