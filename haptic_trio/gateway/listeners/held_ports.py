"""Ports that a Gateway cannot have, because an older one holds them or for another reason.

Each question is about one port, and its answer about all Gateways at once:
who has asked depends on nothing but the oldest Gateway with that port, and
what is found for one Gateway is found for all.
"""

import json
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import partial
from hashlib import sha256
from typing import Final, TypeAlias

import msgspec

from haptic_trio.gateway.answers import Answers, Record
from haptic_trio.gateway.listeners.listeners import (
    accepts_port,
    all_listeners,
    class_of,
    parent_key,
    selects,
    wants_port,
)
from haptic_trio.gateway.listeners.port_limits import ports_beyond
from haptic_trio.gateway.listeners.port_rules import BEYOND, HELD, PortRules, taken_reason
from haptic_trio.gateway.objects import (
    Lookups,
    Resource,
    age_of,
    derived,
    dig,
    name_of,
    namespace_of,
    text_of,
)

PORT_STORES: Final = ("gatewaysByPort", "listenerSetsByPort")
"""The stores to look up the owners of a port in."""

Age: TypeAlias = tuple[str, str, str]
"""See `age_of`: that of one Gateway comes before those of all younger ones."""


class _Distinct:
    """A large set of entries, hashed once and compared by digest."""

    __slots__ = ("_digest", "entries")

    def __init__(self, entries: Iterable[tuple[str, ...]]) -> None:
        self.entries = tuple(sorted(set(entries)))
        self._digest = sha256(repr(self.entries).encode()).digest()

    def __bool__(self) -> bool:
        return bool(self.entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Distinct) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)


class _NamesOf(msgspec.Struct, frozen=True):
    """The names of the classes of a controller."""

    controller: str

    def __call__(self, found: Sequence[Resource]) -> frozenset[str]:
        names = (name_of(one) for one in found if text_of(one, "spec", "controllerName") == self.controller)
        return frozenset(name for name in names if name)


class _Oldest(msgspec.Struct, frozen=True):
    """The age of the oldest Gateway that itself has an accepted listener on a port."""

    port: int
    classes: frozenset[str]

    def __call__(self, found: Sequence[Resource]) -> Age | None:
        oldest: Age | None = None
        for gateway in found:
            age = age_of(gateway) if class_of([gateway]) in self.classes else None
            if age is not None and (oldest is None or age < oldest) and accepts_port(gateway, self.port):
                oldest = age
        return oldest


class _Claims(msgspec.Struct, frozen=True):
    """For which Gateways, and from which namespaces, ListenerSets have a listener on a port."""

    port: int

    def __call__(self, found: Sequence[Resource]) -> _Distinct:
        return _Distinct(
            (*parent, namespace_of(one))
            for one in found
            if (parent := parent_key(one)) is not None and wants_port(one, self.port)
        )


class _Claimed(msgspec.Struct, frozen=True):
    """The ages of the Gateways that ListenerSets are for."""

    age: Age | None
    """Of the oldest one that surely allows one of them."""
    undecided: _Distinct
    """Of older ones with selectors: each age, a selector as JSON, and the namespace of a ListenerSet."""


class _OldestClaimed(msgspec.Struct, frozen=True):
    """The oldest of the Gateways that ListenerSets are for, among all Gateways."""

    claims: _Distinct
    classes: frozenset[str]

    def __call__(self, found: Sequence[Resource]) -> _Claimed:
        oldest: Age | None = None
        undecided: list[tuple[str, ...]] = []
        for namespace, name, origin in self.claims.entries:
            gateway = _at(found, (namespace, name))
            if gateway is None or class_of([gateway]) not in self.classes:
                continue
            age, allowed = age_of(gateway), dig(gateway, "spec", "allowedListeners", "namespaces")
            if oldest is not None and age >= oldest:
                continue
            whence = text_of(allowed, "from")
            if whence == "All" or (whence == "Same" and origin == namespace):
                oldest = age
            elif whence == "Selector":
                undecided.append((*age, json.dumps(dig(allowed, "selector"), sort_keys=True), origin))
        return _Claimed(oldest, _Distinct(one for one in undecided if oldest is None or one[:3] < oldest))


class _OldestSelecting(msgspec.Struct, frozen=True):
    """The age of the oldest of Gateways whose selector covers a Namespace, among all Namespaces."""

    undecided: _Distinct

    def __call__(self, found: Sequence[Resource]) -> Age | None:
        for *age, selector, origin in self.undecided.entries:
            namespace = _at(found, ("", origin))
            if namespace is not None and selects(json.loads(selector), dig(namespace, "metadata", "labels")):
                return age[0], age[1], age[2]
        return None


