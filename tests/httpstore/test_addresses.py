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
        "localhost", "", "2130706433", "0x7f.1", "127.1",
    ],
)  # fmt: skip
def test_this_machine_its_link_and_its_cloud_are_forbidden(address: str) -> None:
    assert zone_of(address) is Zone.FORBIDDEN


@pytest.mark.parametrize(
    "address", ["10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "fd12::1", "::ffff:10.0.0.1", "64:ff9b::a00:1"]
)
def test_networks_of_ones_own_are_private(address: str) -> None:
    assert zone_of(address) is Zone.PRIVATE


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_everything_else_is_public(address: str) -> None:
    assert zone_of(address) is Zone.PUBLIC


def test_what_is_allowed_is_private_and_nothing_beside_it() -> None:
    allowed = (ip_network("127.0.0.1/32"), ip_network("fe80::/10"))

    assert zone_of("127.0.0.1", allowed) is Zone.PRIVATE
    assert zone_of("::ffff:127.0.0.1", allowed) is Zone.PRIVATE
    assert zone_of("127.0.0.2", allowed) is Zone.FORBIDDEN
    assert zone_of("fe80::7", allowed) is Zone.PRIVATE
    assert zone_of("8.8.8.8", allowed) is Zone.PUBLIC


@given(st.ip_addresses(v=4))
def test_an_address_within_another_is_never_less_forbidden(address: IPv4Address) -> None:
    plain = zone_of(str(address))
    number = int(address)

    for wrapped in (0x0064_FF9B << 96 | number, 0x2002 << 112 | number << 80):
        found = zone_of(str(IPv6Address(wrapped)))
        assert found is Zone.FORBIDDEN or plain is not Zone.FORBIDDEN
        assert found is not Zone.PUBLIC or plain is Zone.PUBLIC
    assert zone_of(f"::ffff:{address}") is plain
