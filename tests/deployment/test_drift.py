from functools import partial

import pytest
import trio
from trio.testing import MockClock

from haptic_trio.channels import Change, EventBuffer, Latest
from haptic_trio.deployment.drift import run_drift_monitor
from haptic_trio.heartbeat import Heartbeat
from haptic_trio.messages import DeploymentCompleted, DriftSuspected

COMPLETED = DeploymentCompleted(correlation="c", generation="g", results=(), failed=(), seconds=0)


class Rig:
    def __init__(self) -> None:
        self.completed = Latest[DeploymentCompleted]()
        self.changes_in, self.changes = trio.open_memory_channel[Change](100)
        self.heartbeat = Heartbeat("drift monitor", 10)

    async def start(self, nursery: trio.Nursery) -> None:
        await nursery.start(
            partial(
                run_drift_monitor,
                self.completed,
                self.changes_in,
                interval=60,
                events=EventBuffer(),
                heartbeat=self.heartbeat,
            )
        )


@pytest.fixture
def rig() -> Rig:
    return Rig()


async def test_drift_is_suspected_after_each_quiet_interval(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    await rig.start(nursery)

    times = []
    for _ in range(3):
        assert isinstance(await rig.changes.receive(), DriftSuspected)
        times.append(trio.current_time())

    assert times == [60, 120, 180]


async def test_completed_deployment_resets_the_timer(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    await rig.start(nursery)

    for _ in range(5):
        await trio.sleep(50)
        rig.completed.put(COMPLETED)
    await rig.changes.receive()

    assert trio.current_time() == 310


async def test_deployment_of_before_does_not_count(autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery) -> None:
    rig.completed.put(COMPLETED)
    await trio.sleep(30)
    await rig.start(nursery)

    await rig.changes.receive()

    assert trio.current_time() == 90


async def test_monitor_is_healthy_while_its_timer_fires(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    await rig.start(nursery)

    await trio.sleep(65)

    assert not rig.heartbeat.state().stalled


async def test_monitor_whose_timer_stopped_firing_is_stalled(autojump_clock: MockClock, rig: Rig) -> None:
    async with trio.open_nursery() as nursery:
        await rig.start(nursery)
        nursery.cancel_scope.cancel()

    await trio.sleep(69)
    assert not rig.heartbeat.state().stalled
    await trio.sleep(2)
    assert rig.heartbeat.state().stalled


async def test_monitor_ends_when_its_receiver_is_closed(autojump_clock: MockClock, rig: Rig) -> None:
    async with trio.open_nursery() as nursery:
        await rig.start(nursery)
        rig.changes.close()

    assert trio.current_time() == 60
