"""Orphans: objects of the provider without a record."""

from haptic_trio.fleet.groups import UNKNOWN_GROUP, GroupStates
from haptic_trio.fleet.model import GroupKey, InstanceRecord, InstanceState, ProviderInstance, ProviderStatus

WEB = GroupKey("web")


def thing(
    name: str, *, key: GroupKey | None = WEB, status: ProviderStatus = ProviderStatus.RUNNING
) -> ProviderInstance:
    return ProviderInstance(id=name, provider_id=f"thing-{name}", key=key, status=status, created_at=5.0)


def states_of(found: list[InstanceRecord]) -> dict[str, InstanceState]:
    return {record.id: record.state for record in found}


def test_an_instance_with_a_record_is_not_an_orphan() -> None:
    states = GroupStates(grace=60)
    state = states.state_of(WEB)
    state.track(InstanceRecord(id="a", key=WEB, state=InstanceState.READY, created_at=1.0), 10.0)
    state.track(InstanceRecord(id="b", key=WEB, state=InstanceState.READY, created_at=1.0, provider_id="thing-x"), 10.0)
    assert states.compare([thing("a"), thing("x")], [WEB], 10.0) == []


def test_a_healthy_orphan_of_a_desired_group_is_adopted() -> None:
    (record,) = GroupStates(grace=60).compare([thing("a")], [WEB], 10.0)
    assert (record.id, record.state, record.created_at) == ("a", InstanceState.STARTING, 5.0)


def test_an_orphan_that_serves_without_files_is_adopted() -> None:
    (record,) = GroupStates(grace=60).compare([thing("a", status=ProviderStatus.DETACHED)], [WEB], 10.0)
    assert (record.id, record.state) == ("a", InstanceState.STARTING)


def test_other_orphans_are_removed_after_an_uninterrupted_grace_period() -> None:
    states = GroupStates(grace=60)
    orphans = [thing("a", key=None), thing("b", key=GroupKey("gone")), thing("c", status=ProviderStatus.STOPPED)]
    assert states.compare(orphans, [WEB], 0.0) == []
    assert states.compare(orphans[:2], [WEB], 59.0) == []
    found = states.compare(orphans, [WEB], 60.0)
    assert states_of(found) == {"a": InstanceState.DELETING, "b": InstanceState.DELETING}
    assert {record.key for record in found} == {UNKNOWN_GROUP, GroupKey("gone")}
    assert "c" not in states_of(states.compare(orphans, [WEB], 119.0))
    assert "c" in states_of(states.compare(orphans, [WEB], 120.0))


def test_one_listing_never_removes_an_orphan() -> None:
    assert GroupStates(grace=0).compare([thing("a", key=None)], [WEB], 10.0) == []


def test_empty_groups_are_forgotten() -> None:
    states = GroupStates(grace=60)
    states.state_of(WEB).notice_of("a")
    states.drop_empty(WEB)
    assert [state.key for state in states] == [WEB]
    states.state_of(WEB).notices.clear()
    states.drop_empty(WEB)
    assert list(states) == []
