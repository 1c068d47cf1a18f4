"""Ordered set of warnings from many fragments, updated at the cost of the difference."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence

from haptic_trio.templating.values.subjects import ObjectWarning

_FEW = 8


class WarningList:
    """Warnings that at least one fragment has. Not thread-safe."""

    def __init__(self) -> None:
        self._counts: dict[ObjectWarning, int] = {}
        self._ordered: list[ObjectWarning] = []
        self._moved: dict[ObjectWarning, None] = {}
        """Warnings that may have been added or removed since the list was sorted."""
        self._now: tuple[ObjectWarning, ...] = ()

    def copied(self) -> "WarningList":
        """Return a list of the same warnings, which changes by itself."""
        copy = WarningList()
        copy._counts, copy._ordered, copy._moved = dict(self._counts), list(self._ordered), dict(self._moved)
        copy._now = self._now
        return copy

    def change(self, before: Iterable[ObjectWarning], after: Iterable[ObjectWarning]) -> None:
        """Replace the warnings *before* of one fragment with *after*."""
        for warning in after:
            self._count(warning, 1)
        for warning in before:
            self._count(warning, -1)

    def _count(self, warning: ObjectWarning, difference: int) -> None:
        count = self._counts.get(warning, 0) + difference
        if count:
            self._counts[warning] = count
        else:
            del self._counts[warning]
        self._moved[warning] = None

    def all(self) -> tuple[ObjectWarning, ...]:
        """Return all warnings, sorted; the same tuple until they change."""
        if self._moved:
            self._put_in_order()
        return self._now

    def _put_in_order(self) -> None:
        moved, self._moved = self._moved, {}
        ordered = self._ordered
        if len(moved) > _FEW + len(ordered) // _FEW:
            self._ordered = sorted(self._counts)
        else:
            for warning in moved:
                place = bisect_left(ordered, warning)
                is_there = place < len(ordered) and ordered[place] == warning
                if warning in self._counts and not is_there:
                    insort(ordered, warning)
                elif is_there and warning not in self._counts:
                    del ordered[place]
        now = tuple(self._ordered)
        if now != self._now:
            self._now = now


def merged(one: tuple[ObjectWarning, ...], other: tuple[ObjectWarning, ...]) -> tuple[ObjectWarning, ...]:
    """Return the sorted union of two sorted tuples."""
    if not one or not other:
        return one or other
    # `sorted` merges two sorted runs in linear time.
    return tuple(dict.fromkeys(sorted(one + other)))


def compare_warnings(
    reported: Sequence[ObjectWarning], current: Sequence[ObjectWarning]
) -> tuple[list[ObjectWarning], list[ObjectWarning]]:
    """Return the warnings of *current* that are new since *reported*, and those that are resolved."""
    if reported is current:
        return [], []
    before, now = set(reported), set(current)
    return [item for item in current if item not in before], [item for item in reported if item not in now]
