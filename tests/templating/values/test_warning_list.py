"""Warnings of many fragments: each once and in order, whatever is added and removed."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.templating.values.subjects import ObjectWarning, Subject
from haptic_trio.templating.values.warning_list import WarningList, merged


def warning(number: int) -> ObjectWarning:
    return ObjectWarning(Subject("Ingress", "default", f"web{number:05}"), "Said", f"{number % 7}")


class Compared(str):
    """Stands for a remark, and counts how often one is compared with another."""

    __slots__ = ()
    comparisons = 0

    def __lt__(self, other: str) -> bool:
        Compared.comparisons += 1
        return str.__lt__(self, other)


SAYINGS = st.lists(st.tuples(st.integers(0, 5), st.lists(st.integers(0, 30), max_size=12), st.booleans()), max_size=30)


@given(SAYINGS)
def test_it_is_what_all_say_together(sayings: list[tuple[int, list[int], bool]]) -> None:
    known: dict[int, tuple[ObjectWarning, ...]] = {}
    warnings = WarningList()
    for who, numbers, is_asked in sayings:
        said = tuple(map(warning, numbers))
        warnings.change(known.get(who, ()), said)
        known[who] = said
        if is_asked:
            assert warnings.all() == tuple(sorted({one for each in known.values() for one in each}))
    assert warnings.all() == tuple(sorted({one for each in known.values() for one in each}))


def test_it_is_the_same_tuple_until_something_comes_or_goes() -> None:
    warnings = WarningList()
    assert warnings.all() is warnings.all()
    warnings.change((), (warning(1), warning(2)))
    now = warnings.all()
    warnings.change((), (warning(1),))
    warnings.change((warning(2),), (warning(2),))
    assert warnings.all() is now
    warnings.change((warning(1),), ())
    assert warnings.all() is now
    warnings.change((warning(1),), ())
    assert warnings.all() == (warning(2),)


def test_one_that_comes_among_many_is_not_compared_with_all() -> None:
    def counted(number: int) -> Any:
        return Compared(f"{number:05}")

    warnings = WarningList()
    warnings.change((), tuple(counted(2 * number) for number in range(5_000)))
    assert len(warnings.all()) == 5_000
    Compared.comparisons = 0
    warnings.change((), (counted(4_999),))
    assert warnings.all()[2_500] == counted(4_999)
    warnings.change((counted(4_999),), ())
    assert len(warnings.all()) == 5_000
    assert Compared.comparisons < 60


@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)))
def test_two_that_are_in_order_are_merged(one: set[int], other: set[int]) -> None:
    first, second = (tuple(map(warning, sorted(numbers))) for numbers in (one, other))
    assert merged(first, second) == tuple(map(warning, sorted(one | other)))
