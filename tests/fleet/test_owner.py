"""The owner of a group over terms of leadership, on virtual time."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import trio
from trio.testing import MockClock

from haptic_trio.channels import EventBuffer, Latest
from haptic_trio.config.model import Duration, InstancesConfig
from haptic_trio.fleet.desired_state import DesiredGroup
from haptic_trio.fleet.model import EventType, GroupKey, InstanceState, ReconcileEvent
from haptic_trio.fleet.owner import FixedSizeError, FleetOwner, NotLeadingError
from haptic_trio.messages import (
    ConfigValidated,
    FleetChanged,
    InstanceDraining,
    InstanceOperationFailed,
    LeadershipChanged,
)
from tests.fleet.rig.fake_provider import FakeProvider, clock
from tests.fleet.rig.memory_store import MemoryStore
from tests.support.messages import drain, example_of

WEB = GroupKey("web")


class Owned:
    """An owner, and all its inputs."""

    def __init__(self, size_override_path: Path | None = None) -> None:
        self.provider = FakeProvider()
        self.leadership: Latest[LeadershipChanged] = Latest()
        self.config: Latest[InstancesConfig] = Latest()
        self.basis: Latest[str] = Latest()
        self.newest: Latest[ConfigValidated] = Latest()
        self.events = EventBuffer(1000)
        self.owner = FleetOwner(
            self.provider,
            MemoryStore(),
            DesiredGroup(key=WEB, default_size=2),
            leadership=self.leadership,
            config=self.config,
            basis=self.basis,
            newest=self.newest,
            events=self.events,
            size_override_path=size_override_path,
            clock=clock,
        )

    def lead(self, is_leader: bool) -> None:
        self.leadership.put(LeadershipChanged(is_leader=is_leader, identity="me", transitions=1))

    def begin(self) -> None:
        """Provide all inputs."""
        self.basis.put("1")
        self.config.put(InstancesConfig(drain_timeout=Duration(1)))
        self.newest.put(example_of(ConfigValidated))
        self.lead(True)

    @property
    def ready(self) -> list[str]:
        records = [record for group in self.owner.snapshot().groups for record in group.records]
        return [record.id for record in records if record.state is InstanceState.READY]


async def test_instances_are_created_once_the_desired_state_is_complete(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    owned = Owned()
    nursery.start_soon(owned.owner.run)
    steps: tuple[Callable[[], None], ...] = (
        lambda: owned.lead(True),
        lambda: owned.basis.put("1"),
        lambda: owned.config.put(InstancesConfig()),
    )
    for put in steps:
        await trio.sleep(100)
        assert not owned.provider.things
        put()
    await trio.sleep(10)
    assert len(owned.ready) == 2
    nursery.cancel_scope.cancel()


async def test_without_leadership_nothing_changes_and_the_next_term_takes_over(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    owned = Owned()
    nursery.start_soon(owned.owner.run)
    owned.begin()
    await trio.sleep(10)
    before = owned.ready
    owned.lead(False)
    await trio.sleep(10)
    assert not owned.owner.is_leading
    assert owned.owner.present is not None
    owned.provider.things.pop(before[0])
    owned.config.put(InstancesConfig(size=3))
    for question in (owned.owner.snapshot, owned.owner.describe):
        with pytest.raises(NotLeadingError):
            question()
    await trio.sleep(100)
    assert list(owned.provider.things) == before[1:]
    owned.lead(True)
    await trio.sleep(30)
    assert len(owned.ready) == 3
    assert before[1] in owned.ready
    nursery.cancel_scope.cancel()


async def test_changes_and_drains_of_instances_are_reported(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    owned = Owned()
    nursery.start_soon(owned.owner.run)
    owned.begin()
    await trio.sleep(10)
    changes = [event for event in drain(owned.events) if isinstance(event, FleetChanged)]
    assert changes[-1].group == "web"
    assert changes[-1].size == changes[-1].states["ready"] == 2
    first = owned.ready[0]
    assert owned.owner.ask(ReconcileEvent(type=EventType.ROTATION_REQUESTED, group="web", instance_id=first))
    assert owned.owner.describe().groups[0].instances[0].id == first
    await trio.sleep(30)
    assert first not in owned.ready
    reported = drain(owned.events)
    assert [event.reason for event in reported if isinstance(event, InstanceDraining)] == ["requested"]
    assert not owned.owner.ask(ReconcileEvent(type=EventType.CHECK_INSTANCE, group="web", instance_id="unknown"))
    nursery.cancel_scope.cancel()


async def test_error_that_stays_the_same_is_repeated(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    owned = Owned()
    owned.provider.script["create"] = [OSError("port is taken"), OSError("port is taken"), OSError("disk is full")]
    nursery.start_soon(owned.owner.run)
    owned.begin()
    await trio.sleep(60)

    failed = [event for event in drain(owned.events) if isinstance(event, InstanceOperationFailed)]

    assert len({event.instance for event in failed}) == 3
    assert [(event.error, event.is_repeated) for event in failed] == [
        ("port is taken", False),
        ("port is taken", True),
        ("disk is full", False),
    ]
    nursery.cancel_scope.cancel()


async def test_notices_are_forwarded_and_dropped_without_leadership(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    owned = Owned()
    notice = ReconcileEvent(type=EventType.TERMINATION_NOTICE, group="web", instance_id="")
    owned.owner.notice(notice)
    nursery.start_soon(owned.owner.run)
    owned.begin()
    await trio.sleep(10)
    first = owned.ready[0]
    owned.owner.notice(msgspec.structs.replace(notice, instance_id=first))
    await trio.sleep(10)
    assert first not in owned.ready
    assert len(owned.ready) == 2
    nursery.cancel_scope.cancel()


async def test_size_override_holds_until_the_configured_size_changes(nursery: trio.Nursery, tmp_path: Path) -> None:
    owned = Owned(tmp_path / "size.json")
    nursery.start_soon(owned.owner.run)
    with pytest.raises(NotLeadingError):
        await owned.owner.resize(1)
    owned.begin()
    with trio.fail_after(10):
        while not owned.owner.is_leading:  # noqa: ASYNC110 - there is nothing else to wait on
            await trio.sleep(0.01)
    await owned.owner.resize(5)
    assert owned.owner.desired.size == 5
    owned.config.put(InstancesConfig(size=3))
    await trio.testing.wait_all_tasks_blocked()
    assert owned.owner.desired.size == 3
    await owned.owner.resize(4)
    await owned.owner.resize(None)
    assert owned.owner.desired.size == 3
    assert not (tmp_path / "size.json").exists()
    nursery.cancel_scope.cancel()


async def test_size_of_pods_cannot_be_overridden(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    owned = Owned()
    nursery.start_soon(owned.owner.run)
    owned.begin()
    await trio.sleep(1)
    with pytest.raises(FixedSizeError, match=r"edit `instances\.size`"):
        await owned.owner.resize(1)
    nursery.cancel_scope.cancel()


async def test_creations_keep_the_configured_interval(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    owned = Owned()
    nursery.start_soon(owned.owner.run)
    owned.begin()
    owned.config.put(InstancesConfig(size=3, create_interval=Duration(20)))
    await trio.sleep(100)
    first, second, third = owned.provider.times_of("create")
    assert second - first >= 20
    assert third - second >= 20
    nursery.cancel_scope.cancel()
