"""Claimants: the routes with a common host and path. The oldest of each namespace count, and the others are omitted.

What a route asks about its claimants are aspects of a lookup. Of many
claimants, most ask for parts that stay the same when one of them changes:
otherwise a tenant with very many routes for a path would have each change of
another one render all of them again.
"""

from collections.abc import Sequence
from functools import lru_cache
from heapq import nsmallest
from typing import Final
from zlib import crc32

import msgspec

from haptic_trio.gateway.objects import (
    Resource,
    Same,
    age_of,
    bare_by_age,
    by_namespace,
    items_of,
    name_of,
    namespace_of,
)
from haptic_trio.gateway.paths import normal_path
from haptic_trio.gateway.routes.kinds import ROUTE_KINDS
from haptic_trio.gateway.routes.rules import certain_paths

MOST_ROUTES: Final = 256
"""Maximum number of routes of a namespace that count for a host and path."""
_FEW: Final = 32
"""Up to so many claimants depend on all others."""
_BLOCKS: Final = 64
"""If the oldest of very many routes is deleted, one becomes a claimant, and the routes of its block render again."""
_KNOWN: Final = 16
"""Maximum number of lookups whose claimants are cached."""


def few(found: Sequence[Resource]) -> tuple[Resource, ...] | None:
    """Return the routes *found*, reduced and the oldest first; None if there are many."""
    return bare_by_age(found) if len(found) <= _FEW else None


class Oldest(msgspec.Struct, frozen=True):
    """The oldest claimant, reduced to what decides whether others are younger claimants of the same path."""

    route: Resource
    """With hosts and parents only."""
    paths: frozenset[tuple[str, str]]
    """As by `certain_paths`, in the form in which they are compared."""


class WantsOldest(msgspec.Struct, frozen=True):
    """Asks for the oldest one of very many routes of a kind; its conditions and backends may change at no cost."""

    kind: str
    normalizes: bool
    """Whether paths are compared in their normal form."""

    def __call__(self, found: Sequence[Resource]) -> Oldest | None:
        """Return the oldest one of the routes *found*; None without one."""
        routes = counted(found)
        if not routes:
            return None
        route = routes[0]
        spec = {field: items_of(route, "spec", field) for field in ("hostnames", "parentRefs")}
        paths = certain_paths(route, ROUTE_KINDS[self.kind])
        known = ((kind, normal_path(path) if self.normalizes else path) for kind, path in paths)
        return Oldest({**route, "spec": spec}, frozenset(known))


def counted(found: Sequence[Resource]) -> tuple[Resource, ...]:
    """Return those of the routes *found* that count, reduced and the oldest first."""
    return _claimants(Same(found)).counted


class Names(msgspec.Struct, frozen=True):
    """Asks for the names of the routes of a namespace that count, in one block of names."""

    namespace: str
    block: int

    @classmethod
    def around(cls, route: Resource) -> "Names":
        """Return the question whose answer has the name of *route* if it counts."""
        return cls(namespace_of(route), _block_of(route))

    def __call__(self, found: Sequence[Resource]) -> tuple[bool, frozenset[str]]:
        """Return whether other routes of the namespace may be omitted, and the names."""
        claimants = _claimants(Same(found))
        return self.namespace in claimants.full, frozenset(claimants.names.get((self.namespace, self.block), ()))


def _block_of(route: Resource) -> int:
    return crc32(name_of(route).encode()) % _BLOCKS


def _age_in_namespace(route: Resource) -> tuple[str, str]:
    # As by `age_of`, in a third of the time: each change looks at all routes, however many there are.
    metadata = route["metadata"]
    created = metadata.get("creationTimestamp", "")
    return created if type(created) is str else age_of(route)[0], metadata["name"]


class _Claimants:
    """The routes of one lookup that count."""

    def __init__(self, found: Sequence[Resource]) -> None:
        kept: list[Resource] = []
        self.full: set[str] = set()
        """Namespaces with as many routes as count, or more."""
        for namespace, routes in by_namespace(found):
            if len(routes) >= MOST_ROUTES:
                self.full.add(namespace)
            kept += routes if len(routes) <= MOST_ROUTES else nsmallest(MOST_ROUTES, routes, _age_in_namespace)
        self.counted = bare_by_age(kept)
        """Reduced, and the oldest first."""
        self.names: dict[tuple[str, int], list[str]] = {}
        """By namespace and block."""
        for route in kept:
            self.names.setdefault((namespace_of(route), _block_of(route)), []).append(name_of(route))


@lru_cache(maxsize=_KNOWN)
def _claimants(found: Same[Sequence[Resource]]) -> _Claimants:
    return _Claimants(found.found)
