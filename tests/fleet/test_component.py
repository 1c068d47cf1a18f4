"""The fleet as a component: ready, at work, at the end of its input, and cancelled."""

from functools import partial

import msgspec
import trio
from trio.testing import MockClock

from haptic_trio.channels import Latest
from haptic_trio.fleet.component import DesiredGroups, run_fleet
from haptic_trio.fleet.model import EventType, GroupKey, InstanceState, Reason, ReconcileEvent
from haptic_trio.fleet.reconciler import FleetSnapshot
from tests.fleet.rig.fake_provider import SPEC, WEB, FakeFleet


async def start(
    nursery: trio.Nursery, fleet: FakeFleet
) -> tuple[Latest[DesiredGroups], trio.MemorySendChannel[ReconcileEvent], Latest[FleetSnapshot]]:
    assert fleet.specs is not None
    desired: Latest[DesiredGroups] = Latest()
    desired.put(dict(fleet.specs))
    snapshots: Latest[FleetSnapshot] = Latest()
    events_in, events_out = trio.open_memory_channel[ReconcileEvent](10)
    await nursery.start(partial(run_fleet, fleet.make_reconciler(), desired, events_out, snapshots))
    return desired, events_in, snapshots


async def test_desired_state_and_events_are_followed_and_snapshots_published(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    fleet = FakeFleet()
    desired, events, snapshots = await start(nursery, fleet)
    first, _ = await fleet.wait_settled()
    assert fleet.specs is not None
    fleet.specs[WEB] = msgspec.structs.replace(SPEC, size=3)
    desired.put(dict(fleet.specs))
    await fleet.wait_settled(within=5.0)
    await events.send(ReconcileEvent(type=EventType.TERMINATION_NOTICE, instance_id=first))
    await fleet.wait(lambda: fleet.drains == [(first, Reason.TERMINATING)], within=2.0)
    await trio.sleep(2.0)
    assert snapshots.value is not None
    (group,) = snapshots.value.groups
    assert [record.id for record in group.records if record.state is InstanceState.DRAINING] == [first]
    events.close()


async def test_instances_of_a_removed_group_are_removed(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    fleet = FakeFleet(specs={WEB: SPEC, GroupKey("api"): msgspec.structs.replace(SPEC, key=GroupKey("api"), size=1)})
    desired, events, _ = await start(nursery, fleet)
    await fleet.wait_settled()
    assert fleet.specs is not None
    del fleet.specs[GroupKey("api")]
    desired.put(dict(fleet.specs))
    await fleet.wait_settled(within=60.0)
    events.close()


async def test_run_fleet_ends_when_its_events_end(autojump_clock: MockClock) -> None:
    fleet = FakeFleet()
    with trio.fail_after(100):
        async with trio.open_nursery() as nursery:
            _, events, _ = await start(nursery, fleet)
            await fleet.wait_settled()
            events.close()
    assert len(fleet.provider.things) == SPEC.size


async def test_cancellation_ends_at_once_and_keeps_the_instances(autojump_clock: MockClock) -> None:
    fleet = FakeFleet()
    async with trio.open_nursery() as nursery:
        await start(nursery, fleet)
        await fleet.wait_settled()
        began = trio.current_time()
        nursery.cancel_scope.cancel()
    assert trio.current_time() == began
    assert len(fleet.provider.things) == SPEC.size
