"""The reconciler on virtual time: events, limits, leadership, and the takeover by the next term."""

from itertools import pairwise

import msgspec
import pytest
import structlog.testing
import trio
from trio.testing import MockClock

from haptic_trio.fleet.model import (
    EventType,
    GroupKey,
    InstanceState,
    ProviderStatus,
    Reason,
    RetryableError,
)
from haptic_trio.workqueue.outcome import PermanentError
from tests.fleet.rig.fake_provider import SPEC, WEB, FakeFleet, clock


async def test_a_group_reaches_its_size_and_then_stays_unchanged(autojump_clock: MockClock) -> None:
    fleet = FakeFleet()
    async with fleet.term():
        await fleet.wait_settled()
        calls = len(fleet.provider.calls)
        await trio.sleep(3600)
        assert len(fleet.provider.calls) == calls
        assert not fleet.errors


async def test_a_changed_group_is_reconciled_at_once(autojump_clock: MockClock) -> None:
    fleet = FakeFleet()
    async with fleet.term():
        await fleet.wait_settled()
        fleet.change(size=4)
        await fleet.wait_settled(within=5.0)


async def test_a_rotation_replaces_all_instances_and_never_falls_below_the_size(autojump_clock: MockClock) -> None:
    fleet = FakeFleet()
    async with fleet.term():
        former = await fleet.wait_settled()
        fleet.change(config_hash="2")
        with trio.fail_after(200):
            while not fleet.is_settled:
                assert len(fleet.ready) >= SPEC.size
                fleet.provider.finished.update(fleet.provider.draining)
                await trio.sleep(0.1)
        assert not set(former) & set(fleet.ready)
        assert fleet.drains == [(name, Reason.DRIFT) for name in former]


async def test_a_removed_group_is_drained_and_forgotten(autojump_clock: MockClock) -> None:
    fleet = FakeFleet()
    async with fleet.term() as reconciler:
        former = await fleet.wait_settled()
        assert fleet.specs is not None
        fleet.specs.clear()
        fleet.enqueue(EventType.GROUP_CHANGED)
        await fleet.wait(lambda: not fleet.records())
        assert sorted(fleet.drains) == [(name, Reason.SCALE_DOWN) for name in sorted(former)]
        assert not fleet.provider.things
        assert reconciler.snapshot().groups == ()


@pytest.mark.parametrize("kind", [EventType.CHECK_INSTANCE, EventType.INSTANCE_DELETED])
async def test_a_reported_death_is_replaced_at_once(autojump_clock: MockClock, kind: EventType) -> None:
    fleet = FakeFleet()
    async with fleet.term():
        first, _ = await fleet.wait_settled()
        await trio.sleep(30)
        fleet.provider.things.pop(first)
        assert fleet.enqueue(kind, first)
        await fleet.wait_settled(within=3.0)
        assert not fleet.drains


async def test_an_unreported_death_is_found_by_the_next_health_check(autojump_clock: MockClock) -> None:
    fleet = FakeFleet()
    async with fleet.term():
        first, _ = await fleet.wait_settled()
        await trio.sleep(30)
        fleet.provider.become(first, ProviderStatus.FAILED)
        await fleet.wait_settled(within=SPEC.health_interval + 3.0)


async def test_a_termination_notice_drains_and_replaces_at_once(autojump_clock: MockClock) -> None:
    fleet = FakeFleet()
    async with fleet.term():
        first, _ = await fleet.wait_settled()
        deadline = clock() + 7.0
        for _ in range(3):
            assert fleet.enqueue(EventType.TERMINATION_NOTICE, first, deadline=deadline)
        await trio.sleep(2.0)
        (leaving,) = fleet.records(InstanceState.DRAINING)
        assert (leaving.id, leaving.drain_reason, leaving.drain_deadline) == (first, Reason.TERMINATING, deadline)
        assert len(fleet.records()) == 3
        await fleet.wait_settled(within=7.0)
        assert fleet.drains == [(first, Reason.TERMINATING)]


async def test_an_acknowledged_drain_ends_it(autojump_clock: MockClock) -> None:
    fleet = FakeFleet()
    async with fleet.term():
        await fleet.wait_settled()
        fleet.change(size=1)
        await fleet.wait(lambda: bool(fleet.drains))
        (name, _) = fleet.drains[0]
        await trio.sleep(5.0)
        assert name in fleet.provider.things
        assert fleet.enqueue(EventType.DRAIN_ACKED, name)
        await fleet.wait_settled(within=1.0)


async def test_an_unrequested_acknowledgement_changes_nothing(autojump_clock: MockClock) -> None:
    fleet = FakeFleet()
    async with fleet.term():
        first, _ = await fleet.wait_settled()
        fleet.enqueue(EventType.DRAIN_ACKED, first)
        await trio.sleep(100)
        assert first in fleet.ready


async def test_with_trust_acks_an_unrequested_acknowledgement_ends_the_instance(autojump_clock: MockClock) -> None:
    fleet = FakeFleet()
    async with fleet.term(trust_acks=True):
        first, _ = await fleet.wait_settled()
        fleet.enqueue(EventType.DRAIN_ACKED, first)
        await fleet.wait(lambda: first not in fleet.provider.things, within=2.0)
        await fleet.wait_settled()


