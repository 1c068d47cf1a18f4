import gc
import weakref
from collections.abc import Iterator

import pytest
from trio.testing import MockClock

from haptic_trio.channels import Latest
from haptic_trio.haproxy.model import Generation
from haptic_trio.messages import ConfigValidated, Phases, Reason
from haptic_trio.stages.gc_tuning import COLLECT_DELAY, SETTLE_LIMIT, Collections
from tests.support.endpoints import generation

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
    assert autojump_clock.current_time() == COLLECT_DELAY


async def test_second_change_in_quick_succession_collects_what_the_first_one_left() -> None:
    collections = Collections(wanted=True)
    with collections.building(is_resumed=True):
        former = garbage()
    gc.disable()
    try:
        with collections.building(is_resumed=True):
            assert former() is None
    finally:
        gc.enable()


async def test_candidate_is_made_without_collections() -> None:
    collections = Collections(wanted=True)
    with collections.paused():
        assert not gc.isenabled()
    assert gc.isenabled()


async def test_nothing_is_touched_where_it_is_not_wanted(autojump_clock: MockClock) -> None:
    collections = Collections(wanted=False)
    with collections.building(is_resumed=False), collections.paused():
        await collections.run_freeze(Latest())

        assert gc.isenabled()
        assert gc.get_freeze_count() == 0
