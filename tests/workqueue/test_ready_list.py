"""The order in which ready keys are taken."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haptic_trio.workqueue.ready_list import AGING_INTERVAL, ReadyList


def take_all(ready: ReadyList[str]) -> list[str]:
    return [ready.take().key for _ in range(len(ready))]


def test_keys_of_one_priority_come_in_the_order_of_their_first_add() -> None:
    ready = ReadyList[str]()
    assert [ready.add(key, 0, 0.0) for key in "abcab"] == [True, True, True, False, False]
    assert take_all(ready) == ["a", "b", "c"]


def test_higher_priorities_come_first() -> None:
    ready = ReadyList[str]()
    for key, priority in (("low", -100), ("a", 0), ("high", 5), ("b", 0)):
        ready.add(key, priority, 0.0)
    assert ready.depths() == {5: 1, 0: 2, -100: 1}
    assert take_all(ready) == ["high", "a", "b", "low"]
    assert ready.depths() == {}


def test_a_raise_moves_a_key_to_the_tail_of_its_new_priority_and_nothing_lowers_it() -> None:
    ready = ReadyList[str]()
    ready.add("a", 0, 0.0)
    ready.add("b", 5, 0.0)
    ready.add("a", 5, 0.0)
    ready.add("b", 1, 0.0)
    assert [(entry.key, entry.priority) for entry in ready] == [("b", 5), ("a", 5)]
    assert take_all(ready) == ["b", "a"]


def test_taking_from_an_empty_list_is_an_error() -> None:
    with pytest.raises(IndexError):
        ReadyList[str]().take()


@given(position=st.integers(1, 6), raised=st.lists(st.integers(0, 5), max_size=3))
@settings(max_examples=300)
def test_a_low_key_is_taken_within_sixteen_takes_for_each_place_although_high_ones_keep_coming(
    position: int, raised: list[int]
) -> None:
    ready = ReadyList[str]()
    for number in range(position):
        ready.add(f"low-{number}", -1, 0.0)
    for number in raised:
        if number < position - 1:
            ready.add(f"low-{number}", 0, 0.0)
    taken = []
    for number in range(AGING_INTERVAL * position):
        ready.add(f"high-{number}", 10, 0.0)
        ready.add(f"high-{number}b", 10, 0.0)
        taken.append(ready.take().key)
    assert f"low-{position - 1}" in taken
    assert [key for key in taken if key.startswith("low")] == [f"low-{number}" for number in range(position)]


def test_places_that_raises_leave_behind_do_not_pile_up() -> None:
    ready = ReadyList[int]()
    ready.add(-1, 0, 0.0)
    for number in range(1000):
        ready.add(number, 0, 0.0)
        ready.add(number, 1, 0.0)
        ready.take()
        ready.add(-1, 0, 0.0)
    places = sum(len(cls.places) for cls in ready._classes.values())
    assert places <= 2 * len(ready) + 2 * AGING_INTERVAL
