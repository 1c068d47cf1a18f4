"""Addresses that a configuration cannot listen on are found by binding them, or in the output of HAProxy."""

import socket
from pathlib import Path

import pytest
import trio

from haptic_trio.dataplane.endpoint import UnboundAddress
from haptic_trio.dataplane.local.ports import find_addresses, find_conflicts, read_conflicts
from haptic_trio.haproxy.model import Config
from tests.support.processes.haproxy import BASE, build_generation
from tests.support.processes.ports import free_port


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
        ("quic4@127.0.0.1:443", set()),
    ],
)
def test_plain_addresses_are_known_and_others_left_to_haproxy(bind: str, addresses: set[tuple[str, int]]) -> None:
    assert find_addresses(listening(bind)) == addresses


@pytest.mark.parametrize(
    ("bind", "address"),
    [("quic4@:443", ("0.0.0.0", 443)), ("quic6@[::1]:443", ("::1", 443)), ("quic6@:::443", ("::", 443))],
)
def test_addresses_for_quic_are_of_udp(bind: str, address: tuple[str, int]) -> None:
    assert find_addresses(listening(bind, "127.0.0.1:80"), socket.SOCK_DGRAM) == {address}


def test_a_taken_udp_port_is_a_conflict_for_quic_alone() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
        desired = listening(f"127.0.0.1:{port}", f"quic4@127.0.0.1:{port}")
        assert find_conflicts(listening(f"127.0.0.1:{port}"), None) == ()
        assert find_conflicts(desired, listening(f"127.0.0.1:{port}")) == (
            UnboundAddress("127.0.0.1", port, "Address already in use"),
        )
        assert find_conflicts(desired, desired) == ()


def test_a_taken_port_is_a_conflict_unless_the_running_configuration_has_it() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        desired = listening(f"127.0.0.1:{port}")
        assert find_conflicts(desired, None) == (UnboundAddress("127.0.0.1", port, "Address already in use"),)
        assert find_conflicts(desired, desired) == ()


def test_a_port_that_another_haproxy_shares_is_not_a_conflict() -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        assert find_conflicts(listening(f"127.0.0.1:{other.getsockname()[1]}"), None) == ()


def test_a_free_port_is_not_a_conflict() -> None:
    assert find_conflicts(listening(f"127.0.0.1:{free_port()}"), listening()) == ()


def test_all_conflicts_are_found_at_once() -> None:
    with socket.socket() as one, socket.socket() as other:
        for holder in (one, other):
            holder.bind(("127.0.0.1", 0))
            holder.listen()
        ports = sorted(holder.getsockname()[1] for holder in (one, other))
        desired = listening(*(f"127.0.0.1:{port}" for port in (*ports, free_port())))
        assert [found.port for found in find_conflicts(desired, None)] == ports


@pytest.mark.process
async def test_bind_errors_of_haproxy_are_read(haproxy_binary: Path, tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        config = tmp_path / "haproxy.cfg"
        config.write_text(BASE + f"\nfrontend web\n    bind 127.0.0.1:{port}\n")
        with trio.fail_after(30):
            outcome = await trio.run_process([haproxy_binary, "-db", "-f", config], capture_stderr=True, check=False)
    assert read_conflicts(outcome.stderr.decode()) == (UnboundAddress("127.0.0.1", port, "Address already in use"),)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (
            "[ALERT] (1) : Binding [c:9] for frontend f: protocol tcpv4: cannot bind socket (in use) for [10.0.0.1:8].",
            [UnboundAddress("10.0.0.1", 8, "in use")],
        ),
        (
            "[ALERT]    (12) : Binding [c:9] for frontend g_b: cannot bind socket (Permission denied) for [:::80]",
            [UnboundAddress("::", 80, "Permission denied")],
        ),
        ("Binding [c.cfg:9] for proxy x: cannot bind socket (Address in use) for [*:80]",
         [UnboundAddress("0.0.0.0", 80, "Address in use")]),
        ("[ALERT] (1) : [c.cfg:1] text: Binding [c.cfg:9] for frontend x: cannot bind socket (no) for [1.2.3.4:8]", []),
        ("cannot bind 1.2.3.4:80: Address already in use", []),
    ],
)  # fmt: skip
def test_only_a_line_of_haproxy_about_a_listener_counts(line: str, found: list[UnboundAddress]) -> None:
    assert list(read_conflicts(f"x\n{line}\ny")) == found
