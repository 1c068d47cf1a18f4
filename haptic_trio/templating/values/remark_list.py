"""Ordered set of warnings from many fragments, updated at the cost of the difference."""

from bisect import bisect_left, insort
from collections.abc import Iterable

from haptic_trio.templating.values.subjects import Remark

_FEW = 8


class RemarkList:
    """Warnings that at least one fragment has. Not thread-safe."""

    def __init__(self) -> None:
        self._counts: dict[Remark, int] = {}
        self._ordered: list[Remark] = []
        self._moved: dict[Remark, None] = {}
        """Warnings that may have been added or removed since the list was sorted."""
        self._now: tuple[Remark, ...] = ()

    def change(self, before: Iterable[Remark], after: Iterable[Remark]) -> None:
        """Replace the warnings *before* of one fragment with *after*."""
        for remark in after:
            self._count(remark, 1)
        for remark in before:
            self._count(remark, -1)

    def _count(self, remark: Remark, difference: int) -> None:
        count = self._counts.get(remark, 0) + difference
        if count:
            self._counts[remark] = count
        else:
            del self._counts[remark]
        self._moved[remark] = None

    def all(self) -> tuple[Remark, ...]:
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
            for remark in moved:
                place = bisect_left(ordered, remark)
                is_there = place < len(ordered) and ordered[place] == remark
                if remark in self._counts and not is_there:
                    insort(ordered, remark)
                elif is_there and remark not in self._counts:
                    del ordered[place]
        now = tuple(self._ordered)
        if now != self._now:
            self._now = now


def merged(one: tuple[Remark, ...], other: tuple[Remark, ...]) -> tuple[Remark, ...]:
    """Return the sorted union of two sorted tuples."""
    if not one or not other:
        return one or other
    # `sorted` merges two sorted runs in linear time.
    return tuple(dict.fromkeys(sorted(one + other)))
