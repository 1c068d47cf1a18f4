"""Ready keys in running order: by priority, then by arrival.

Every sixteenth key taken is the oldest of any priority, so that a steady
stream of urgent keys cannot starve the others.

Each priority has a deque. A key that is raised is appended to the deque of its
new priority and leaves its old place behind as a mark of its age; places of
keys that are gone are skipped when they come to the front.
"""

from bisect import insort
from collections import deque
from collections.abc import Hashable, Iterator
from operator import neg
from typing import Generic, TypeVar

import msgspec

K = TypeVar("K", bound=Hashable)

AGING_INTERVAL = 16
"""One in this many takes serves the oldest key, whatever its priority."""


class Entry(msgspec.Struct, Generic[K], eq=False):
    """One ready key."""

    key: K
    priority: int
    birth: int
    """Position among all keys ever added; a raise does not change it."""
    since: float
    """When the key became ready; the owner of a taken entry may reuse it."""
    taken: bool = False


class _Class(msgspec.Struct, Generic[K], eq=False):
    places: deque[Entry[K]]
    live: int = 0


class ReadyList(Generic[K]):
    """A FIFO of unique keys for each priority; higher priorities first."""

    def __init__(self) -> None:
        self._entries: dict[K, Entry[K]] = {}
        self._classes: dict[int, _Class[K]] = {}
        self._order: list[int] = []
        self._births = 0
        self._taken = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[Entry[K]]:
        """Go through the entries by priority, first come first; aging is left out of account."""
        for priority in self._order:
            for entry in self._classes[priority].places:
                if not entry.taken and entry.priority == priority:
                    yield entry

    def add(self, key: K, priority: int, now: float) -> bool:
        """Append *key*, or raise it to the tail of a higher *priority*; True if it is new."""
        entry = self._entries.get(key)
        if entry is None:
            self._births += 1
            self._entries[key] = entry = Entry(key, priority, self._births, now)
            self._append(entry)
            return True
        if priority > entry.priority:
            self._classes[entry.priority].live -= 1
            entry.priority = priority
            self._append(entry)
        return False

    def take(self) -> Entry[K]:
        """Remove and return the next entry; IndexError if there is none."""
        if not self._entries:
            raise IndexError("nothing is ready")
        self._taken += 1
        # With one class left its first key is the oldest too.
        aging = self._taken % AGING_INTERVAL == 0 and len(self._order) > 1
        entry = self._take_oldest() if aging else self._take_first()
        entry.taken = True
        del self._entries[entry.key]
        self._classes[entry.priority].live -= 1
        if len(self._order) > 1:
            self._drop_empty_classes()
        return entry

    def depths(self) -> dict[int, int]:
        """Return the number of keys of each priority."""
        return {priority: self._classes[priority].live for priority in self._order if self._classes[priority].live}

    def _append(self, entry: Entry[K]) -> None:
        cls = self._classes.get(entry.priority)
        if cls is None:
            cls = self._classes[entry.priority] = _Class(deque())
            insort(self._order, entry.priority, key=neg)
        cls.places.append(entry)
        cls.live += 1

    def _take_first(self) -> Entry[K]:
        priority = next(priority for priority in self._order if self._classes[priority].live)
        places = self._classes[priority].places
        # Whatever was raised out of this priority and is not taken yet would make a higher one come first.
        while (entry := places.popleft()).taken:
            pass
        return entry

    def _take_oldest(self) -> Entry[K]:
        fronts = []
        for cls in self._classes.values():
            while cls.places and cls.places[0].taken:
                cls.places.popleft()
            if cls.places:
                fronts.append(cls.places)
        # The first place of the oldest key is at a front: whatever stood before it was older, so it is gone.
        return min(fronts, key=lambda places: places[0].birth).popleft()

    def _drop_empty_classes(self) -> None:
        """Forget priorities without a place, and all places once no key is left."""
        gone = [p for p in self._order if not self._entries or not self._classes[p].places]
        for priority in gone:
            self._order.remove(priority)
            del self._classes[priority]
