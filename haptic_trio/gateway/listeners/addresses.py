"""Assignment of pool addresses to Gateways."""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from haptic_trio.gateway.objects import Resource, age_of, items_of, name_of, namespace_of, text_of

IP_ADDRESS = "IPAddress"


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of a Gateway, or the reason why it has none."""

    addresses: tuple[str, ...] = ()
    unsupported: str = ""
    """A requested type of address that is not supported."""
    unusable: str = ""
    """The problem of a requested address that is not available, or of an exhausted pool."""


def place_gateways(
    gateways: Iterable[Resource], pool: Sequence[str], states: Mapping[tuple[str, str], Any]
) -> dict[tuple[str, str], Placement]:
    """Return the placement of each Gateway, by namespace and name.

    An address that a Gateway asks for goes before one that it has had, and
    that before a free one; each time the older Gateway is first. *states*
    holds `status` of Gateways by namespace and name.
    """
    ordered = sorted(gateways, key=age_of)
    known = {_canonical(address): address for address in pool}
    placed: dict[tuple[str, str], Placement] = {}
    taken: set[str] = set()
    for gateway in ordered:
        placement = _asked_for(gateway, known, taken)
        if placement is not None:
            placed[namespace_of(gateway), name_of(gateway)] = placement
            taken.update(_canonical(address) for address in placement.addresses)
    waiting = [gateway for gateway in ordered if (namespace_of(gateway), name_of(gateway)) not in placed]
    for gateway in waiting:
        key = namespace_of(gateway), name_of(gateway)
        had = [_canonical(text_of(entry, "value")) for entry in items_of(states.get(key), "addresses")]
        kept = next((address for address in had if address in known and address not in taken), None)
        if kept is not None:
            placed[key] = Placement(addresses=(known[kept],))
            taken.add(kept)
    free = iter([address for address in known if address not in taken])
    for gateway in waiting:
        key = namespace_of(gateway), name_of(gateway)
        if key not in placed:
            address = next(free, None)
            found = (
                Placement(addresses=(known[address],))
                if address
                else Placement(unusable="no address of the pool is free")
            )
            placed[key] = found
    return placed


def _asked_for(gateway: Resource, known: Mapping[str, str], taken: set[str]) -> Placement | None:
    asked = items_of(gateway, "spec", "addresses")
    for entry in asked:
        kind = text_of(entry, "type") or IP_ADDRESS
        if kind != IP_ADDRESS:
            return Placement(unsupported=kind)
    values = [text_of(entry, "value") for entry in asked if text_of(entry, "value")]
    if not values:
        return None
    found = {value: address for value in values if (address := _canonical(value)) in known and address not in taken}
    usable = tuple(known[found[value]] for value in values if value in found)
    unusable = next((value for value in values if value not in found), "")
    return Placement(
        addresses=usable,
        unusable=f"{unusable} is not an address of the pool, or another Gateway has it" if unusable else "",
    )


def _canonical(address: str) -> str:
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address
