"""Attached routes of each listener, updated incrementally."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from haptic_trio.gateway.answers import Answers, Record
from haptic_trio.gateway.objects import Lookups, Resource, derived, found_in, name_of
from haptic_trio.gateway.routes.attachment import listeners_for
from haptic_trio.gateway.routes.kinds import RIVALS, ROUTE_KINDS, RouteKind

T = TypeVar("T")
ATTACHMENT_STORES: Final = ("gatewayClasses", "gateways", "listenerSets", "namespaces")
"""The stores, besides those of routes, that the attachment of a route depends on."""

_OWNERS: Final = ("gateways", "listenerSets")


class _Attached(msgspec.Struct, frozen=True):
    """The listeners of one route."""

    route: Resource
    keys: frozenset[str]
    has_rivals: bool
    record: Record


class _Counted(msgspec.Struct):
    """The counted routes of one kind for one owner of listeners."""

    routes: Sequence[Resource]
    versions: tuple[int, ...]
    """Versions of the stores that attachment depends on. While they stay, only routes with rivals can change."""
    counts: Counter[str]
    attached: dict[int, _Attached]
    """By the identity of the route."""


class _Noting:
    """A lookup that records whether it has found any object."""

    def __init__(self, lookup: Any) -> None:
        self._lookup = lookup
        self.has_found = False

    def list(self) -> Sequence[Any]:
        found: Sequence[Any] = self._lookup.list()
        self.has_found |= bool(found)
        return found

    def get(self, *keys: Any) -> Sequence[Any]:
        found: Sequence[Any] = self._lookup.get(*keys)
        self.has_found |= bool(found)
        return found

    def derive(self, aspect: Callable[[Sequence[Any]], T], *keys: str) -> T:
        found = derived({"": self._lookup}, "", aspect, *keys)
        self.has_found |= bool(found)
        return found


class Rivalry:
    """Finds out for a route of one kind whether routes of another kind may displace it.

    A displacing route may itself be displaced by routes of the first kind, so
    the result for such a route is valid until a route of either kind changes.
    """

    def __init__(self, kind: RouteKind, lookups: Lookups) -> None:
        rivals = RIVALS.get(kind.name)
        names = (rivals.by_host, rivals.without_host, rivals.by_gateway) if rivals is not None else ()
        self._noting = {name: _Noting(lookups[name]) for name in names if name in lookups}
        self._lookups: Lookups = {**lookups, **self._noting} if self._noting else lookups

    def ask(self, question: Callable[[Lookups], T]) -> tuple[T, bool]:
        """Return the answer to *question*, which is about one route, and whether that has rivals."""
        for one in self._noting.values():
            one.has_found = False
        answer = question(self._lookups)
        return answer, any(one.has_found for one in self._noting.values())


class AttachedRoutes:
    """Counts the routes of listeners; only routes whose lookups have changed are attached again."""

    def __init__(self, lookups: Lookups, controller: str) -> None:
        self._lookups = lookups
        self._controller = controller
        self._known: dict[tuple[str, str], _Counted] = {}
        self._answers = Answers(lookups)
        self._rivalries = {name: Rivalry(kind, self._answers.lookups) for name, kind in ROUTE_KINDS.items()}

    def counts(self, owner: Resource) -> dict[str, int]:
        """Return how many routes each listener of *owner*, a Gateway or a ListenerSet, has, by its key.

        The result may contain listeners of other owners, with any number.
        """
        self._forget()
        counts: Counter[str] = Counter()
        for kind in ROUTE_KINDS.values():
            counts.update(self._of_kind(kind, name_of(owner)))
        return counts

    def _forget(self) -> None:
        """Drop results of owners that may have been deleted."""
        owners = sum(len(self._lookups[name]) for name in _OWNERS if name in self._lookups)
        if len(self._known) > 2 * len(ROUTE_KINDS) * (owners + 1):
            self._known.clear()

    def _of_kind(self, kind: RouteKind, owner: str) -> Counter[str]:
        routes = found_in(self._lookups, kind.by_gateway, owner)
        rivals = RIVALS.get(kind.name)
        stores = (*ATTACHMENT_STORES, rivals.store) if rivals is not None else ATTACHMENT_STORES
        versions = tuple(self._lookups[store].version for store in stores)
        known = self._known.get((kind.name, owner))
        before = known.attached if known is not None else {}
        is_same = known is not None and known.versions == versions
        # Only these routes, and those of other kinds, can be attached to one of these listeners.
        if known is not None and is_same and known.routes is routes:
            return known.counts
        counted = _Counted(routes, versions, Counter(), {})
        # Most routes have the same listeners: counting those together is ten times as fast.
        alike: Counter[frozenset[str]] = Counter()
        for route in routes:
            found = before.get(id(route))
            is_certain = found is not None and is_same and not found.has_rivals
            if found is None or not (is_certain or self._answers.holds(found.record)):
                found = self._attached(kind, route)
            counted.attached[id(route)] = found
            alike[found.keys] += 1
        for keys, number in alike.items():
            counted.counts.update(dict.fromkeys(keys, number))
        self._known[kind.name, owner] = counted
        return counted.counts

    def _attached(self, kind: RouteKind, route: Resource) -> _Attached:
        question = partial(self._rivalries[kind.name].ask, partial(self._listeners_of, kind, route))
        (keys, has_rivals), record = self._answers.record(question)
        return _Attached(route, keys, has_rivals, record)

    def _listeners_of(self, kind: RouteKind, route: Resource, lookups: Lookups) -> frozenset[str]:
        return frozenset(listeners_for(route, kind.name, lookups, self._controller))
