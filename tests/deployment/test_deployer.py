from functools import partial

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from haptic_trio.channels import CycleEvent, EventBuffer, Latest
from haptic_trio.dataplane.endpoint import Endpoint, PortsUnavailableError, SyncResult
from haptic_trio.dataplane.sync import WaitNewer
from haptic_trio.deployment.deployer import SyncEndpoint, run_deployer
from haptic_trio.haproxy.model import Generation
from haptic_trio.heartbeat import Heartbeat
from haptic_trio.messages import (
    DeploymentCompleted,
    DeploymentReason,
    DeploymentScheduled,
    DeploymentStarted,
    DriftRepaired,
    EndpointsDiscovered,
    InstanceDeployed,
    InstanceFailed,
)
from tests.support.components.endpoints import MemoryEndpoint, generation, sync_in_memory


class Rig:
    """A running deployer with the test at all its ends."""

    def __init__(self) -> None:
        self.deployments, self._deployments_out = trio.open_memory_channel[DeploymentScheduled](0)
        self._cycles_in, self.completions = trio.open_memory_channel[CycleEvent](50)
        self.endpoints = Latest[EndpointsDiscovered]()
        self.unbound: list[PortsUnavailableError] = []
        self.completed = Latest[DeploymentCompleted]()
        self.events = EventBuffer()
        self.heartbeat = Heartbeat("deployer", 100)

    async def start(
        self,
        nursery: trio.Nursery,
        *,
        max_parallel: int = 0,
        drain_timeout: float = 5,
        sync: SyncEndpoint = sync_in_memory,
    ) -> None:
        await nursery.start(
            partial(
                run_deployer,
                self._deployments_out,
                self._cycles_in,
                self.completed,
                self.endpoints,
                sync=sync,
                deployment_timeout=30,
                drain_timeout=drain_timeout,
                max_parallel=max_parallel,
                verify_interval=60,
                report_ports=self.unbound.append,
                events=self.events,
                heartbeat=self.heartbeat,
            )
        )

    async def deploy(self, name: str, *endpoints: MemoryEndpoint) -> None:
        """Hand over a deployment to *endpoints*, who are all there are."""
        self.endpoints.put(EndpointsDiscovered(endpoints=endpoints))
        await self.deployments.send(
            DeploymentScheduled(
                correlation=name,
                generation=generation(name),
                endpoints=endpoints,
                why=DeploymentReason.VALIDATED,
                started=1.5,
            )
        )

    async def next(self) -> DeploymentCompleted:
        """Return the next completed deployment."""
        with trio.fail_after(1000):
            message = await self.completions.receive()
        assert isinstance(message, DeploymentCompleted)
        return message

    def recorded(self) -> list[msgspec.Struct]:
        events: list[msgspec.Struct] = []
        while True:
            try:
                events.append(self.events.receiver.receive_nowait())
            except trio.WouldBlock:
                return events


@pytest.fixture
def rig() -> Rig:
    return Rig()


