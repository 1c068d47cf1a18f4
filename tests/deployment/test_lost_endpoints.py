"""Endpoints that are gone leave nothing behind in the deployer."""

import gc
import weakref

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from haptic_trio.messages import EndpointsDiscovered
from tests.deployment.test_deployer import Rig
from tests.support.components.endpoints import MemoryEndpoint, generation


@pytest.fixture
def rig() -> Rig:
    return Rig()


async def test_lost_endpoint_is_released_without_another_attempt(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    kept = MemoryEndpoint("kept")
    await rig.start(nursery)

    async def deploy_to_both() -> weakref.ref[MemoryEndpoint]:
        lost = MemoryEndpoint("lost", fails=1)
        await rig.deploy("old", kept, lost)
        await rig.next()
        return weakref.ref(lost)

    lost = await deploy_to_both()
    rig.endpoints.put(EndpointsDiscovered(endpoints=(kept,)))
    await wait_all_tasks_blocked()
    await rig.deploy("new", kept)
    await rig.next()
    gc.collect()

    assert trio.current_time() == 0
    assert lost() is None
    assert kept.running == generation("new")


@pytest.mark.parametrize("max_parallel", [0, 2])
async def test_pods_that_replace_each_other_leave_neither_tasks_nor_targets(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery, max_parallel: int
) -> None:
    pods = list[weakref.ref[MemoryEndpoint]]()
    kept = MemoryEndpoint("kept")
    await rig.start(nursery, max_parallel=max_parallel)

    async def replace(number: int) -> None:
        pod = MemoryEndpoint(f"pod-{number}")
        pods.append(weakref.ref(pod))
        await rig.deploy(f"c{number}", pod, kept)
        await rig.next()
        await wait_all_tasks_blocked()
        rig.recorded()

    await replace(0)
    tasks = trio.lowlevel.current_statistics().tasks_living
    for number in range(1, 50):
        await replace(number)
    gc.collect()

    assert trio.lowlevel.current_statistics().tasks_living == tasks
    assert [number for number, pod in enumerate(pods) if pod() is not None] == [49]


async def test_endpoints_that_return_are_deployed_to_in_parallel_again(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    endpoints = [MemoryEndpoint(f"e{number}", seconds=5) for number in range(3)]
    await rig.start(nursery)
    await rig.deploy("old", *endpoints)
    await rig.next()
    rig.endpoints.put(EndpointsDiscovered(endpoints=()))
    await wait_all_tasks_blocked()

    await rig.deploy("new", *endpoints)
    completion = await rig.next()

    assert (len(completion.results), completion.seconds) == (3, 5)
