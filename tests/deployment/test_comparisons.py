"""Deployments that need a comparison wait for it, and no others do; the event loop never makes it."""

import pytest
import trio
from trio.testing import MockClock

from haptic_trio.channels import EventBuffer, Latest
from haptic_trio.deployment.schedule import Schedule
from haptic_trio.deployment.scheduler import run_scheduler
from haptic_trio.haproxy.model import Generation
from haptic_trio.heartbeat import Heartbeat
from haptic_trio.messages import (
    ConfigPrepared,
    ConfigValidated,
    DeploymentCompleted,
    DeploymentScheduled,
    DeploymentState,
    EndpointsDiscovered,
    Phases,
    Reason,
    ValidationFailed,
)
from tests.support.components.endpoints import MemoryEndpoint, generation

SECONDS = 10.0
"""Duration of a comparison."""
INTERVAL = 1.0


class Rig:
    """A running scheduler with fast lane, in which comparisons take SECONDS."""

    def __init__(self) -> None:
        self.prepared = Latest[ConfigPrepared]()
        self.validated = Latest[ConfigValidated]()
        self.endpoints = Latest[EndpointsDiscovered]()
        self.completed = Latest[DeploymentCompleted]()
        self.deployments_in, self.deployments = trio.open_memory_channel[DeploymentScheduled](0)
        self.compared: list[tuple[float, str]] = []
        self.cancelled = 0
        self.one = MemoryEndpoint("one")
        self.names: list[str] = []
        """Endpoints of the last deployment."""
        self.endpoints.put(EndpointsDiscovered(endpoints=(self.one,)))

    async def add_data(self, valid: Generation, prepared: Generation) -> Generation:
        self.compared.append((trio.current_time(), prepared.text.strip("# \n")))
        try:
            await trio.sleep(SECONDS)
        except trio.Cancelled:
            self.cancelled += 1
            raise
        return prepared

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        await run_scheduler(
            self.prepared,
            self.validated,
            Latest[ValidationFailed](),
            self.endpoints,
            self.completed,
            self.deployments_in,
            schedule=Schedule(INTERVAL),
            add_data=self.add_data,
            events=EventBuffer(),
            heartbeat=Heartbeat("scheduler", 100),
            task_status=task_status,
        )

    def validate(self, name: str) -> None:
        self.validated.put(
            ConfigValidated(
                correlation=name,
                reason=Reason.CHANGED,
                generation=generation(name),
                phases=Phases(),
                started=trio.current_time(),
            )
        )

    def prepare(self, name: str) -> None:
        self.prepared.put(
            ConfigPrepared(
                correlation=name,
                reason=Reason.CHANGED,
                generation=generation(name),
                phases=Phases(),
                started=trio.current_time(),
            )
        )

    async def next(self, *, held: bool = False) -> tuple[str, bool, float]:
        """Receive the next deployment and complete it; the endpoint holds back a part of it if *held*."""
        with trio.fail_after(1000):
            one = await self.deployments.receive()
        self.names = [endpoint.name for endpoint in one.endpoints]
        self.completed.put(
            DeploymentCompleted(
                correlation=one.correlation,
                generation=one.generation.id,
                results=(),
                failed=(),
                seconds=0,
                state=DeploymentState(held=("one",) if held else (), begun=one.scheduled),
            )
        )
        return one.generation.text.strip("# \n"), one.may_reload, trio.current_time()


@pytest.fixture
async def rig(autojump_clock: MockClock, nursery: trio.Nursery) -> Rig:
    rig = Rig()
    await nursery.start(rig.run)
    rig.validate("v1")
    assert await rig.next() == ("v1", True, 0)
    return rig


async def hold_back(rig: Rig) -> None:
    """Have the endpoint hold back a part of `p1`, and the next deployment wait for a comparison."""
    await trio.sleep(INTERVAL)
    rig.prepare("p1")
    assert await rig.next(held=True) == ("p1", False, 1)


async def test_data_passes_while_a_reload_waits_for_a_comparison(autojump_clock: MockClock, rig: Rig) -> None:
    await hold_back(rig)
    await trio.sleep(5)
    rig.prepare("p2")

    assert await rig.next(held=True) == ("p2", False, 6)
    assert rig.compared == [(1, "p1")]


async def test_second_comparison_is_not_overtaken_by_newer_data(autojump_clock: MockClock, rig: Rig) -> None:
    await hold_back(rig)
    await trio.sleep(5)
    rig.prepare("p2")
    await rig.next(held=True)
    await trio.sleep(6)
    rig.prepare("p3")

    assert await rig.next() == ("p2", True, 21)
    assert await rig.next() == ("p3", False, 21)
    assert rig.compared == [(1, "p1"), (11, "p2")]


async def test_new_endpoint_waits_for_the_comparison_and_the_others_do_not(autojump_clock: MockClock, rig: Rig) -> None:
    rig.prepare("p1")
    assert await rig.next() == ("p1", False, 0)
    rig.endpoints.put(EndpointsDiscovered(endpoints=(rig.one, MemoryEndpoint("two"))))
    await trio.sleep(1)
    rig.prepare("p2")

    assert (await rig.next(), rig.names) == (("p2", False, 1), ["one"])
    assert (await rig.next(), rig.names) == (("p2", True, 2 * SECONDS), ["two"])
    assert rig.compared == [(0, "p1"), (SECONDS, "p2")]


async def test_comparison_ends_with_the_scheduler(autojump_clock: MockClock) -> None:
    rig = Rig()
    async with trio.open_nursery() as nursery:
        await nursery.start(rig.run)
        rig.validate("v1")
        await rig.next()
        await hold_back(rig)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()

    assert rig.cancelled == 1
    with pytest.raises(trio.ClosedResourceError):
        rig.deployments_in.send_nowait(None)  # type: ignore[arg-type]
