"""Shares of namespaces in the servers that one deployment changes.

Each namespace gets an equal share of the room, and what it does not need is
divided between the others. So the changes of a namespace with few of them do
not wait for those of a namespace with thousands.
"""

from collections.abc import Iterable, Mapping
from typing import Final
from zlib import crc32

from haptic_trio.haproxy.model import Section

SERVERS_AT_ONCE: Final = 250
"""Servers that one deployment changes at runtime, so that the next one, with newer changes, starts soon."""


def owner_of(section: Section) -> str:
    """Return the namespace of *section*: its name up to the first `_`, without a first part such as `gateway::`.

    The template functions `ident` and `gateway_api.backend_name` make such
    names. Sections with other names count as one namespace for each beginning.
    """
    kind, separator, rest = section.name.partition("::")
    return (rest if separator else kind).partition("_")[0]


class Shares:
    """Shares of namespaces in the room for changed servers."""

    def __init__(self, wanted: Iterable[tuple[str, int]], room: int, seed: str) -> None:
        """*wanted*: namespace and number of changed servers of each section; several sections may have one namespace.

        Equal numbers and the sections of a namespace are ordered by *seed*, so
        that with another seed others come first.
        """
        self._seed = seed
        self._totals: dict[str, int] = {}
        for owner, count in wanted:
            self._totals[owner] = self._totals.get(owner, 0) + count
        self._left = share_room(dict(sorted(self._totals.items(), key=lambda one: self.order_of(one[0]))), room)
        self._given = dict(self._left)

    def rank(self, section: Section) -> tuple[int, int, int]:
        """Return the place of *section* in the order of changes: the namespace with the fewest changes first."""
        owner = owner_of(section)
        return self._totals.get(owner, 0), self.order_of(owner), self.order_of(section.name)

    def order_of(self, name: str) -> int:
        """Return a number that depends on *name* and the seed alone."""
        return crc32(f"{self._seed}\0{name}".encode(errors="surrogateescape"))

    def left(self, section: Section) -> int:
        """Return how many servers of the namespace of *section* may still change."""
        return self._left.get(owner_of(section), 0)

    def is_untouched(self, section: Section) -> bool:
        """Whether the namespace of *section* has a share, and none of it was taken."""
        return self.left(section) == self._given.get(owner_of(section), 0) > 0

    def take(self, section: Section, count: int) -> None:
        """Take *count* changed servers from the share of the namespace of *section*."""
        self._left[owner_of(section)] = max(0, self.left(section) - count)


def share_room(wanted: Mapping[str, int], room: int) -> dict[str, int]:
    """Return the share of each key of *wanted* in *room*.

    The smallest come first, then the order of *wanted* counts. None gets more
    than it wants, and none with a larger number gets less than another.
    """
    shares: dict[str, int] = {}
    for owner, count in sorted(wanted.items(), key=lambda one: one[1]):
        # Rounded up: with more keys than room, the first ones get 1 each.
        shares[owner] = min(count, -(-room // (len(wanted) - len(shares))))
        room -= shares[owner]
    return shares
