"""Hosts that a line of a crt-list excludes from a wildcard, with a share of the line for each namespace.

HAProxy limits the length of a line. So a namespace with very many hosts below
a wildcard must leave room for the hosts of others, and must not take the
certificate of the wildcard from its owner.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

Owned: TypeAlias = tuple[str, Iterable[str]]
"""A namespace and its hosts, the first ones first."""
_AROUND = len(" !")


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """The room for excluded hosts in a line, and the share of it that each namespace gets."""

    hosts: int
    size: int
    """Characters."""
    share_hosts: int
    share_size: int
    """Characters."""


class Exclusion:
    """The hosts that are excluded so far."""

    def __init__(self, room: Room) -> None:
        self.hosts: set[str] = set()
        self._room = room
        self._size = 0
        self._shares: dict[str, tuple[int, int]] = {}

    def add_shares(self, owned: Iterable[Owned]) -> bool:
        """Add the share of each namespace, at least one host; return whether the line has room for all of them."""
        for namespace, hosts in owned:
            count, size = self._shares.get(namespace, (0, 0))
            for host in hosts:
                length = len(host) + _AROUND
                if count and (count >= self._room.share_hosts or size + length > self._room.share_size):
                    break
                if not self._add(host):
                    return False
                count, size = count + 1, size + length
            self._shares[namespace] = count, size
        return True

    def add_rest(self, owned: Iterable[Owned]) -> None:
        """Add further hosts, one of each namespace in turn, as long as the line has room."""
        waiting = [iter(hosts) for _, hosts in owned] if len(self.hosts) < self._room.hosts else []
        while waiting:
            turn, waiting = waiting, []
            for hosts in turn:
                host = next((one for one in hosts if one not in self.hosts), None)
                if host is None:
                    continue
                if not self._add(host):
                    return
                waiting.append(hosts)

    def _add(self, host: str) -> bool:
        if host in self.hosts:
            return True
        size = self._size + len(host) + _AROUND
        if len(self.hosts) >= self._room.hosts or size > self._room.size:
            return False
        self.hosts.add(host)
        self._size = size
        return True


def choose(groups: Iterable[Sequence[Owned]], room: Room) -> tuple[str, ...]:
    """Return which hosts of *groups* a line with *room* excludes, in order; those of the first group go first."""
    exclusion = Exclusion(room)
    known = list(groups)
    for group in known:
        exclusion.add_shares(group)
    for group in known:
        exclusion.add_rest(group)
    return tuple(sorted(exclusion.hosts))
