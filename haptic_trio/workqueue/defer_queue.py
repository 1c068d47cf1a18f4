"""Queue of keys that are due later: a heap with at most one entry for each key."""

import math
import sys
from collections.abc import Callable, Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, NoReturn, TypeVar

import trio

K = TypeVar("K", bound=Hashable)

_BATCH = 256
"""Keys released between two checkpoints; about half a millisecond."""
_LEAD = 0.00075
"""Seconds before a due time at which sleeping ends and looking begins.

The system call behind a sleep counts whole milliseconds and rounds up, so that
a plain sleep until the due time would be late by up to one.
"""
_SLACK = 64
"""Cancelled entries that the heap may hold beyond the living ones before it is rebuilt."""


class DeferQueue(Generic[K]):
    """Holds keys until they are due.

    Times are those of *clock*, in seconds. Of two deferrals of one key the
    earlier wins. Keys due at the same time are released in the order in which
    they were deferred.
    """

    def __init__(self, tick: float = 0.5, *, clock: Callable[[], float] = trio.current_time) -> None:
        """*tick* is the upper bound of one wait, in seconds."""
        if not tick > 0:
            raise ValueError(f"tick must be above 0, not {tick}")
        self._tick = tick
        self._clock = clock
        self._entries: dict[K, tuple[float, int, K]] = {}
        # May also hold entries that were cancelled or replaced; those are not the ones in _entries.
        self._heap: list[tuple[float, int, K]] = []
        self._count = 0
        self._is_processed = False
        self._earlier = trio.lowlevel.ParkingLot()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[tuple[float, K]]:
        """Go through due times and keys in the order of release."""
        for until, _, key in sorted(self._entries.values(), key=lambda entry: entry[:2]):
            yield until, key

    def defer(self, key: K, until: float, *, override: bool = False) -> None:
        """Release *key* at *until*, or at its present due time if that is earlier.

        With *override* the new time holds even if it is later. NaN raises ValueError.
        """
        if until != until:  # noqa: PLR0124 - NaN, and faster than a call
            raise ValueError("a due time cannot be NaN")
        present = self._entries.get(key)
        if present is not None and not override and present[0] <= until:
            return
        self._count += 1
        entry = (until, self._count, key)
        self._entries[key] = entry
        heappush(self._heap, entry)
        if self._heap[0] is entry:
            self._earlier.unpark_all()
        if present is not None:
            self._shrink()

    def cancel(self, key: K) -> bool:
        """Drop the deferral of *key*; False if there was none."""
        if self._entries.pop(key, None) is None:
            return False
        self._shrink()
        return True

    def clear(self) -> None:
        """Drop all deferrals."""
        self._entries.clear()
        self._heap.clear()

    def due(self, key: K) -> float | None:
        """Return when *key* is due, or None if it is not deferred."""
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def next_due(self) -> float | None:
        """Return the earliest due time, or None if nothing is deferred."""
        heap = self._heap
        while heap and self._entries.get(heap[0][2]) is not heap[0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def release(self, callback: Callable[[K], None], *, limit: int = sys.maxsize) -> int:
        """Hand every key that is due to *callback*, *limit* at most, and return how many that were."""
        now = self._clock()
        released = 0
        while released < limit and (due := self.next_due()) is not None and due <= now:
            _, _, key = heappop(self._heap)
            del self._entries[key]
            callback(key)
            released += 1
        return released

    async def process(self, callback: Callable[[K], None]) -> NoReturn:
        """Release keys to *callback* as they fall due, until cancelled; other keys stay deferred.

        A second call while the first runs raises RuntimeError.
        """
        if self._is_processed:
            raise RuntimeError("this DeferQueue is being processed already")
        self._is_processed = True
        looked_at: float | None = None
        try:
            while True:
                if self.release(callback, limit=_BATCH) == _BATCH:
                    await trio.lowlevel.checkpoint()
                    continue
                due, now = self.next_due(), self._clock()
                wake = math.inf if due is None else due - _LEAD
                if due is not None and now >= wake:
                    if now != looked_at:
                        looked_at = now
                        await trio.lowlevel.checkpoint()
                        continue
                    # A virtual clock stands still while we look.
                    wake = due
                # Nothing is awaited between the look at the heap and park(), so no earlier deferral is missed.
                with trio.CancelScope(deadline=min(wake, now + self._tick if self._entries else math.inf)):
                    await self._earlier.park()
        finally:
            self._is_processed = False

    def _shrink(self) -> None:
        if len(self._heap) > 2 * len(self._entries) + _SLACK:
            self._heap = list(self._entries.values())
            heapify(self._heap)