async def test_events_are_rejected_before_the_start_and_for_unknown_instances(autojump_clock: MockClock) -> None:
    fleet = FakeFleet()
    fleet.make_reconciler()
    assert not fleet.enqueue(EventType.GROUP_CHANGED)
    async with fleet.term():
        await fleet.wait_settled()
        assert not fleet.enqueue(EventType.CHECK_INSTANCE, "web-99")
        assert not fleet.enqueue(EventType.DRAIN_ACKED)
        assert fleet.enqueue(EventType.INITIAL_RECONCILE)
    assert not fleet.enqueue(EventType.GROUP_CHANGED)


async def test_a_duplicate_is_ignored_for_two_health_intervals_after_a_success(autojump_clock: MockClock) -> None:
    fleet = FakeFleet()
    async with fleet.term():
        first, second = await fleet.wait_settled()
        assert fleet.enqueue(EventType.CHECK_INSTANCE, first, prevent_duplicate=True)
        # Not handled yet, so it is no duplicate.
        assert fleet.enqueue(EventType.CHECK_INSTANCE, first, prevent_duplicate=True)
        await trio.sleep(2.0)
        assert not fleet.enqueue(EventType.CHECK_INSTANCE, first, prevent_duplicate=True)
        assert fleet.enqueue(EventType.CHECK_INSTANCE, first, prevent_duplicate=True, attempt=1)
        assert fleet.enqueue(EventType.CHECK_INSTANCE, first)
        assert fleet.enqueue(EventType.CHECK_INSTANCE, second, prevent_duplicate=True)
        await trio.sleep(2 * SPEC.health_interval + 2.0)
        assert fleet.enqueue(EventType.CHECK_INSTANCE, first, prevent_duplicate=True)


async def test_a_failed_pass_marks_no_event_as_handled(autojump_clock: MockClock) -> None:
    fleet = FakeFleet()
    async with fleet.term():
        first, _ = await fleet.wait_settled()
        fleet.enqueue(EventType.TERMINATION_NOTICE, first, prevent_duplicate=True)
        fleet.store.failures = 1
        await trio.sleep(1.0)
        assert fleet.store.failures == 0
        assert fleet.enqueue(EventType.TERMINATION_NOTICE, first, prevent_duplicate=True)
        # The notice outlives the failed pass.
        await fleet.wait(lambda: fleet.drains == [(first, Reason.TERMINATING)], within=10.0)


async def test_creations_keep_their_interval_and_drains_do_not_wait(autojump_clock: MockClock) -> None:
    fleet = FakeFleet(specs={WEB: SPEC, GroupKey("api"): msgspec.structs.replace(SPEC, key=GroupKey("api"))})
    async with fleet.term(create_rate_limit=20.0):
        await fleet.wait(lambda: len(fleet.ready) == 1)
        assert fleet.enqueue(EventType.TERMINATION_NOTICE, fleet.ready[0])
        await fleet.wait(lambda: bool(fleet.drains), within=2.0)
        fleet.provider.finished.update(fleet.provider.draining)
        await fleet.wait_settled()
        times = fleet.provider.times_of("create")
        assert len(times) == 5
        assert all(later - earlier >= 20.0 for earlier, later in pairwise(times))


async def test_a_failing_creation_is_reported_and_retried_with_growing_delays(autojump_clock: MockClock) -> None:
    fleet = FakeFleet()
    fleet.provider.script["create"] = [RetryableError("no room")] * 3
    async with fleet.term():
        await fleet.wait(lambda: fleet.errors == ["no room"] * 3)
        assert 15.0 <= trio.current_time() <= 20.0
        await fleet.wait_settled()
        # Leftovers of the failures are removed.
        assert len(fleet.provider.times_of("delete")) == 3


async def test_a_permanently_failing_creation_waits_for_another_specification(autojump_clock: MockClock) -> None:
    fleet = FakeFleet()
    fleet.provider.script["create"] = [PermanentError("no such image")]
    async with fleet.term():
        await trio.sleep(3600)
        assert fleet.errors == ["no such image"]
        assert not fleet.provider.things
        fleet.change(config_hash="2")
        await fleet.wait_settled(within=300.0)


async def test_an_event_is_logged_with_its_cause_attempt_and_age(autojump_clock: MockClock) -> None:
    fleet = FakeFleet()
    async with fleet.term():
        first, _ = await fleet.wait_settled()
        with structlog.testing.capture_logs() as logs:
            fleet.enqueue(EventType.CHECK_INSTANCE, first, cause="watch", attempt=2, timestamp=clock() - 1.5)
            fleet.enqueue(EventType.GROUP_CHANGED, cause="desired state")

    events = [line for line in logs if line["event"] == "event accepted"]
    assert [(line["type"], line["instance"], line["cause"], line["attempt"]) for line in events] == [
        ("CheckInstance", first, "watch", 2),
        ("GroupChanged", "", "desired state", 0),
    ]
    assert events[0]["age"] == 1.5
    assert events[1]["age"] is None


