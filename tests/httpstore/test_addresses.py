"""Addresses are forbidden, private or public; those of this machine, its link and its cloud are forbidden."""

from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.httpstore.addresses import Zone, zone_of


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.1.1", "100.100.100.200",
        "168.63.129.16", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0",
        "ff02::1", "fec0::1", "fd00:ec2::254", "fd20:ce::254", "::ffff:127.0.0.1", "::ffff:169.254.169.254",
        "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2002:a9fe:a9fe::1", "::127.0.0.1", "::7f00:1",
        "::ffff:0:127.0.0.1", "::ffff:0:169.254.169.254", "::ffff:0:100.100.100.200",
        "2606:4700::5efe:127.0.0.1", "2606:4700::200:5efe:169.254.169.254", "fd12::5efe:168.63.129.16",
        "64:ff9b:7f00:1::808:808", "64:ff9b:7f:0:1::808:808", "64:ff9b:1:7f00:0:100:808:808",
        "64:ff9b:1:7f:0:1:808:808", "64:ff9b:1:0:7f:0:108:808", "64:ff9b:1:a9fe:a9:fe00:808:808",
        "localhost", "", "2130706433", "0x7f.1", "127.1",
    ],
)  # fmt: skip
def test_this_machine_its_link_and_its_cloud_are_forbidden(address: str) -> None:
    assert zone_of(address) is Zone.FORBIDDEN


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "fd12::1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
        "::ffff:0:10.0.0.1",
        "2606:4700::5efe:10.0.0.1",
        "64:ff9b:1:a00:0:100:808:808",
    ],
)
def test_networks_of_ones_own_are_private(address: str) -> None:
    assert zone_of(address) is Zone.PRIVATE


@pytest.mark.parametrize(
    "address",
    [
        "8.8.8.8",
        "2606:4700::1111",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
        "::ffff:0:8.8.8.8",
        "2606:4700::200:5efe:8.8.8.8",
        "2606:4700::5eff:127.0.0.1",
        "2606:4700:7f00:1:7f:0:100:1",
    ],
)
def test_everything_else_is_public(address: str) -> None:
    assert zone_of(address) is Zone.PUBLIC


def test_what_is_allowed_is_private_and_nothing_beside_it() -> None:
    allowed = (ip_network("127.0.0.1/32"), ip_network("fe80::/10"))

    assert zone_of("127.0.0.1", allowed) is Zone.PRIVATE
    assert zone_of("::ffff:127.0.0.1", allowed) is Zone.PRIVATE
    assert zone_of("127.0.0.2", allowed) is Zone.FORBIDDEN
    assert zone_of("fe80::7", allowed) is Zone.PRIVATE
    assert zone_of("8.8.8.8", allowed) is Zone.PUBLIC


def nat64(prefix: str, length: int, address: IPv4Address, suffix: int = 0) -> IPv6Address:
    """Return *address* behind *prefix* by the table of RFC 6052, 2.2; *suffix* follows it."""
    bits = f"{int(IPv6Address(prefix)):0128b}"[:length] + f"{int(address):032b}"
    if length < 96:
        bits = bits[:64].ljust(64, "0") + "0" * 8 + bits[64:]
    return IPv6Address(int(bits.ljust(128, "0"), 2) | suffix)


@given(st.ip_addresses(v=4), st.integers(0, 2**24 - 1))
def test_an_address_within_another_is_never_less_forbidden(address: IPv4Address, suffix: int) -> None:
    plain = zone_of(str(address))
    number = int(address)
    found = [
        IPv6Address(0x0064_FF9B << 96 | number),
        *(IPv6Address(0x2606_4700 << 96 | one << 32 | number) for one in (0x0000_5EFE, 0x0200_5EFE)),
        IPv6Address(0xFFFF << 48 | number),
        IPv6Address(0x2002 << 112 | number << 80),
        *(nat64("64:ff9b:1::", length, address, suffix) for length in (48, 56, 64)),
        *(nat64("64:ff9b::", length, address, suffix) for length in (32, 40)),
        nat64("64:ff9b:1::", 96, address),
    ]

    # Translators drop what is for 0.0.0.0/8, and it looks like the gap of a shorter prefix.
    for wrapped in found if number >> 24 else ():
        zone = zone_of(str(wrapped))
        assert zone is Zone.FORBIDDEN or plain is not Zone.FORBIDDEN, wrapped
        assert zone is not Zone.PUBLIC or plain is Zone.PUBLIC, wrapped
    assert zone_of(f"::ffff:{address}") is plain
