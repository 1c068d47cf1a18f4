"""The Gateway that holds a port, where all Gateways share an address.

A listener claims its port for its Gateway, from the moment when both the
Gateway and the owner of the listener exist: their younger age is that of the
claim. So a new ListenerSet takes no port from a Gateway that is older than the
set, however old the set's own Gateway is. No two Gateways have claims of one
age, and the oldest claim holds the port.

A claim counts if its listener can be served as far as Gateways, ListenerSets
and Namespaces say. Secrets and other objects that a listener refers to do not
count: while a Secret is absent, no other Gateway gets the connections.

Each question is about one port, and its answer about all Gateways at once. The
answer depends on the claim that holds the port, and on those older ones that do
not count. Younger claims change at no cost.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeAlias

import msgspec

from haptic_trio.gateway.listeners.listener_limits import beyond_among
from haptic_trio.gateway.listeners.listeners import (
    allows_namespace,
    class_of,
    combine,
    is_rejected,
    may_open_port,
    namespaces_in,
    opens_port,
    parent_key,
)
from haptic_trio.gateway.listeners.port_limits import Key, ports_beyond
from haptic_trio.gateway.listeners.port_rules import PortRules
from haptic_trio.gateway.objects import (
    Lookups,
    Resource,
    Same,
    age_of,
    bare,
    derived,
    dig,
    name_of,
    namespace_of,
    shared,
    text_of,
)

Age: TypeAlias = tuple[str, str, str, str]
"""See `age_of`, with the kind of the object: a ListenerSet may have the namespace and name of a Gateway."""

_GROWTH: Final = 8
"""Claims are asked for in batches, each this many times as large as those before."""


class _Claim(msgspec.Struct, frozen=True):
    """A claim of a port, as far as the owner of the listener shows."""

    age: Age
    """Of the owner."""
    gateway: Key


def holder_of(port: int, lookups: Lookups, classes: frozenset[str], rules: PortRules) -> Key | None:
    """Return the Gateway of *classes* that holds *port*, which *rules* allow; None without one."""
    return shared(lookups, ("port holder", port, classes, rules), lambda: _holder_of(port, lookups, classes, rules))


def _holder_of(port: int, lookups: Lookups, classes: frozenset[str], rules: PortRules) -> Key | None:
    oldest: tuple[Age, Key] | None = None
    for claim in _in_order(lookups, "gatewaysByPort", port, partial(_OfGateways, port, classes)):
        if port not in ports_beyond(claim.gateway, "Gateway", claim.gateway[0], lookups, classes, rules):
            oldest = claim.age, claim.gateway
            break
    for claim in _in_order(lookups, "listenerSetsByPort", port, partial(_OfSets, port)):
        if oldest is not None and claim.age > oldest[0]:
            break
        age = _age_by_set(claim, port, lookups, classes, rules)
        if age is not None and (oldest is None or age < oldest[0]):
            oldest = age, claim.gateway
    return oldest[1] if oldest is not None else None


def _in_order(
    lookups: Lookups,
    store: str,
    port: int,
    first: Callable[[int], Callable[[Sequence[Resource]], tuple[_Claim, ...]]],
) -> Iterator[_Claim]:
    """Yield the claims that owners in *store* have on *port*, the oldest first.

    *first* makes an aspect of a number: so many of the oldest claims. A
    dependent depends on those that it takes, and on few more.
    """
    known, size = 0, 1
    while True:
        found = derived(lookups, store, first(size), str(port))
        yield from found[known:]
        if len(found) < size:
            return
        known, size = size, size * _GROWTH


class _OfGateways(msgspec.Struct, frozen=True):
    """The oldest claims that Gateways have by listeners of their own, one of each namespace.

    The limit on ports rejects a port for all Gateways of a namespace, or for none.
    """

    port: int
    classes: frozenset[str]
    most: int

    def __call__(self, found: Sequence[Resource]) -> tuple[_Claim, ...]:
        claims: dict[str, _Claim] = {}
        for gateway in sorted(found, key=age_of):
            namespace = namespace_of(gateway)
            if namespace not in claims and self._has_claim(gateway):
                claims[namespace] = _Claim((*age_of(gateway), "Gateway"), (namespace, name_of(gateway)))
                if len(claims) == self.most:
                    break
        return tuple(claims.values())

    def _has_claim(self, gateway: Resource) -> bool:
        return class_of([gateway]) in self.classes and not is_rejected(gateway) and opens_port(gateway, self.port)


class _OfSets(msgspec.Struct, frozen=True):
    """The oldest ListenerSets with a listener on a port, whatever their Gateways say."""

    port: int
    most: int

    def __call__(self, found: Sequence[Resource]) -> tuple[_Claim, ...]:
        claims: list[_Claim] = []
        for listener_set in sorted(found, key=age_of):
            key = parent_key(listener_set)
            if key is not None and may_open_port(listener_set, self.port):
                claims.append(_Claim((*age_of(listener_set), "ListenerSet"), key))
                if len(claims) == self.most:
                    break
        return tuple(claims)


def _age_by_set(claim: _Claim, port: int, lookups: Lookups, classes: frozenset[str], rules: PortRules) -> Age | None:
    """Return the age of the *claim* of a ListenerSet; None if it does not count."""
    gateway = bare(lookups, "gateways", *claim.gateway)
    if gateway is None or class_of([gateway]) not in classes or is_rejected(gateway):
        return None
    _, namespace, name, _ = claim.age
    namespaces = _namespaces_of_sets(gateway, lookups)
    if namespaces is not None and namespace not in namespaces:
        return None
    if port in ports_beyond(claim.gateway, "ListenerSet", namespace, lookups, classes, rules):
        return None
    served = _IsServable(Same(gateway), namespaces, (namespace, name), port, rules.listeners, rules.own_listeners)
    if not derived(lookups, "listenerSetsByGateway", served, "/".join(claim.gateway)):
        return None
    return max(claim.age, (*age_of(gateway), "Gateway"))


def _namespaces_of_sets(gateway: Resource, lookups: Lookups) -> frozenset[str] | None:
    """Return the namespaces whose ListenerSets *gateway* allows, of those that have some for it; None for all."""
    allowed = dig(gateway, "spec", "allowedListeners", "namespaces")
    own = namespace_of(gateway)
    match text_of(allowed, "from"):
        case "All":
            return None
        case "Same":
            return frozenset({own})
        case "Selector":
            found = derived(lookups, "listenerSetsByGateway", _namespaces_among, f"{own}/{name_of(gateway)}")
            return frozenset(one for one in found if allows_namespace(allowed, "None", own, one, lookups))
    return frozenset()


def _namespaces_among(found: Sequence[Resource]) -> frozenset[str]:
    return namespaces_in(Same(found))


class _IsServable(msgspec.Struct, frozen=True):
    """Whether a ListenerSet has a servable listener on a port, among all ListenerSets for its Gateway."""

    gateway: Same[Resource]
    namespaces: frozenset[str] | None
    """Those whose ListenerSets the Gateway allows; None for all."""
    owner: Key
    """Namespace and name of the ListenerSet."""
    port: int
    listeners: int
    own_listeners: int

    def __call__(self, found: Sequence[Resource]) -> bool:
        namespaces = _namespaces_among(found) if self.namespaces is None else self.namespaces
        combined = combine(self.gateway, Same(found), namespaces)
        own = namespace_of(self.gateway.found)
        beyond = beyond_among(combined.listeners, own, self.listeners, self.own_listeners)
        return any(
            listener.port == self.port and listener.is_servable and listener.key not in beyond
            for listener in combined.of_sets.get(self.owner, ())
        )
