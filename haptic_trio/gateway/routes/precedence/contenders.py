"""Contenders: routes reduced to what decides whether one displaces another on a listener, the oldest first."""

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from haptic_trio.gateway.hostnames import ANY, is_hostname, wider
from haptic_trio.gateway.objects import GROUP, Resource, Same, age_of, dig, items_of, name_of, namespace_of, text_of

Order = tuple[Any, ...]
Owner = tuple[str, str, str]
"""Kind, namespace and name of an owner of listeners."""
_FEW: Final = 32
"""Number of routes up to which an index is made for each question instead of being cached."""
_KNOWN: Final = 16
"""Maximum number of cached indexes."""
_LAST: Final = "\U0010ffff"
"""Sorts after each character of a host name."""


class Contender(NamedTuple):
    """A route that may displace others."""

    order: Order
    """Its place among the routes of both kinds: the smaller one wins."""
    kind: str
    namespace: str
    name: str
    hostnames: tuple[str, ...]
    """As by `hostnames_of`."""
    listeners: frozenset[tuple[str, int | None]]
    """The names (empty: any) and ports (None: any) of the listeners that it refers to."""

    def refers_to(self, name: str, port: int) -> bool:
        """Whether it refers to the listener *name* with *port*."""
        return any(one in ("", name) and number in (None, port) for one, number in self.listeners)


def contender_of(route: Resource, kind: str, owner: Owner) -> Contender:
    """Return *route*, a route of *kind*, as a contender for listeners of *owner*."""
    order = *age_of(route), kind == "GRPCRoute"
    listeners = frozenset((section, port) for one, section, port in _references(route) if one == owner)
    return Contender(order, kind, namespace_of(route), name_of(route), hostnames_of(route), listeners)


def hostnames_of(route: Resource) -> tuple[str, ...]:
    """Return the host names of *route*, in lower case; `ANY` if it has none."""
    names = tuple(str(name).lower() for name in items_of(route, "spec", "hostnames") if isinstance(name, str))
    return tuple(dict.fromkeys(names)) or (ANY,)


class Oldest(msgspec.Struct, frozen=True):
    """Asks for the oldest contenders among the routes of one kind; younger ones may change at no cost.

    Of routes of a namespace with the same host names and listeners only the
    oldest one is a contender: it is displaced only by what displaces the
    others, too.
    """

    owner: Owner
    """They refer to listeners of this owner, for all of which there is one lookup."""
    before: Order
    """They are older than this."""
    domain: str
    """They have a host name in common with this one."""
    count: int
    """Only so many."""
    listener: tuple[str, int] | None = None
    """They refer to the listener with this name and port."""
    without: frozenset[str] = frozenset()
    """They are not in these namespaces."""

    def __call__(self, found: Sequence[Resource]) -> tuple[Contender, ...]:
        """Return those of the routes *found*, the oldest first."""
        if not found:
            # Nearly always: few clusters have hosts with routes of both kinds.
            return ()
        routes = _Routes(found) if len(found) <= _FEW else _known_routes(Same(found))
        return routes.of(self).oldest(self)


class _Index:
    """Contenders by age and by host name."""

    def __init__(self, contenders: Sequence[Contender]) -> None:
        self._contenders = contenders
        self._orders = [contender.order for contender in contenders]
        self._having: dict[str, list[int]] = {}
        for position, contender in enumerate(contenders):
            for hostname in contender.hostnames:
                if not hostname or is_hostname(hostname):
                    self._having.setdefault(hostname, []).append(position)
        # Read from their ends, the hosts below a domain follow each other.
        self._reversed = sorted(hostname[::-1] for hostname in self._having)

    def oldest(self, wanted: Oldest) -> tuple[Contender, ...]:
        end = bisect_left(self._orders, wanted.before)
        if wanted.domain == ANY:
            return tuple(self._contenders[: min(end, wanted.count)])
        names = dict.fromkeys((wanted.domain, ANY, *wider(wanted.domain), *self._below(wanted.domain)))
        positions = {position for name in names for position in self._having.get(name, ()) if position < end}
        return tuple(self._contenders[position] for position in sorted(positions)[: wanted.count])

    def _below(self, domain: str) -> list[str]:
        if not domain.startswith("*."):
            return []
        start = domain[:0:-1]
        names = self._reversed[bisect_left(self._reversed, start) : bisect_left(self._reversed, start + _LAST)]
        return [name[::-1] for name in names]


class _Routes:
    """Routes of one kind by the owners of listeners that they refer to."""

    def __init__(self, found: Sequence[Resource]) -> None:
        self._by_owner: dict[Owner, dict[int, Resource]] = {}
        for position, route in enumerate(found):
            for owner, _, _ in _references(route):
                self._by_owner.setdefault(owner, {})[position] = route
        self._contenders: dict[Owner, tuple[Contender, ...]] = {}
        self._indexes: dict[Hashable, _Index] = {}

    def of(self, wanted: Oldest) -> _Index:
        """Return the contenders for the listeners that *wanted* names."""
        key = wanted.owner, wanted.listener, wanted.without
        index = self._indexes.get(key)
        if index is None:
            found = self._of_owner(wanted.owner)
            index = self._indexes[key] = _Index([one for one in found if _is_wanted(one, wanted)])
        return index

    def _of_owner(self, owner: Owner) -> tuple[Contender, ...]:
        """Return the contenders for all listeners of *owner*, the oldest first; read once, however many listeners."""
        known = self._contenders.get(owner)
        if known is None:
            routes = self._by_owner.get(owner, {}).values()
            contenders = [contender_of(route, text_of(route, "kind"), owner) for route in routes]
            oldest: dict[Hashable, Contender] = {}
            for one in sorted(contenders, key=lambda one: one.order):
                oldest.setdefault((one.namespace, one.hostnames, one.listeners), one)
            known = self._contenders[owner] = tuple(oldest.values())
        return known


def _is_wanted(contender: Contender, wanted: Oldest) -> bool:
    return contender.namespace not in wanted.without and (
        wanted.listener is None or contender.refers_to(*wanted.listener)
    )


def _references(route: Resource) -> Iterator[tuple[Owner, str, int | None]]:
    """Yield the owner, the name (empty: all) and the port (None: all) of the listeners that *route* refers to."""
    namespace = namespace_of(route)
    for reference in items_of(route, "spec", "parentRefs"):
        if (text_of(reference, "group") or GROUP) == GROUP:
            kind, parent = text_of(reference, "kind") or "Gateway", text_of(reference, "namespace") or namespace
            port = dig(reference, "port")
            if port is None or isinstance(port, int):
                yield (kind, parent, text_of(reference, "name")), text_of(reference, "sectionName"), port


@lru_cache(maxsize=_KNOWN)
def _known_routes(found: Same[Sequence[Resource]]) -> _Routes:
    # Each route of a listener asks: for all of them the routes are sorted once.
    return _Routes(found.found)
