"""Data does not wait for phase 2, and phase 2 has the last word."""

import pytest
import trio
from trio.testing import MockClock

from haptic_trio.messages import (
    ConfigPrepared,
    ConfigValidated,
    Reason,
    ReconcileTriggered,
)
from tests.pipeline.fast_lane import CHECK, INTERVAL, Rig
from tests.support.components.endpoints import generation


@pytest.fixture
async def rig(autojump_clock: MockClock, nursery: trio.Nursery) -> Rig:
    rig = Rig()
    await rig.start(nursery)
    return rig


async def first_is_valid(rig: Rig) -> None:
    await rig.trigger("c1")
    await rig.validated.wait_newer(0)


async def test_configuration_is_published_before_it_is_checked(autojump_clock: MockClock, rig: Rig) -> None:
    await rig.trigger("c1")

    assert rig.prepared.value is not None
    assert rig.prepared.value.correlation == "c1"
    assert rig.validated.version == 0
    _version, valid = await rig.validated.wait_newer(0)
    assert (valid.correlation, trio.current_time()) == ("c1", CHECK)


async def test_a_cycle_that_changes_nothing_needs_no_other_check(autojump_clock: MockClock, rig: Rig) -> None:
    await first_is_valid(rig)
    rig.pipeline.same["c2"] = "c1"

    await rig.trigger("c2")

    assert rig.validated.value is not None
    assert (rig.validated.value.correlation, rig.validated.value.generation) == ("c2", generation("c1"))
    assert rig.prepared.value is not None
    assert rig.prepared.value.correlation == "c1"
    assert [name for name, *_ in rig.pipeline.checks] == ["c1"]
    assert len(rig.pipeline.accepted) == 1


async def test_a_cycle_that_changes_nothing_is_deployed_while_a_deployment_of_its_configuration_is_outstanding(
    autojump_clock: MockClock, rig: Rig
) -> None:
    await first_is_valid(rig)
    rig.pipeline.same = dict.fromkeys(("c2", "c3", "c4", "c5", "c6"), "c1")

    async def is_deployed(name: str, reason: Reason = Reason.CHANGED) -> bool:
        await rig.trigger(name, reason)
        assert rig.validated.value is not None
        assert rig.validated.value.correlation == name
        return rig.validated.value.is_deployed

    rig.complete("c1", generation=generation("c1").id)
    assert await is_deployed("c2")
    # Endpoints may have changed by themselves, and their comparison is not completed.
    assert not await is_deployed("c3", Reason.DRIFT)
    assert not await is_deployed("c4")
    rig.complete("c4", generation=generation("c1").id)
    assert await is_deployed("c5")
    rig.complete("c4", generation=generation("c1").id, failed=("a",))
    assert not await is_deployed("c6")


async def test_a_return_to_the_valid_configuration_is_published_after_another_one(
    autojump_clock: MockClock, rig: Rig
) -> None:
    await first_is_valid(rig)
    rig.pipeline.same["c3"] = "c1"

    await rig.trigger("c2")
    await rig.trigger("c3")

    assert rig.prepared.value is not None
    assert (rig.prepared.value.correlation, rig.prepared.value.generation) == ("c3", generation("c1"))


async def test_changes_that_wait_are_taken_in_by_the_next_cycles(autojump_clock: MockClock, rig: Rig) -> None:
    rig.pipeline.waiting = 3

    await rig.trigger("c1")

    assert rig.pipeline.prepared == [("c1", Reason.CHANGED), ("r1", Reason.WAITED), ("r2", Reason.WAITED)]
    assert rig.prepared.value is not None
    assert rig.prepared.value.correlation == "r2"


async def test_a_trigger_comes_before_changes_that_wait(autojump_clock: MockClock, rig: Rig) -> None:
    rig.pipeline.waiting, rig.pipeline.seconds = 4, 1.0

    await rig.trigger("c1")
    await trio.sleep(1.5)
    await rig.trigger("c2")
    await trio.sleep(10)

    assert [name for name, _reason in rig.pipeline.prepared] == ["c1", "r1", "c2", "r2"]


async def test_a_failed_cycle_does_not_end_the_wait(autojump_clock: MockClock, rig: Rig) -> None:
    rig.pipeline.waiting = 3
    rig.pipeline.broken |= {"c1", "r1"}

    await rig.trigger("c1")

    assert rig.prepared.value is not None
    assert rig.prepared.value.correlation == "r2"


async def test_checks_keep_their_interval_and_take_the_newest_at_idle_priority(
    autojump_clock: MockClock, rig: Rig
) -> None:
    await first_is_valid(rig)

    for number in range(2, 12):
        await rig.trigger(f"c{number}")
        await trio.sleep(0.1)
    await trio.sleep(10)

    assert rig.pipeline.checks == [("c1", 0, False), ("c11", INTERVAL, True)]


async def test_check_that_a_held_back_change_waits_for_is_not_put_off(autojump_clock: MockClock, rig: Rig) -> None:
    await first_is_valid(rig)
    rig.structural.add("c2")
    await rig.trigger("c2")

    rig.complete("c2", held=("e",))
    await rig.validated.wait_newer(1)

    assert rig.pipeline.checks[-1] == ("c2", CHECK, False)


async def test_check_of_structure_is_never_left_to_idle_processors(autojump_clock: MockClock, rig: Rig) -> None:
    await first_is_valid(rig)
    rig.structural.add("c2")

    await rig.trigger("c2")
    await rig.validated.wait_newer(1)

    assert rig.pipeline.checks[-1] == ("c2", INTERVAL, False)


