import gc
import weakref
from collections.abc import Iterator

import pytest
import trio
from trio.testing import MockClock

from haptic_trio.channels import Latest
from haptic_trio.haproxy.model import Generation
from haptic_trio.messages import ConfigValidated, Phases, Reason
from haptic_trio.stages.gc_tuning import LONGEST_WAIT, MOST_UNCOLLECTED, QUIET, RELEASE_DELAY, SETTLE_LIMIT, Collections
from tests.support.components.endpoints import generation

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _nothing_frozen() -> Iterator[None]:
    """Begin without frozen objects: tests/conftest.py freezes those of the collection of tests."""
    gc.unfreeze()
    yield
    gc.freeze()


class Cycle:
    """An object that only a collection frees."""

    def __init__(self) -> None:
        self.me = self


def garbage() -> "weakref.ref[Cycle]":
    return weakref.ref(Cycle())


def validated(made: Generation) -> Latest[ConfigValidated]:
    cell: Latest[ConfigValidated] = Latest()
    cell.put(ConfigValidated(correlation="1-1", reason=Reason.CHANGED, generation=made, phases=Phases()))
    return cell


async def test_what_an_iteration_has_built_is_frozen_once_a_configuration_is_valid() -> None:
    collections = Collections(wanted=True)
    with collections.building(is_resumed=False):
        assert not gc.isenabled()

        await collections.run_freeze(validated(generation("a")))

        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0
    assert gc.isenabled()


async def test_collections_are_not_held_off_for_ever_where_nothing_becomes_valid(autojump_clock: MockClock) -> None:
    collections = Collections(wanted=True)
    with collections.building(is_resumed=False):
        await collections.run_freeze(Latest())

        assert gc.isenabled()
        assert autojump_clock.current_time() == SETTLE_LIMIT


async def test_iteration_that_takes_over_a_candidate_collects_later(autojump_clock: MockClock) -> None:
    collections = Collections(wanted=True)
    with collections.building(is_resumed=False):
        with collections.paused():
            former = garbage()
        await collections.run_freeze(validated(generation("a")))
    gc.disable()
    former = garbage()
    with collections.building(is_resumed=True):
        assert former() is not None
        await collections.run_freeze(validated(generation("b")))
        assert former() is None
        assert gc.get_freeze_count() > 0
    assert autojump_clock.current_time() == QUIET


async def test_collection_waits_while_objects_change(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    collections, changes = Collections(wanted=True), Latest[int]()

    async def change() -> None:
        for number in range(3):
            await trio.sleep(QUIET - 1)
            changes.put(number)

    with collections.building(is_resumed=True):
        nursery.start_soon(change)
        await collections.run_freeze(validated(generation("a")), (changes,))
    assert autojump_clock.current_time() == 3 * (QUIET - 1) + QUIET


async def test_collection_does_not_wait_for_ever(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    collections, changes = Collections(wanted=True), Latest[int]()

    async def change() -> None:
        while True:
            await trio.sleep(1)
            changes.put(0)

    with collections.building(is_resumed=True):
        nursery.start_soon(change)
        await collections.run_freeze(validated(generation("a")), (changes,))
    assert autojump_clock.current_time() == LONGEST_WAIT


async def test_changes_in_quick_succession_collect_once_in_a_while() -> None:
    collections = Collections(wanted=True)
    former = None
    for number in range(MOST_UNCOLLECTED + 1):
        with collections.building(is_resumed=True):
            if former is not None:
                assert (former() is None) == (number == MOST_UNCOLLECTED)
            former = former or garbage()


async def test_retired_objects_are_released_once(autojump_clock: MockClock) -> None:
    collections, released = Collections(wanted=False), list[str]()

    async def release() -> None:
        await trio.lowlevel.checkpoint()
        released.append("one")

    collections.retire(release)
    with trio.CancelScope() as scope:
        scope.cancel()
        await collections.release_retired()
    assert released == []

    async with trio.open_nursery() as nursery:
        # At the same time, as a candidate and the freeze of its predecessor.
        nursery.start_soon(collections.release_retired)
        nursery.start_soon(collections.run_freeze, validated(generation("a")))
    assert released == ["one"]


async def test_retired_objects_are_released_after_the_changed_configuration_is_deployed(
    autojump_clock: MockClock,
) -> None:
    collections, released = Collections(wanted=False), list[float]()

    async def release() -> None:
        await trio.lowlevel.checkpoint()
        released.append(trio.current_time())

    collections.retire(release)
    await collections.run_freeze(validated(generation("a")))
    assert released == [RELEASE_DELAY]


async def test_candidate_is_made_without_collections() -> None:
    collections = Collections(wanted=True)
    with collections.paused():
        assert not gc.isenabled()
    assert gc.isenabled()


async def test_end_of_a_candidate_does_not_traverse_what_was_made() -> None:
    collections = Collections(wanted=True)
    with collections.paused():
        made = [[number] for number in range(10_000)]
        assert gc.get_freeze_count() == 0
    assert gc.get_freeze_count() > len(made)


async def test_rejected_candidates_are_collected_once_in_a_while() -> None:
    collections = Collections(wanted=True)
    former = None
    for number in range(MOST_UNCOLLECTED + 1):
        with collections.paused():
            if former is not None:
                assert (former() is None) == (number == MOST_UNCOLLECTED)
            former = former or garbage()


async def test_nothing_is_touched_where_it_is_not_wanted(autojump_clock: MockClock) -> None:
    collections = Collections(wanted=False)
    with collections.building(is_resumed=False), collections.paused():
        await collections.run_freeze(Latest())

        assert gc.isenabled()
        assert gc.get_freeze_count() == 0
