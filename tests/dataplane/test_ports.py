"""Which addresses a configuration listens on, and whether they can be had."""

import socket

import pytest

from haptic_trio.dataplane.ports import find_addresses, find_conflict
from haptic_trio.haproxy.model import Config
from tests.support.haproxy import BASE, build_generation
from tests.support.ports import free_port


def listening(*binds: str) -> Config:
    return build_generation(BASE + "\nfrontend web\n" + "".join(f"    bind {bind}\n" for bind in binds)).config


@pytest.mark.parametrize(
    ("bind", "addresses"),
    [
        ("127.0.0.1:80", {("127.0.0.1", 80)}),
        (":80", {("0.0.0.0", 80)}),
        ("*:80,:81", {("0.0.0.0", 80), ("0.0.0.0", 81)}),
        ("ipv4@127.0.0.1:8000-8002", {("127.0.0.1", 8000), ("127.0.0.1", 8001), ("127.0.0.1", 8002)}),
        ("[::1]:80", {("::1", 80)}),
        (":::80", {("::", 80)}),
        ("unix@/run/x.sock", set()),
        ("name.example:80", set()),
        ("127.0.0.1:80 interface eth0", set()),
        ("fd@3", set()),
    ],
)
def test_plain_addresses_are_known_and_others_left_to_haproxy(bind: str, addresses: set[tuple[str, int]]) -> None:
    assert find_addresses(listening(bind)) == addresses


def test_a_taken_port_is_a_conflict_unless_the_running_configuration_has_it() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        desired = listening(f"127.0.0.1:{port}")
        assert f"127.0.0.1:{port}" in find_conflict(desired, None)
        assert find_conflict(desired, desired) == ""


def test_a_port_that_another_haproxy_shares_is_no_conflict() -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        assert find_conflict(listening(f"127.0.0.1:{other.getsockname()[1]}"), None) == ""


def test_a_free_port_is_no_conflict() -> None:
    assert find_conflict(listening(f"127.0.0.1:{free_port()}"), listening()) == ""