def _at(found: Sequence[Resource], key: tuple[str, str]) -> Resource | None:
    """Return the object with the namespace and name *key* of *found*, which is ordered by them."""
    place = bisect_left(found, key, key=_key)
    return found[place] if place < len(found) and _key(found[place]) == key else None


def _key(resource: Resource) -> tuple[str, str]:
    return namespace_of(resource), name_of(resource)


def unavailable_ports(
    gateway: Resource, lookups: Lookups, controller: str, rules: PortRules, addresses: Sequence[str] = ()
) -> dict[int, str]:
    """Return the ports of listeners of *gateway* that it cannot have, each with the reason.

    *addresses* are its own, where each Gateway has some. Where all share an
    address, ports of older Gateways and of other frontends are among them.
    Ports beyond the limit of a namespace always are.
    """
    owners: dict[int, set[tuple[str, str]]] = {}
    for listener in all_listeners(gateway, lookups):
        if listener.is_accepted:
            owners.setdefault(listener.port, set()).add((listener.kind, listener.namespace))
    classes = classes_of(lookups, controller)
    beyond = {
        (kind, namespace): ports_beyond(gateway, kind, namespace, lookups, classes, rules)
        for kind, namespace in sorted(set().union(*owners.values()))
    }
    reasons = {}
    for port in sorted(owners):
        # One owner that may have the port is enough: the others use the same frontend.
        is_beyond = all(port in beyond[owner] for owner in owners[port])
        reasons[port] = _reason(gateway, port, lookups, classes, rules, addresses, is_beyond=is_beyond)
    return {port: reason for port, reason in reasons.items() if reason}


def classes_of(lookups: Lookups, controller: str) -> frozenset[str]:
    """Return the names of all GatewayClasses of *controller*."""
    return derived(lookups, "gatewayClasses", _NamesOf(controller))


def _reason(
    gateway: Resource,
    port: int,
    lookups: Lookups,
    classes: frozenset[str],
    rules: PortRules,
    addresses: Sequence[str],
    *,
    is_beyond: bool,
) -> str:
    rejection = rules.rejection(port)
    if rejection:
        return rejection
    if not rules.pool and (port in rules.shared or _is_held(port, age_of(gateway), lookups, classes)):
        return HELD
    if is_beyond:
        return BEYOND
    return taken_reason(lookups, port, addresses, rules.pool)


def _is_held(port: int, own: Age, lookups: Lookups, classes: frozenset[str]) -> bool:
    """Whether a Gateway that is older than *own* has *port*, by itself or by a ListenerSet.

    The oldest with a listener that can be served has the port. Listeners of
    sets conflict with those that are served, so a set counts where one of
    them is for the port, whichever that is.
    """
    oldest = derived(lookups, "gatewaysByPort", _Oldest(port, classes), str(port))
    if oldest is not None and oldest < own:
        return True
    claims = derived(lookups, "listenerSetsByPort", _Claims(port), str(port))
    if not claims:
        return False
    claimed = derived(lookups, "gateways", _OldestClaimed(claims, classes))
    if claimed.age is not None and claimed.age < own:
        return True
    if not claimed.undecided:
        return False
    selecting = derived(lookups, "namespaces", _OldestSelecting(claimed.undecided))
    return selecting is not None and selecting < own


class HeldPorts:
    """Finds the unavailable ports of Gateways, with answers that are remembered while stores change."""

    def __init__(self, lookups: Lookups, controller: str, rules: PortRules) -> None:
        self._lookups = lookups
        self._controller = controller
        self.rules = rules
        self._answers = Answers(lookups)
        self._records: dict[tuple[str, str], Record] = {}
        """By the namespace and name of the Gateway; they keep its answers."""

    def unavailable(self, gateway: Resource, addresses: Sequence[str]) -> dict[int, str]:
        """Return the result of `unavailable_ports`."""
        if len(self._records) > 2 * len(self._lookups["gateways"]) + 100:
            self._records.clear()
        lookups = self._answers.lookups
        question = partial(unavailable_ports, gateway, lookups, self._controller, self.rules, addresses)
        taken, self._records[namespace_of(gateway), name_of(gateway)] = self._answers.record(question)
        return taken
