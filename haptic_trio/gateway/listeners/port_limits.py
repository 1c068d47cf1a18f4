"""The limit on the ports that the listeners of one namespace have.

A Gateway or ListenerSet claims each port that its listeners name; where each
Gateway has an address of its own, ports of different Gateways are different
claims. Of a namespace, the first claims are granted: those of Gateways, the
oldest first, then those of ListenerSets. Claims of other namespaces do not
count, so no namespace can use up the limit of another one.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

import msgspec

from haptic_trio.gateway.listeners.listeners import class_of, named_ports, parent_key
from haptic_trio.gateway.listeners.port_rules import PortRules
from haptic_trio.gateway.objects import Lookups, Resource, Same, age_of, derived, name_of, namespace_of

Key: TypeAlias = tuple[str, str]
"""The namespace and name of a Gateway."""
Claim: TypeAlias = tuple[str, str, int]
"""The `Key` of a Gateway, with empty texts where all Gateways share an address, and a port."""

_KNOWN: Final = 16


def ports_beyond(
    key: Key, kind: str, namespace: str, lookups: Lookups, classes: frozenset[str], rules: PortRules
) -> frozenset[int]:
    """Return the ports of the Gateway *key* that owners of listeners, of *kind* in *namespace*, cannot have.

    Where all Gateways share an address, all of a namespace can have a port, or none.
    """
    # The question has only what the answer depends on: it is compared for each Gateway.
    rules = msgspec.structs.replace(rules, pool=rules.pool[:1], shared=frozenset(), listeners=0, addresses=0)
    size = derived(lookups, "listenerSets", _Size(rules), namespace) if kind == "ListenerSet" else 0
    if size <= rules.most and derived(lookups, "gateways", _Fit(rules, classes, rules.most - size), namespace):
        return frozenset()
    if kind == "Gateway":
        return derived(lookups, "gateways", _Rejected(rules, classes, key), namespace)
    before = derived(lookups, "gateways", _Granted(rules, classes), namespace)
    return derived(lookups, "listenerSets", _RejectedOfSets(rules, before, key), namespace)


class _Fit(msgspec.Struct, frozen=True):
    """Whether the Gateways of a namespace have at most *room* claims."""

    rules: PortRules
    classes: frozenset[str]
    room: int

    def __call__(self, found: Sequence[Resource]) -> bool:
        return len({claim for _, claim in _of_gateways(found, self.rules, self.classes)}) <= self.room


class _Granted(msgspec.Struct, frozen=True):
    """The claims of the Gateways of a namespace that are within the limit."""

    rules: PortRules
    classes: frozenset[str]

    def __call__(self, found: Sequence[Resource]) -> frozenset[Claim]:
        return _verdict_on_gateways(Same(found), self.rules, self.classes).granted


class _Rejected(msgspec.Struct, frozen=True):
    """The ports of one Gateway that are beyond the limit, among all of its namespace."""

    rules: PortRules
    classes: frozenset[str]
    key: Key

    def __call__(self, found: Sequence[Resource]) -> frozenset[int]:
        return frozenset(_verdict_on_gateways(Same(found), self.rules, self.classes).rejected.get(self.key, ()))


class _Size(msgspec.Struct, frozen=True):
    """Number of claims of the ListenerSets of a namespace, rounded up to a power of two so that it rarely changes."""

    rules: PortRules

    def __call__(self, found: Sequence[Resource]) -> int:
        count = len({claim for _, claim in _of_sets(found, self.rules)})
        return 1 << (count - 1).bit_length() if count else 0


class _RejectedOfSets(msgspec.Struct, frozen=True):
    """The ports of ListenerSets for one Gateway that are beyond the limit, among all of a namespace."""

    rules: PortRules
    before: frozenset[Claim]
    key: Key

    def __call__(self, found: Sequence[Resource]) -> frozenset[int]:
        return frozenset(_verdict_on_sets(Same(found), self.rules, self.before).rejected.get(self.key, ()))


class _Verdict(NamedTuple):
    """The result of the claims of a namespace."""

    granted: frozenset[Claim]
    rejected: dict[Key, set[int]]
    """The ports beyond the limit of each Gateway."""


@lru_cache(maxsize=_KNOWN)
def _verdict_on_gateways(found: Same[Sequence[Resource]], rules: PortRules, classes: frozenset[str]) -> _Verdict:
    return _verdict(_of_gateways(sorted(found.found, key=age_of), rules, classes), rules.most, frozenset())


@lru_cache(maxsize=_KNOWN)
def _verdict_on_sets(found: Same[Sequence[Resource]], rules: PortRules, before: frozenset[Claim]) -> _Verdict:
    return _verdict(_of_sets(sorted(found.found, key=age_of), rules), rules.most, before)


def _verdict(claims: Iterable[tuple[Key, Claim]], most: int, before: frozenset[Claim]) -> _Verdict:
    granted = set(before)
    rejected: dict[Key, set[int]] = {}
    for key, claim in claims:
        if len(granted) < most:
            granted.add(claim)
        elif claim not in granted:
            rejected.setdefault(key, set()).add(claim[2])
    return _Verdict(frozenset(granted), rejected)


def _of_gateways(found: Iterable[Resource], rules: PortRules, classes: frozenset[str]) -> Iterator[tuple[Key, Claim]]:
    """Yield the Gateway and the claim for each port of the Gateways of *classes*."""
    for gateway in found:
        if class_of([gateway]) in classes:
            yield from _claims(gateway, (namespace_of(gateway), name_of(gateway)), rules)


def _of_sets(found: Iterable[Resource], rules: PortRules) -> Iterator[tuple[Key, Claim]]:
    """Yield the Gateway and the claim for each port of ListenerSets."""
    for listener_set in found:
        key = parent_key(listener_set)
        if key is not None:
            yield from _claims(listener_set, key, rules)


def _claims(owner: Resource, key: Key, rules: PortRules) -> Iterator[tuple[Key, Claim]]:
    for port in named_ports(owner):
        if not rules.rejection(port):
            yield key, ((*key, port) if rules.pool else ("", "", port))
