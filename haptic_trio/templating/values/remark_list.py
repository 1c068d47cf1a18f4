"""Ordered set of warnings from many fragments, updated at the cost of the difference."""

from bisect import bisect_left, insort
from collections.abc import Iterable

from haptic_trio.templating.values.subjects import Remark

_FEW = 8


class RemarkList:
    """What is said by somebody. Not for several threads at once."""

    def __init__(self) -> None:
        self._counts: dict[Remark, int] = {}
        self._ordered: list[Remark] = []
        self._moved: dict[Remark, None] = {}
        """What may have come or gone since it was put in order."""
        self._now: tuple[Remark, ...] = ()

    def change(self, before: Iterable[Remark], after: Iterable[Remark]) -> None:
        """Have somebody who has said *before* say *after* instead."""
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
        """Return what is said now; the same tuple until it changes."""
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
    """Return what is in *one* or in *other*, each thing once, in order; both are in order themselves."""
    if not one or not other:
        return one or other
    # Two stretches in order are merged, not sorted.
    return tuple(dict.fromkeys(sorted(one + other)))
