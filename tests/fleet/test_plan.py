"""The fleet plan: its rules, independence of the order of records, and the limit of ages."""

import random
from collections.abc import Collection

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haptic_trio.fleet.model import (
    GroupKey,
    GroupSpec,
    InstanceRecord,
    InstanceState,
    ProviderStatus,
    Reason,
)
from haptic_trio.fleet.plan import Create, Delete, Drain, expiry_of, next_due, plan
from tests.support.histories import HISTORIES

KEY = GroupKey("web")
NOW = 10_000.0


def make_spec(**fields: object) -> GroupSpec:
    return msgspec.convert(
        {"key": {"group": "web"}, "size": 2, "config_hash": "1", "age_jitter": 0.0} | fields, GroupSpec
    )


def instance(number: int, state: str = "ready", **fields: object) -> InstanceRecord:
    found = {
        "id": f"web-{number}",
        "key": {"group": "web"},
        "state": state,
        "created_at": NOW - 100 + number,
        "config_hash": "1",
        "status": "running",
        "ready_at": NOW - 90 if state != "pending" else None,
        "heartbeat_at": NOW,
    }
    return msgspec.convert(found | fields, InstanceRecord)


def starting(number: int, **fields: object) -> InstanceRecord:
    return instance(number, "starting", status="starting", created_at=NOW - 1, ready_at=None, **fields)


def draining(number: int, **fields: object) -> InstanceRecord:
    return instance(
        number,
        "draining",
        **({"drain_started_at": NOW - 1, "drain_deadline": NOW + 10, "drain_reason": "config-drift"} | fields),
    )


def test_missing_instances_are_created() -> None:
    assert plan(make_spec(), [], NOW) == [Create(Reason.SCALE_UP)] * 2
    assert plan(make_spec(), [instance(1), starting(2)], NOW) == []


def test_draining_instances_count_towards_the_cap_only() -> None:
    # A rotation that runs must not cost the one that came for it its place.
    assert plan(make_spec(), [draining(1), instance(2), instance(3)], NOW) == []
    assert plan(make_spec(), [draining(1), draining(2)], NOW) == [Create(Reason.SCALE_UP)] * 2
    full = [draining(number) for number in range(4)]
    assert plan(make_spec(), full, NOW) == [Create(Reason.SCALE_UP)]
    assert plan(make_spec(), [*full, draining(5)], NOW) == []


def test_a_drain_ends_when_acknowledged_gone_or_overdue() -> None:
    others = [instance(2), instance(3)]
    assert plan(make_spec(), [draining(1, drain_acked_at=NOW), *others], NOW) == [Delete("web-1", Reason.DRAINED)]
    assert plan(make_spec(), [draining(1, status="stopped"), *others], NOW) == [Delete("web-1", Reason.DRAINED)]
    assert plan(make_spec(), [draining(1, drain_deadline=NOW), *others], NOW) == [
        Delete("web-1", Reason.DRAIN_DEADLINE)
    ]


@pytest.mark.parametrize("status", ["stopped", "failed", "not_found"])
def test_the_dead_are_removed_and_replaced_in_one_pass(status: str) -> None:
    found = plan(make_spec(), [instance(1, status=status), instance(2)], NOW)
    assert found == [Delete("web-1", Reason.DEAD), Create(Reason.SCALE_UP)]


def test_an_instance_that_does_not_start_is_removed() -> None:
    late = instance(1, "starting", status="starting", created_at=NOW - 60, ready_at=None)
    assert plan(make_spec(), [late, instance(2)], NOW) == [Delete("web-1", Reason.NOT_STARTED), Create(Reason.SCALE_UP)]


def test_an_absent_instance_is_dead_after_too_many_missed_checks() -> None:
    for heartbeat, dead in ((NOW - 29, False), (NOW - 30, True)):
        away = instance(1, status="starting", heartbeat_at=heartbeat)
        assert (Delete("web-1", Reason.DEAD) in plan(make_spec(), [away, instance(2)], NOW)) == dead


def test_an_unknown_status_has_no_consequence() -> None:
    assert plan(make_spec(), [instance(1, status="unknown", heartbeat_at=0.0), instance(2)], NOW) == []


def test_instances_with_a_termination_notice_drain_at_once_until_their_deadline() -> None:
    doomed = instance(1, doomed_at=NOW - 1, doomed_until=NOW + 5)
    assert plan(make_spec(), [doomed, instance(2)], NOW) == [
        Drain("web-1", Reason.TERMINATING, NOW + 5),
        Create(Reason.SCALE_UP),
    ]
    assert plan(make_spec(), [instance(1, doomed_at=NOW), instance(2)], NOW)[0] == Drain(
        "web-1", Reason.TERMINATING, NOW + 300
    )
    assert plan(make_spec(), [starting(1, doomed_at=NOW), instance(2)], NOW)[0] == Delete("web-1", Reason.TERMINATING)