async def test_check_is_not_hurried_by_endpoints_that_hold_back_what_is_valid_already(
    autojump_clock: MockClock, rig: Rig
) -> None:
    await first_is_valid(rig)
    await rig.trigger("c2")

    rig.complete("c2", held=("e",))
    await rig.validated.wait_newer(1)

    assert rig.pipeline.checks[-1] == ("c2", INTERVAL, True)


async def test_failed_deployment_has_its_configuration_checked_at_once(autojump_clock: MockClock, rig: Rig) -> None:
    await first_is_valid(rig)
    await rig.trigger("c2")

    rig.complete("c2", failed=("e",))
    await rig.validated.wait_newer(1)

    assert rig.pipeline.checks[-1] == ("c2", CHECK, False)


async def test_rejected_object_is_left_out_by_another_cycle(autojump_clock: MockClock, rig: Rig) -> None:
    await first_is_valid(rig)
    rig.pipeline.rejected["c2"] = True

    await rig.trigger("c2")
    _version, valid = await rig.validated.wait_newer(1)

    assert valid.correlation == "r1"
    assert rig.prepared.value is not None
    assert rig.prepared.value.reason is Reason.REJECTED
    assert rig.rejected.version == 0


async def test_rejection_without_an_object_is_reported(autojump_clock: MockClock, rig: Rig) -> None:
    await first_is_valid(rig)
    rig.pipeline.rejected["c2"] = False

    await rig.trigger("c2")
    _version, rejected = await rig.rejected.wait_newer(0)

    assert (rejected.correlation, rejected.phase) == ("c2", "check")
    assert rig.validated.version == 1


async def test_data_that_was_prepared_with_a_rejected_structure_stays(autojump_clock: MockClock, rig: Rig) -> None:
    await first_is_valid(rig)
    rig.pipeline.rejected["c2"] = False
    rig.data["c2"] = generation("c1 with data of c2")

    await rig.trigger("c2")
    _version, rejected = await rig.rejected.wait_newer(0)

    valid = rig.validated.value
    assert valid is not None
    assert (valid.correlation, valid.generation.id) == (rejected.correlation, rig.data["c2"].id)
    assert rejected.keeps_data
    # The next one is compared with it.
    rig.pipeline.rejected["c3"] = False
    rig.data["c3"] = rig.data["c2"]
    await rig.trigger("c3")
    await rig.rejected.wait_newer(1)
    assert rig.pipeline.parts == ["c1 with data of c2"]
    assert rig.validated.version == 2


async def test_data_that_is_rejected_itself_is_not_kept(autojump_clock: MockClock, rig: Rig) -> None:
    await first_is_valid(rig)
    rig.pipeline.rejected |= {"c2": False, "d2": False}
    rig.data["c2"] = generation("d2")

    await rig.trigger("c2")
    await rig.rejected.wait_newer(0)

    assert rig.pipeline.parts == ["d2"]
    assert rig.rejected.value is not None
    assert not rig.rejected.value.keeps_data
    assert rig.validated.version == 1


@pytest.mark.parametrize("also_rejected", [set(), {"c1 with servers"}])
async def test_servers_stay_when_the_data_is_rejected(
    autojump_clock: MockClock, rig: Rig, also_rejected: set[str]
) -> None:
    await first_is_valid(rig)
    rig.pipeline.rejected |= dict.fromkeys({"c2", *also_rejected}, False)
    rig.data["c2"] = generation("c2")
    rig.servers["c2"] = generation("c1 with servers"), generation("c1 without gone servers")

    await rig.trigger("c2")
    _version, rejected = await rig.rejected.wait_newer(0)

    # The schedule goes back to the valid configuration, which has the servers.
    assert not rejected.keeps_data
    valid = rig.validated.value
    assert valid is not None
    assert valid.generation.id == rig.servers["c2"][len(also_rejected)].id


async def test_check_without_a_verdict_is_reported_and_repeated_in_the_next_reconciliation(
    autojump_clock: MockClock, rig: Rig
) -> None:
    await first_is_valid(rig)
    rig.pipeline.undecided.add("c2")

    await rig.trigger("c2")
    _version, failed = await rig.rejected.wait_newer(0)

    assert (failed.correlation, failed.phase, failed.is_verdict) == ("c2", "check", False)
    await rig.trigger("c3")
    _version, valid = await rig.validated.wait_newer(1)
    assert valid.correlation == "c3"
    assert rig.retries == 0


async def test_failed_render_publishes_nothing(autojump_clock: MockClock, rig: Rig) -> None:
    rig.pipeline.broken.add("c1")

    await rig.trigger("c1")

    assert rig.prepared.version == 0
    assert rig.rejected.value is not None
    assert rig.rejected.value.phase == "render"


async def test_ledger_hears_of_a_cycle_before_the_others_do(autojump_clock: MockClock, rig: Rig) -> None:
    await first_is_valid(rig)

    reported = []
    while True:
        try:
            reported.append(type(rig.cycles.receive_nowait()))
        except trio.WouldBlock:
            break
    assert reported == [ReconcileTriggered, ConfigPrepared, ConfigValidated]


async def test_lane_ends_with_its_input_and_closes_its_ends(autojump_clock: MockClock) -> None:
    rig = Rig()
    async with trio.open_nursery() as nursery:
        await rig.start(nursery)
        await rig.trigger("c1")
        rig.triggers.close()

    async for _event in rig.cycles:
        pass
    assert rig.prepared.version == 1


async def test_cancelled_lane_closes_its_ends(autojump_clock: MockClock) -> None:
    rig = Rig()
    async with trio.open_nursery() as nursery:
        await rig.start(nursery)
        await rig.trigger("c1")
        nursery.cancel_scope.cancel()

    assert rig.validated.version == 0
    with pytest.raises(trio.BrokenResourceError):
        await rig.trigger("c2")
