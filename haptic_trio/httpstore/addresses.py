"""Address policy of fetches: a decision about resolved IP addresses."""

from collections.abc import Callable, Collection, Iterator
from enum import Enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network


class Zone(Enum):
    """Part of the network that an address belongs to."""

    PUBLIC = "public"
    PRIVATE = "private"
    """Networks of one's own, the cluster among them; and whatever the configuration allows."""
    FORBIDDEN = "forbidden"
    """Addresses of this machine, its link, the metadata services of clouds, and addresses of no host."""


_METADATA: Final = frozenset(
    map(ip_address, ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"))
)
"""Services of clouds for their machines, where they are not link-local: these answer with credentials."""
_THIS: Final = ip_network("0.0.0.0/8")
_NAT64: Final = (ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48"))
_ALL_NAT64: Final = ip_network("64:ff9b::/32")
"""Every NAT64 prefix of RFC 6052 and RFC 8215, of any length."""
_NAT64_LENGTHS: Final = (32, 40, 48, 56, 64)
"""Lengths of NAT64 prefixes below 96. The IPv4 address behind the prefix leaves bits 64 to 71 out (RFC 6052, 2.2)."""
_SIIT: Final = ip_network("::ffff:0:0:0/96")
_ISATAP: Final = 0x0000_5EFE
_UNIVERSAL: Final = 0x0200_0000
"""The bit of an interface identifier that says whether it is unique in the world: ISATAP has both values."""
_COMPATIBLE: Final = ip_network("::/96")


def zone_of(
    text: str, allowed: Collection[Network] = (), *, is_own: Callable[[str], bool] = lambda _address: False
) -> Zone:
    """Return where the address *text* leads; *allowed* are networks that would be forbidden otherwise.

    *is_own* knows the addresses of this machine's interfaces, which are
    forbidden as its loopback is. Anything else than an address is forbidden.
    """
    try:
        address = ip_address(text)
    except ValueError:
        return Zone.FORBIDDEN
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if any(address in network for network in allowed):
        return Zone.PRIVATE
    # Translators bring a packet to the address within.
    zones = {Zone.FORBIDDEN if is_own(str(one)) else _zone_of_one(one) for one in (address, *_within(address))}
    if Zone.FORBIDDEN in zones:
        return Zone.FORBIDDEN
    return Zone.PRIVATE if Zone.PRIVATE in zones else Zone.PUBLIC


def _zone_of_one(address: Address) -> Zone:
    if (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address in _METADATA
        or (isinstance(address, IPv4Address) and (address.is_reserved or address in _THIS))
        or (isinstance(address, IPv6Address) and (address.is_site_local or address in _COMPATIBLE))
    ):
        return Zone.FORBIDDEN
    return Zone.PUBLIC if address.is_global or _is_translated(address) else Zone.PRIVATE


def _within(address: Address) -> Iterator[IPv4Address]:
    if not isinstance(address, IPv6Address):
        return
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    number = int(address)
    if _is_translated(address) or address in _SIIT or number >> 32 & 0xFFFF_FFFF & ~_UNIVERSAL == _ISATAP:
        yield IPv4Address(number & 0xFFFF_FFFF)
    if address in _ALL_NAT64:
        # The length that a network uses is not known, so each of them counts.
        without_reserved = number >> 64 << 56 | number & (1 << 56) - 1
        for length in _NAT64_LENGTHS:
            found = IPv4Address(without_reserved >> 88 - length & 0xFFFF_FFFF)
            if found not in _THIS:
                yield found


def _is_translated(address: Address) -> bool:
    return any(address in network for network in _NAT64)
