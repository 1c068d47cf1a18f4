"""What the provider has and nobody has a record of."""

from haptic_trio.fleet.groups import UNKNOWN_GROUP, Roster
from haptic_trio.fleet.model import GroupKey, InstanceRecord, InstanceState, ProviderInstance, ProviderStatus

WEB = GroupKey("web")


def thing(
    name: str, *, key: GroupKey | None = WEB, status: ProviderStatus = ProviderStatus.RUNNING
) -> ProviderInstance:
    return ProviderInstance(id=name, provider_id=f"thing-{name}", key=key, status=status, created_at=5.0)


def states_of(found: list[InstanceRecord]) -> dict[str, InstanceState]:
    return {record.id: record.state for record in found}


def test_what_has_a_record_is_no_orphan() -> None:
    roster = Roster(grace=60)
    state = roster.state_of(WEB)
    state.keep(InstanceRecord(id="a", key=WEB, state=InstanceState.READY, created_at=1.0), 10.0)
    state.keep(InstanceRecord(id="b", key=WEB, state=InstanceState.READY, created_at=1.0, provider_id="thing-x"), 10.0)
    assert roster.compare([thing("a"), thing("x")], [WEB], 10.0) == []


def test_one_that_is_well_and_wanted_is_kept() -> None:
    (record,) = Roster(grace=60).compare([thing("a")], [WEB], 10.0)
    assert (record.id, record.state, record.created_at) == ("a", InstanceState.STARTING, 5.0)


def test_others_are_removed_when_they_were_seen_for_long_enough_without_a_gap() -> None:
    roster = Roster(grace=60)
    orphans = [thing("a", key=None), thing("b", key=GroupKey("gone")), thing("c", status=ProviderStatus.STOPPED)]
    assert roster.compare(orphans, [WEB], 0.0) == []
    assert roster.compare(orphans[:2], [WEB], 59.0) == []
    found = roster.compare(orphans, [WEB], 60.0)
    assert states_of(found) == {"a": InstanceState.DELETING, "b": InstanceState.DELETING}
    assert {record.key for record in found} == {UNKNOWN_GROUP, GroupKey("gone")}
    assert "c" not in states_of(roster.compare(orphans, [WEB], 119.0))
    assert "c" in states_of(roster.compare(orphans, [WEB], 120.0))


def test_one_listing_is_never_enough_to_remove_anything() -> None:
    assert Roster(grace=0).compare([thing("a", key=None)], [WEB], 10.0) == []


def test_empty_groups_are_forgotten() -> None:
    roster = Roster(grace=60)
    roster.state_of(WEB).note_fact("a")
    roster.drop_empty(WEB)
    assert [state.key for state in roster] == [WEB]
    roster.state_of(WEB).facts.clear()
    roster.drop_empty(WEB)
    assert list(roster) == []
