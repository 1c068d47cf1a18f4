import gc
import weakref
from collections.abc import Iterator
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from haptic_trio.channels import Latest
from haptic_trio.haproxy.model import Generation
from haptic_trio.messages import ConfigValidated, Phases, Reason
from haptic_trio.stages.gc_tuning import MOST_RELEASED, RELEASE_DELAY, SETTLE_LIMIT, Collections
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


@pytest.fixture
def traversed() -> Iterator[list[int]]:
    """Number of objects that each collection of the oldest generation traverses."""
    counts: list[int] = []

    def count(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            counts.append(len(gc.get_objects()))

    gc.callbacks.append(count)
    yield counts
    gc.callbacks.remove(count)


async def test_what_an_iteration_has_built_is_frozen_once_a_configuration_is_valid() -> None:
    collections = Collections(wanted=True)
    with collections.building(is_resumed=False):
        assert not gc.isenabled()

        await collections.run_freeze(validated(generation("a")), is_resumed=False)

        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
    assert gc.isenabled()


async def test_collections_are_not_held_off_for_ever_where_nothing_becomes_valid(autojump_clock: MockClock) -> None:
    collections = Collections(wanted=True)
    with collections.building(is_resumed=False):
        await collections.run_freeze(Latest(), is_resumed=False)

        assert gc.isenabled()
        assert autojump_clock.current_time() == SETTLE_LIMIT


async def test_iteration_without_a_candidate_begins_with_a_collection_of_everything() -> None:
    collections = Collections(wanted=True)
    with collections.paused():
        former = garbage()
    assert former() is not None
    with collections.building(is_resumed=False):
        assert former() is None


async def test_changes_that_never_rest_have_no_collection_traverse_what_is_kept(
    autojump_clock: MockClock, traversed: list[int]
) -> None:
    collections = Collections(wanted=True)
    with collections.building(is_resumed=False):
        kept = [[number] for number in range(200_000)]
        await collections.run_freeze(validated(generation("a")), is_resumed=False)
    del traversed[:]

    for number in range(30):
        with collections.paused():
            # A candidate replaces what the iteration before it has made.
            kept = [[number] for _ in kept]
        with collections.building(is_resumed=True):
            collections.retire(trio.lowlevel.checkpoint)
            await collections.run_freeze(validated(generation("b")), is_resumed=True)
            for _ in range(20):
                kept[number : number + 100] = [[number] for _ in range(100)]
                await trio.sleep(1)
            gc.collect()

    assert len(traversed) >= 30
    assert max(traversed) < 50_000


async def test_retries_of_a_rejected_candidate_leave_nothing_that_no_collection_finds() -> None:
    collections = Collections(wanted=True)
    with collections.paused() as pause:
        made = garbage()
        pause.is_in_vain = True
    assert gc.isenabled()
    gc.collect()
    assert made() is None


async def test_tasks_of_an_iteration_that_takes_over_a_candidate_stay_collectable() -> None:
    collections = Collections(wanted=True)
    with collections.building(is_resumed=True):
        task = garbage()
        await collections.run_freeze(validated(generation("a")), is_resumed=True)
    gc.collect()
    assert task() is None


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
        nursery.start_soon(partial(collections.run_freeze, validated(generation("a")), is_resumed=True))
    assert released == ["one"]


async def test_remains_of_very_many_released_iterations_are_collected() -> None:
    collections = Collections(wanted=True)
    remains: list[weakref.ref[Cycle]] = []

    async def release() -> None:
        remains.append(garbage())
        gc.freeze()

    async def change() -> int:
        collections.retire(release)
        await collections.release_retired()
        return sum(each() is not None for each in remains)

    gc.disable()
    try:
        left = [await change() for _ in range(MOST_RELEASED + 1)]
    finally:
        gc.enable()

    assert left == [*range(1, MOST_RELEASED), 0, 1]


async def test_retired_objects_are_released_after_the_changed_configuration_is_deployed(
    autojump_clock: MockClock,
) -> None:
    collections, released = Collections(wanted=False), list[float]()

    async def release() -> None:
        await trio.lowlevel.checkpoint()
        released.append(trio.current_time())

    collections.retire(release)
    await collections.run_freeze(validated(generation("a")), is_resumed=True)
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


async def test_nothing_is_touched_where_it_is_not_wanted(autojump_clock: MockClock) -> None:
    collections = Collections(wanted=False)
    with collections.building(is_resumed=False), collections.paused():
        await collections.run_freeze(Latest(), is_resumed=False)

        assert gc.isenabled()
        assert gc.get_freeze_count() == 0