async def test_a_crash_loop_is_slowed_down(autojump_clock: MockClock) -> None:
    fleet = FakeFleet()
    async with fleet.term():
        for _ in range(200):
            for name in fleet.provider.things:
                fleet.provider.become(name, ProviderStatus.FAILED)
            await trio.sleep(1.0)
        assert 4 <= len(fleet.provider.times_of("create")) <= 16


async def test_a_creation_that_takes_too_long_counts_as_failed(autojump_clock: MockClock) -> None:
    fleet = FakeFleet()
    fleet.provider.script["create"] = [1000.0]
    async with fleet.term():
        await fleet.wait_settled(within=60.0)
        assert fleet.errors == ["creating the instance took longer than 20 s"]


async def test_a_provider_outage_removes_no_instance(autojump_clock: MockClock) -> None:
    fleet = FakeFleet()
    async with fleet.term():
        before = await fleet.wait_settled()
        fleet.provider.script["status"] = [RetryableError("down")] * 40
        await fleet.wait(lambda: not fleet.provider.script["status"])
        await trio.sleep(60)
        assert fleet.ready == before


async def test_an_unresponsive_instance_is_drained_after_its_replacement_is_ready(autojump_clock: MockClock) -> None:
    fleet = FakeFleet()
    async with fleet.term():
        first, second = await fleet.wait_settled()
        fleet.provider.become(first, ProviderStatus.UNRESPONSIVE)
        await fleet.wait(lambda: bool(fleet.drains))
        assert fleet.drains == [(first, Reason.UNHEALTHY)]
        assert len(fleet.ready) == 2
        assert second in fleet.ready
        await fleet.wait_settled()


async def test_without_leadership_there_are_no_side_effects(autojump_clock: MockClock) -> None:
    fleet = FakeFleet(is_leader=False)
    async with fleet.term():
        await trio.sleep(100)
        assert not fleet.provider.calls
        assert not fleet.store.records
        fleet.is_leader = True
        await fleet.wait_settled(within=10.0)


async def test_without_known_groups_there_are_no_side_effects(autojump_clock: MockClock) -> None:
    fleet = FakeFleet(specs=None)
    fleet.provider.add("web-99")
    async with fleet.term(orphan_grace=1.0):
        await trio.sleep(1000)
        assert set(fleet.provider.things) == {"web-99"}
        assert not fleet.provider.calls
        fleet.specs = {WEB: SPEC}
        fleet.enqueue(EventType.INITIAL_RECONCILE)
        await fleet.wait_settled(within=10.0)


async def test_the_next_term_takes_over_and_continues_drains(autojump_clock: MockClock) -> None:
    fleet = FakeFleet()
    async with fleet.term():
        await fleet.wait_settled()
        fleet.change(size=1)
        await fleet.wait(lambda: bool(fleet.drains))
    (draining,) = (record for record in fleet.store.records.values() if record.state is InstanceState.DRAINING)
    async with fleet.term():
        await fleet.wait(lambda: len(fleet.drains) == 2, within=2.0)
        assert fleet.drains == [(draining.id, Reason.SCALE_DOWN)] * 2
        assert fleet.provider.adopted == [name for name in fleet.store.records if name != draining.id]
        await fleet.wait(lambda: draining.id not in fleet.provider.things)
        # The deadline is that of the term that began the drain.
        assert clock() == pytest.approx(draining.drain_deadline, abs=1.0)
        await fleet.wait_settled()
        assert len(fleet.provider.times_of("create")) == 2


async def test_there_are_no_side_effects_before_the_takeover_is_complete(autojump_clock: MockClock) -> None:
    fleet = FakeFleet()
    fleet.provider.script["list_owned"] = [RetryableError("down")] * 3
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fleet.make_reconciler().run)
        await trio.sleep(10)
        assert not fleet.provider.calls
        await fleet.wait_settled()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("seconds", [0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 1.0])
async def test_a_term_that_ends_at_any_await_leaves_nothing_behind(autojump_clock: MockClock, seconds: float) -> None:
    fleet = FakeFleet()
    with trio.move_on_after(seconds):
        await fleet.make_reconciler().run()
    async with fleet.term():
        await fleet.wait_settled()


async def test_healthy_orphans_are_adopted_and_others_removed(
    autojump_clock: MockClock,
) -> None:
    fleet = FakeFleet()
    fleet.provider.add("web-77")
    fleet.provider.add("gone-1", GroupKey("gone"))
    fleet.provider.add("nameless", None)
    async with fleet.term():
        await fleet.wait(lambda: "web-77" in fleet.ready)
        assert "web-77" in fleet.provider.adopted
        await trio.sleep(50)
        assert {"gone-1", "nameless"} <= set(fleet.provider.things)
        await fleet.wait_settled(within=100)
        assert "web-77" in fleet.ready
        assert len(fleet.provider.times_of("create")) == 1


async def test_a_reconciler_runs_for_one_term(autojump_clock: MockClock) -> None:
    fleet = FakeFleet()
    async with fleet.term() as reconciler:
        pass
    with pytest.raises(RuntimeError):
        await reconciler.run()
