"""Assignment of pool addresses to Gateways."""

import ipaddress
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec

from haptic_trio.gateway.listeners.listeners import class_of
from haptic_trio.gateway.objects import (
    Lookups,
    Resource,
    age_of,
    derived,
    dig,
    generation_of,
    items_of,
    name_of,
    namespace_of,
    text_of,
)

Key: TypeAlias = tuple[str, str]
"""Namespace and name of a Gateway."""

IP_ADDRESS = "IPAddress"
_RETURNED: Final = 2
"""Generations by which the status of a Gateway is behind that has left its class and come back."""
BEYOND: Final = "the namespace has reached its limit of addresses (gatewayAddressesPerNamespace)"


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of a Gateway, or the reason why it has none."""

    addresses: tuple[str, ...] = ()
    unsupported: str = ""
    """A requested type of address that is not supported."""
    unusable: str = ""
    """The problem of a requested address that is not available, or of an exhausted pool."""


def place_gateways(
    gateways: Iterable[Resource],
    pool: Sequence[str],
    states: Mapping[Key, Any],
    most: int | None = None,
    behind: Mapping[Key, int] = MappingProxyType({}),
) -> dict[Key, Placement]:
    """Return the placement of each Gateway.

    A Gateway that has an address keeps it, unless it asks for others: no
    Gateway of any age takes an address from its holder. Free addresses go to
    the Gateways that ask for them, the oldest first, then to the others. With
    *most*, a namespace gets addresses up to this number, and keeps what it has
    beyond it. *states* holds `status` of Gateways, and *behind* the
    generations by which the statuses of `doubtful` ones are behind: these come
    last, and from `_RETURNED` generations on they keep nothing beyond *most*.
    """
    ordered = sorted(gateways, key=age_of)
    pool_of = _Pool(pool, most)
    for gateway in sorted(ordered, key=lambda one: behind.get(_key_of(one), 0)):
        is_limited = behind.get(_key_of(gateway), 0) >= _RETURNED
        pool_of.keep(gateway, states.get(_key_of(gateway)), is_limited=is_limited)
    placed: dict[Key, Placement] = {}
    for gateway in ordered:
        placement = pool_of.asked_for(gateway)
        if placement is not None:
            placed[_key_of(gateway)] = placement
    for gateway in ordered:
        if _key_of(gateway) not in placed:
            placed[_key_of(gateway)] = pool_of.any_one(gateway)
    return placed


def requested_addresses(gateway: Resource) -> tuple[str, ...]:
    """Return the addresses that *gateway* requests."""
    return tuple(map(_canonical, _values_of(gateway)))


def doubtful(states: Mapping[Key, Any], most: int | None) -> frozenset[Key]:
    """Return the Gateways whose statuses in *states* may have addresses that they have given up.

    A Gateway that was of another class, or asked for another address, for a
    while has them still. Another Gateway may have got such an address since,
    or its namespace others instead: these are the ones that have an address
    of another status, and those of a namespace with more than *most*.
    """
    holders: dict[str, set[Key]] = {}
    counts: Counter[str] = Counter()
    for key, status in states.items():
        for entry in items_of(status, "addresses"):
            holders.setdefault(_canonical(text_of(entry, "value")), set()).add(key)
            counts[key[0]] += 1
    contested = {key for keys in holders.values() if len(keys) > 1 for key in keys}
    return frozenset(key for key in states if key in contested or (most is not None and counts[key[0]] > most))


def generations_behind(keys: Iterable[Key], lookups: Lookups) -> dict[Key, int]:
    """Return by how many generations the status of each of the Gateways *keys* is behind its `spec`."""
    return {key: derived(lookups, "gatewayStates", _generations_behind, *key) for key in keys}


def _generations_behind(found: Sequence[Resource]) -> int:
    conditions = [one for gateway in found for one in items_of(gateway, "status", "conditions")]
    observed = (dig(one, "observedGeneration") for one in conditions if text_of(one, "type") == "Programmed")
    known = next((one for one in observed if isinstance(one, int)), 0)
    return max(0, generation_of(found[0]) - known) if found else 0


def placements(
    lookups: Lookups, classes: frozenset[str], pool: Sequence[str], most: int | None
) -> Mapping[Key, Placement]:
    """Return the placement of each Gateway of *classes*."""
    keys = derived(lookups, "gateways", _AskDoubtful(classes, most))
    behind = generations_behind(keys, lookups) if keys else {}
    return derived(lookups, "gateways", _AskPlacements(classes, tuple(pool), most, tuple(sorted(behind.items()))))


class _AskDoubtful(msgspec.Struct, frozen=True):
    """Asks which Gateways of some classes are `doubtful`."""

    classes: frozenset[str]
    most: int | None

    def __call__(self, found: Sequence[Resource]) -> frozenset[Key]:
        return doubtful(_states_of(_of_classes(found, self.classes)), self.most)


class _AskPlacements(msgspec.Struct, frozen=True):
    """Asks for the placements of the Gateways of some classes; of the status, the store has the addresses alone."""

    classes: frozenset[str]
    pool: tuple[str, ...]
    most: int | None
    behind: tuple[tuple[Key, int], ...]

    def __call__(self, found: Sequence[Resource]) -> Mapping[Key, Placement]:
        managed = _of_classes(found, self.classes)
        # Where a Gateway has been, it stays.
        return place_gateways(managed, self.pool, _states_of(managed), self.most, dict(self.behind))


def _of_classes(found: Sequence[Resource], classes: frozenset[str]) -> list[Resource]:
    return [gateway for gateway in found if class_of([gateway]) in classes]


def _states_of(gateways: Iterable[Resource]) -> dict[Key, Any]:
    return {_key_of(gateway): dig(gateway, "status") for gateway in gateways}


class _Pool:
    """The addresses of the pool, and the Gateway that has each of them."""

    def __init__(self, pool: Sequence[str], most: int | None) -> None:
        self._known = {_canonical(address): address for address in pool}
        self._most = len(pool) if most is None else most
        self._holders: dict[str, Key] = {}
        self._kept: dict[Key, str] = {}
        """The addresses of Gateways that ask for none."""
        self._counts: Counter[str] = Counter()
        self._free: Iterator[str] = iter(self._known)

    def keep(self, gateway: Resource, status: Any, *, is_limited: bool) -> None:
        """Leave *gateway* the addresses in its *status* that it asks for; without a request, the first one.

        If it *is_limited*, it keeps none beyond the limit of its namespace.
        """
        if _unsupported_type(gateway):
            return
        asked = {_canonical(value) for value in _values_of(gateway)}
        for entry in items_of(status, "addresses"):
            address = _canonical(text_of(entry, "value"))
            if address not in self._known or address in self._holders or (is_limited and self._is_full(gateway)):
                continue
            if not asked:
                self._give(address, _key_of(gateway))
                self._kept[_key_of(gateway)] = address
                return
            if address in asked:
                self._give(address, _key_of(gateway))

    def asked_for(self, gateway: Resource) -> Placement | None:
        """Return the placement of *gateway* at the addresses that it asks for; None if it asks for none."""
        if kind := _unsupported_type(gateway):
            return Placement(unsupported=kind)
        values = _values_of(gateway)
        if not values:
            return None
        problems: list[str] = []
        found: dict[str, None] = {}
        for value in values:
            address = _canonical(value)
            holder = self._holders.get(address)
            if address not in self._known or holder not in (None, _key_of(gateway)):
                problems.append(f"{value} is not an address of the pool, or another Gateway has it")
            elif holder is None and self._is_full(gateway):
                problems.append(f"{value}: {BEYOND}")
            else:
                self._give(address, _key_of(gateway))
                found[self._known[address]] = None
        return Placement(addresses=tuple(found), unusable=problems[0] if problems else "")

    def any_one(self, gateway: Resource) -> Placement:
        """Return the placement of *gateway*, which asks for no address: the one that it has, or the first free one."""
        key = _key_of(gateway)
        address = self._kept.get(key)
        if address is None and self._is_full(gateway):
            return Placement(unusable=BEYOND)
        if address is None:
            address = next((one for one in self._free if one not in self._holders), None)
        if address is None:
            return Placement(unusable="no address of the pool is free")
        self._give(address, key)
        return Placement(addresses=(self._known[address],))

    def _is_full(self, gateway: Resource) -> bool:
        return self._counts[namespace_of(gateway)] >= self._most

    def _give(self, address: str, key: Key) -> None:
        if address not in self._holders:
            self._holders[address] = key
            self._counts[key[0]] += 1


def _key_of(gateway: Resource) -> Key:
    return namespace_of(gateway), name_of(gateway)


def _unsupported_type(gateway: Resource) -> str:
    kinds = (text_of(entry, "type") or IP_ADDRESS for entry in items_of(gateway, "spec", "addresses"))
    return next((kind for kind in kinds if kind != IP_ADDRESS), "")


def _values_of(gateway: Resource) -> list[str]:
    return [value for entry in items_of(gateway, "spec", "addresses") if (value := text_of(entry, "value"))]


def _canonical(address: str) -> str:
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address