async def test_all_endpoints_are_deployed_to_in_parallel_and_completed_once(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    endpoints = [MemoryEndpoint(f"e{number}", seconds=number) for number in (1, 2, 3)]
    await rig.start(nursery)

    await rig.deploy("new", *endpoints)
    completion = await rig.next()

    assert trio.current_time() == 3
    assert [result.endpoint for result in completion.results] == ["e1", "e2", "e3"]
    assert (completion.failed, completion.seconds, completion.started) == ((), 3, 1.5)
    assert rig.completed.value == completion
    assert [type(event) for event in rig.recorded()] == [
        DeploymentStarted, InstanceDeployed, InstanceDeployed, InstanceDeployed, DeploymentCompleted,
    ]  # fmt: skip


async def test_failing_and_hanging_endpoints_do_not_disturb_the_others(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    good, failing = MemoryEndpoint("good", seconds=1), MemoryEndpoint("failing", fails=1)
    hanging = MemoryEndpoint("hanging", seconds=1000)
    await rig.start(nursery)

    await rig.deploy("new", good, failing, hanging)
    completion = await rig.next()

    assert trio.current_time() == 30
    assert completion.failed == ("failing", "hanging")
    assert good.running is not None
    errors = {event.endpoint: event.error for event in rig.recorded() if isinstance(event, InstanceFailed)}
    assert errors == {
        "failing": "failing: told to fail",
        "hanging": "hanging: deployment took longer than 30 s",
    }


async def test_max_parallel_bounds_how_many_run_at_once(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    endpoints = [MemoryEndpoint(f"e{number}", seconds=1) for number in range(6)]
    await rig.start(nursery, max_parallel=2)

    await rig.deploy("new", *endpoints)
    await rig.next()

    assert trio.current_time() == 3


async def test_endpoint_that_has_the_generation_is_left_alone(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    endpoint = MemoryEndpoint("e", running=generation("new"))
    await rig.start(nursery)

    await rig.deploy("new", endpoint)
    completion = await rig.next()

    assert [result.changed for result in completion.results] == [False]
    assert endpoint.taken == []


async def test_deployer_is_busy_only_while_it_deploys(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    await rig.start(nursery)
    await trio.sleep(500)
    assert not rig.heartbeat.state().stalled

    await rig.deploy("new", MemoryEndpoint("e", seconds=20))
    await trio.sleep(10)
    assert rig.heartbeat.state().busy_for == 10

    await rig.next()
    await wait_all_tasks_blocked()
    assert rig.heartbeat.state().busy_for == 0


async def test_deployment_in_flight_may_finish_when_cancelled(autojump_clock: MockClock, rig: Rig) -> None:
    endpoint = MemoryEndpoint("e", seconds=4)
    async with trio.open_nursery() as nursery:
        await rig.start(nursery, drain_timeout=5)
        await rig.deploy("new", endpoint)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()

    assert trio.current_time() == 4
    assert endpoint.running is not None


async def test_deployment_in_flight_is_cut_off_after_the_drain_timeout(autojump_clock: MockClock, rig: Rig) -> None:
    endpoint = MemoryEndpoint("e", seconds=20)
    async with trio.open_nursery() as nursery:
        await rig.start(nursery, drain_timeout=5)
        await rig.deploy("new", endpoint)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()

    assert trio.current_time() == 6
    assert endpoint.running is None


async def test_deployer_ends_with_its_input(autojump_clock: MockClock, rig: Rig) -> None:
    async with trio.open_nursery() as nursery:
        await rig.start(nursery)
        rig.deployments.close()

    with pytest.raises(trio.EndOfChannel):
        rig.completions.receive_nowait()


async def test_changes_while_busy_collapse_into_one_deployment_of_the_newest(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    endpoint = MemoryEndpoint("e", seconds=10)
    await rig.start(nursery)

    for number in range(11):
        await rig.deploy(f"v{number}", endpoint)
        await wait_all_tasks_blocked()
    outcomes = {}
    for _ in range(11):
        completion = await rig.next()
        outcomes[completion.correlation] = completion

    assert endpoint.taken == [generation("v0").id, generation("v10").id]
    assert trio.current_time() == 20
    superseded = [name for name, completion in outcomes.items() if completion.superseded == ("e",)]
    assert superseded == [f"v{number}" for number in range(1, 10)]


async def test_hanging_endpoint_does_not_delay_others_and_then_gets_only_the_newest(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    good, hanging = MemoryEndpoint("good", seconds=0.1), MemoryEndpoint("hanging", seconds=1000)
    await rig.start(nursery)

    for number in range(5):
        await rig.deploy(f"v{number}", good, hanging)
        await trio.sleep(1)
        assert good.running == generation(f"v{number}")
    hanging.seconds = 0
    await trio.sleep(30)

    assert len(good.taken) == 5
    assert hanging.taken == [generation("v4").id]


async def test_dead_endpoint_is_tried_again_later_each_time_until_it_answers(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    endpoint = MemoryEndpoint("e", fails=4)
    await rig.start(nursery)

    await rig.deploy("new", endpoint)
    # Retries after 1, 2, 4 and 8 seconds.
    await trio.sleep(14.9)
    assert endpoint.taken == []
    await trio.sleep(0.2)
    assert endpoint.taken == [generation("new").id]
    assert (await rig.next()).failed == ("e",)
    assert rig.completions.statistics().current_buffer_used == 0


async def test_newer_configuration_does_not_wait_for_the_backoff(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    endpoint = MemoryEndpoint("e", fails=5)
    await rig.start(nursery)
    await rig.deploy("old", endpoint)
    await trio.sleep(20)

    await rig.deploy("new", endpoint)
    await wait_all_tasks_blocked()

    assert endpoint.running == generation("new")
    assert trio.current_time() == 20


async def test_success_forgets_the_failures_before_it(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    endpoint = MemoryEndpoint("e", fails=4)
    await rig.start(nursery)
    await rig.deploy("a", endpoint)
    await trio.sleep(100)
    assert endpoint.running == generation("a")

    endpoint.fails = 1
    await rig.deploy("b", endpoint)
    await trio.sleep(1.5)

    assert endpoint.running == generation("b")


async def test_lost_endpoint_is_not_retried(autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery) -> None:
    endpoint = MemoryEndpoint("e", fails=1)
    await rig.start(nursery)
    await rig.deploy("new", endpoint)
    await rig.next()

    rig.endpoints.put(EndpointsDiscovered(endpoints=()))
    await trio.sleep(100)

    assert (endpoint.fails, endpoint.running) == (0, None)


async def test_endpoint_is_verified_when_it_is_new_and_then_at_intervals(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    await rig.start(nursery)
    endpoint = MemoryEndpoint("a")

    for number in range(8):
        await rig.deploy(f"d{number}", endpoint)
        await rig.next()
        await trio.sleep(20)

    assert endpoint.looked_at == [0, 60, 120]
    # One that came back under its name is another one.
    other = MemoryEndpoint("a")
    await rig.deploy("other", other)
    await rig.next()
    assert len(other.looked_at) == 1


async def test_verification_of_a_failed_deployment_does_not_count(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    await rig.start(nursery)
    endpoint = MemoryEndpoint("a", fails=1)

    await rig.deploy("d", endpoint)
    await rig.next()
    await trio.sleep(10)

    assert len(endpoint.looked_at) == 2


async def test_drift_that_a_verification_finds_is_reported(rig: Rig, nursery: trio.Nursery) -> None:
    await rig.start(nursery)

    await rig.deploy("d", MemoryEndpoint("a", drift={"server": 2}))
    await rig.next()

    [reported] = [event for event in rig.recorded() if isinstance(event, DriftRepaired)]
    assert (reported.correlation, reported.endpoint, reported.found) == ("d", "a", {"server": 2})


async def test_deployment_in_progress_learns_of_newer_generations(rig: Rig, nursery: trio.Nursery) -> None:
    deployed: list[str] = []
    newer: list[Generation] = []

    async def sync(endpoint: Endpoint, desired: Generation, *, wait_newer: WaitNewer, **_options: object) -> SyncResult:
        while not deployed and len(newer) < 2:
            newer.append(await wait_newer(newer[-1] if newer else desired))
        deployed.append(desired.text.strip("# \n"))
        return SyncResult(endpoint=endpoint.name, changed=True, reloaded=False)

    await rig.start(nursery, sync=sync)
    endpoint = MemoryEndpoint("e1")
    await rig.deploy("one", endpoint)
    await wait_all_tasks_blocked()
    for name in ("two", "three"):
        await rig.deploy(name, endpoint)
        await wait_all_tasks_blocked()

    assert newer == [generation("two"), generation("three")]
    # The deployment in progress does not count for the newer ones: the newest follows it.
    assert deployed == ["one", "three"]


async def test_partial_deployment_is_continued_at_once_with_the_newest_generation(
    rig: Rig, nursery: trio.Nursery
) -> None:
    deployed: list[str] = []
    may_end = trio.Event()

    async def sync(endpoint: Endpoint, desired: Generation, *, wait_newer: WaitNewer, **_options: object) -> SyncResult:
        deployed.append(desired.text.strip("# \n"))
        if len(deployed) == 2:
            await may_end.wait()
        return SyncResult(endpoint=endpoint.name, changed=True, reloaded=False, is_partial=len(deployed) < 4)

    await rig.start(nursery, sync=sync)
    endpoint = MemoryEndpoint("e1")
    await rig.deploy("one", endpoint)
    await wait_all_tasks_blocked()
    await rig.deploy("two", endpoint)
    may_end.set()
    first, second = await rig.next(), await rig.next()

    assert deployed == ["one", "one", "two", "two"]
    assert (first.correlation, first.superseded, first.results) == ("one", ("e1",), ())
    assert (second.correlation, second.superseded, len(second.results)) == ("two", (), 1)
