"""States of instances, as the deployer records them."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial

import trio
from trio.testing import MockClock

from haptic_trio.channels import CycleEvent, EventBuffer, InstanceState, Latest
from haptic_trio.dataplane.endpoint import Endpoint, SyncResult
from haptic_trio.deployment.deployer import SyncEndpoint, run_deployer
from haptic_trio.haproxy.model import Generation
from haptic_trio.heartbeat import Heartbeat
from haptic_trio.messages import DeploymentReason, DeploymentScheduled, EndpointsDiscovered
from tests.support.components.endpoints import MemoryEndpoint, generation, sync_in_memory


class Rig:
    """A running deployer, and the states that it publishes."""

    def __init__(self, deployments: trio.MemorySendChannel[DeploymentScheduled]) -> None:
        self.deployments = deployments
        self.endpoints = Latest[EndpointsDiscovered]()
        self.cell = Latest[Mapping[str, InstanceState]]()

    @property
    def states(self) -> Mapping[str, InstanceState]:
        return self.cell.value or {}

    async def deploy(self, name: str, *endpoints: MemoryEndpoint) -> None:
        """Deploy the generation *name* to *endpoints*, and let half a second pass."""
        self.endpoints.put(EndpointsDiscovered(endpoints=endpoints))
        await self.deployments.send(
            DeploymentScheduled(
                correlation=name, generation=generation(name), endpoints=endpoints, why=DeploymentReason.VALIDATED
            )
        )
        await trio.sleep(0.5)


@asynccontextmanager
async def running(sync: SyncEndpoint = sync_in_memory) -> AsyncIterator[Rig]:
    """Run a deployer."""
    deployments, received = trio.open_memory_channel[DeploymentScheduled](0)
    cycles, _cycles_out = trio.open_memory_channel[CycleEvent](50)
    rig = Rig(deployments)
    async with trio.open_nursery() as nursery:
        await nursery.start(
            partial(
                run_deployer,
                received,
                cycles,
                Latest(),
                rig.endpoints,
                sync=sync,
                deployment_timeout=30,
                drain_timeout=5,
                max_parallel=0,
                report_ports=lambda _error: None,
                instances=rig.cell,
                events=EventBuffer(),
                heartbeat=Heartbeat("deployer", 100),
            )
        )
        yield rig
        nursery.cancel_scope.cancel(reason="the test is over")
    deployments.close()
    _cycles_out.close()


async def test_state_of_each_instance_follows_its_own_deployments(autojump_clock: MockClock) -> None:
    good, failing = MemoryEndpoint("good"), MemoryEndpoint("failing", fails=1)
    old, new = generation("old").id, generation("new").id
    async with running() as rig:
        await rig.deploy("old", good, failing)
        assert rig.states == {
            "good": InstanceState(wanted=old, generation=old),
            "failing": InstanceState(wanted=old, error="failing: told to fail"),
        }
        # The retry belongs to no round.
        await trio.sleep(2)
        assert rig.states["failing"] == InstanceState(wanted=old, generation=old)

        failing.fails = 1
        await rig.deploy("new", good, failing)
        assert rig.states["good"].is_in_sync
        assert rig.states["failing"] == InstanceState(wanted=new, generation=old, error="failing: told to fail")

        rig.endpoints.put(EndpointsDiscovered(endpoints=(good,)))
        await trio.sleep(100)
        assert rig.states.keys() == {"good"}


async def test_instance_that_holds_changes_back_is_not_in_sync(autojump_clock: MockClock) -> None:
    async def hold_back(endpoint: Endpoint, desired: Generation, **_how: object) -> SyncResult:
        await trio.lowlevel.checkpoint()
        return SyncResult(endpoint=endpoint.name, changed=True, reloaded=False, held=("frontend changed",))

    async with running(hold_back) as rig:
        await rig.deploy("new", MemoryEndpoint("one"))

        assert (rig.states["one"].held, rig.states["one"].is_in_sync) == (("frontend changed",), False)