def test_a_rotation_creates_one_instance_and_then_drains_the_oldest() -> None:
    old = [instance(1, config_hash="0"), instance(2, config_hash="0")]
    assert plan(make_spec(), old, NOW) == [Create(Reason.REPLACEMENT, "web-1")]
    assert plan(make_spec(), [*old, starting(3)], NOW) == []
    assert plan(make_spec(), [*old, instance(3)], NOW) == [Drain("web-1", Reason.DRIFT, NOW + 300)]


def test_a_rotation_waits_for_the_drain_of_the_one_before_unless_it_is_urgent() -> None:
    busy = [draining(1), instance(2, config_hash="0"), instance(3)]
    assert plan(make_spec(), busy, NOW) == []
    assert plan(make_spec(forced_age=98.0), busy, NOW) == [Create(Reason.REPLACEMENT, "web-2")]


def test_the_ranks_are_unresponsive_forced_drifted_eligible() -> None:
    spec = make_spec(size=4, surge=1, forced_age=98.0, eligible_age=10.0)
    hung = instance(40, status="unresponsive", heartbeat_at=NOW - 30)
    records = [hung, instance(2), instance(3, config_hash="0"), instance(4), instance(50)]
    order = []
    while records[1:]:
        found = plan(msgspec.structs.replace(spec, size=len(records) - 1), records, NOW)
        (drain,) = [action for action in found if isinstance(action, Drain)]
        order.append((drain.id, drain.reason))
        records = [record for record in records if record.id != drain.id]
    assert order == [
        ("web-40", Reason.UNHEALTHY),
        ("web-2", Reason.FORCED_EXPIRY),
        ("web-3", Reason.DRIFT),
        ("web-4", Reason.ELIGIBLE_EXPIRY),
    ]


def test_a_detached_instance_is_replaced_at_once_and_then_drained() -> None:
    spec = make_spec(size=1)
    detached = instance(5, status="detached")
    assert [action.reason for action in plan(spec, [detached], NOW) if isinstance(action, Create)] == [
        Reason.REPLACEMENT
    ]
    drains = [action for action in plan(spec, [detached, instance(1)], NOW) if isinstance(action, Drain)]
    assert [(action.id, action.reason) for action in drains] == [("web-5", Reason.FILES_LOST)]


def test_urgent_rotations_use_the_whole_surge() -> None:
    records = [instance(number) for number in range(3)]
    assert plan(make_spec(size=3, surge=2, forced_age=50.0), records, NOW) == [
        Create(Reason.REPLACEMENT, "web-0"),
        Create(Reason.REPLACEMENT, "web-1"),
    ]
    drifted = [instance(number, config_hash="0") for number in range(3)]
    assert plan(make_spec(size=3, surge=2), drifted, NOW) == [Create(Reason.REPLACEMENT, "web-0")]


def test_shrinking_drains_ready_instances_and_removes_unready_ones() -> None:
    records = [instance(number) for number in range(4)]
    assert plan(make_spec(size=1), records, NOW) == [
        Drain(f"web-{number}", Reason.SCALE_DOWN, NOW + 300) for number in range(3)
    ]
    mixed = [instance(1), instance(2), starting(3), starting(4)]
    assert plan(make_spec(size=1), mixed, NOW) == [
        Drain("web-1", Reason.SCALE_DOWN, NOW + 300),
        Delete("web-4", Reason.SCALE_DOWN),
        Delete("web-3", Reason.SCALE_DOWN),
    ]


def test_shrinking_drains_outdated_instances_first_instead_of_rotating_them() -> None:
    records = [instance(1), instance(2, config_hash="0"), instance(3)]
    assert plan(make_spec(size=1), records, NOW) == [
        Drain("web-2", Reason.SCALE_DOWN, NOW + 300),
        Drain("web-1", Reason.SCALE_DOWN, NOW + 300),
    ]


def test_a_group_of_size_zero_never_surges() -> None:
    assert plan(make_spec(size=0), [instance(1, config_hash="0")], NOW) == [
        Drain("web-1", Reason.SCALE_DOWN, NOW + 300)
    ]


def test_without_a_drain_timeout_the_deadline_is_now() -> None:
    assert plan(make_spec(size=1, drain_timeout=0.0), [instance(1), instance(2)], NOW) == [
        Drain("web-1", Reason.SCALE_DOWN, NOW)
    ]


def test_jitter_shortens_ages_but_never_extends_them() -> None:
    spec = make_spec(age_jitter=0.5, forced_age=1000.0)
    ages = [expiry_of(spec, instance(number, created_at=0.0), spec.forced_age) for number in range(100)]
    assert all(500 <= age <= 1000 for age in ages)
    assert len({round(age) for age in ages}) > 50


def test_next_due_is_the_time_of_the_next_change() -> None:
    spec = make_spec(forced_age=200.0)
    assert next_due(spec, [], NOW) == float("inf")
    assert next_due(spec, [instance(1)], NOW) == NOW - 99 + 200 + 1
    assert next_due(spec, [instance(1), draining(2)], NOW) == NOW + 10
    assert next_due(spec, [starting(1)], NOW) == NOW - 1 + 60
    assert next_due(make_spec(), [instance(1, status="unresponsive", heartbeat_at=NOW - 1)], NOW) == NOW - 1 + 30


def test_invalid_specifications_are_rejected() -> None:
    for fields in ({"size": -1}, {"surge": 0}, {"missed": 0}, {"health_interval": 0}, {"age_jitter": 2}, {"cap": 2}):
        with pytest.raises((ValueError, msgspec.ValidationError)):
            make_spec(**fields)


def some_records(chance: random.Random) -> list[InstanceRecord]:
    """Return records as they may meet: most of them ready and well."""
    return [
        instance(
            number,
            chance.choice(["ready"] * 5 + [state.value for state in InstanceState]),
            status=chance.choice(["running"] * 8 + [status.value for status in ProviderStatus]),
            config_hash=chance.choice(["1", "0"]),
            created_at=chance.choice([NOW - 1, NOW - 61, NOW - 500]),
            heartbeat_at=chance.choice([NOW, NOW - 40]),
            drain_deadline=chance.choice([NOW - 1, NOW + 9]),
            drain_started_at=NOW - 2,
            drain_acked_at=chance.choice([None, None, NOW - 1]),
            doomed_at=chance.choice([*[None] * 8, NOW - 1]),
            unwanted_at=chance.choice([*[None] * 8, NOW - 1]),
        )
        for number in chance.sample(range(41), chance.randrange(10))
    ]


# Drawn one by one, the records would take most of the time.
@pytest.mark.slow
@settings(max_examples=HISTORIES)
@given(st.integers(0, 1 << 64), st.integers(0, 4), st.integers(1, 2), st.sampled_from([0.0, 300.0]))
def test_the_order_of_records_is_irrelevant_and_limits_hold(seed: int, size: int, surge: int, forced: float) -> None:
    chance = random.Random(seed)
    records = some_records(chance)
    spec = make_spec(size=size, surge=surge, forced_age=forced)
    found = plan(spec, records, NOW)
    shuffled = records.copy()
    chance.shuffle(shuffled)
    assert plan(spec, shuffled, NOW) == found
    named = [action.id for action in found if isinstance(action, Drain | Delete)]
    assert len(named) == len(set(named))
    created = sum(isinstance(action, Create) for action in found)
    deleted = sum(isinstance(action, Delete) for action in found)
    assert not created or len(records) - deleted + created <= spec.limit


def next_step(spec: GroupSpec, records: Collection[InstanceRecord], now: float) -> float:
    """Return the time of the next pass: a second later while instances change, else when `next_due` is reached."""
    if any(record.state is not InstanceState.READY for record in records):
        return now + 1.0
    return max(now + 1.0, min(now + 60.0, next_due(spec, records, now)))


@settings(max_examples=HISTORIES)
@pytest.mark.slow
@given(
    size=st.integers(1, 5),
    surge=st.integers(1, 2),
    start=st.floats(1.0, 20.0),
    drain=st.floats(0.0, 60.0),
    together=st.booleans(),
)
def test_no_instance_grows_older_than_forced_age_plus_its_drain(
    size: int, surge: int, start: float, drain: float, together: bool
) -> None:
    spec = make_spec(
        size=size, surge=surge, forced_age=300.0, age_jitter=0.1, drain_timeout=drain, start_timeout=20.0, cap=50
    )
    records: dict[str, InstanceRecord] = {}
    for number in range(size):
        created = 0.0 if together else -50.0 * number
        records[f"web-{number}"] = instance(number, created_at=created, heartbeat_at=0.0)
    born, now = size, 0.0
    # Those of one age come one after another, as far as the surge does not take them together.
    limit = spec.forced_age + drain + (size if together else 1) * (spec.start_timeout + 2.0)
    while now < 1500.0:
        now = next_step(spec, records.values(), now)
        assert max(now - record.created_at for record in records.values()) <= limit
        for name, record in tuple(records.items()):
            is_up = record.state is InstanceState.STARTING and now - record.created_at >= start
            state = InstanceState.READY if is_up else record.state
            status = ProviderStatus.RUNNING if is_up else record.status
            records[name] = msgspec.structs.replace(record, state=state, status=status, heartbeat_at=now)
        for action in plan(spec, records.values(), now):
            if isinstance(action, Create):
                born += 1
                records[f"web-{born}"] = instance(born, "starting", status="starting", created_at=now)
            elif isinstance(action, Drain):
                records[action.id] = msgspec.structs.replace(
                    records[action.id],
                    state=InstanceState.DRAINING,
                    drain_deadline=action.deadline,
                    drain_reason=action.reason,
                )
            else:
                del records[action.id]
