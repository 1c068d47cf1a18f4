"""Listeners of one port that are served in different ways, distinguished by the host that a client asks for."""

import itertools
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from haptic_trio.gateway.listeners.listeners import listeners_of
from haptic_trio.gateway.listeners.port_rules import PortRules
from haptic_trio.gateway.listeners.ports import inner_address, served_ports
from haptic_trio.k8s.resource import Resource
from tests.gateway.objects import CONTROLLER, gateway, gateway_class, made, route, rule, stores_of
from tests.gateway.serving import Authority, endpoints, secret, served
from tests.support.processes.ports import free_port
from tests.support.traffic.servers import ask, serving

AUTHORITY = Authority()
WAYS: tuple[dict[str, Any], ...] = (
    {"protocol": "TLS", "tls": {"mode": "Passthrough"}},
    {"protocol": "TLS", "tls": {"mode": "Terminate", "certificateRefs": [{"name": "pair"}]}},
    {"protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "pair"}]}},
)


def listeners(port: int) -> list[dict[str, Any]]:
    """Return one listener of each kind for *port*."""
    through, ended, web = WAYS
    return [
        {"name": "through", "port": port, "hostname": "through.test", **through},
        {"name": "ended", "port": port, "hostname": "*.ended.test", **ended},
        {"name": "web", "port": port, **web},
    ]


@contextmanager
def greeting(word: bytes, directory: Path, pair: tuple[str, str] | None = None) -> Iterator[int]:
    """Run a server that says *word* to every client, over TLS with *pair*; yields its port."""
    context = None
    if pair is not None:
        (directory / "greeting.pem").write_text("".join(pair))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / "greeting.pem")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    plain, _ = server.accept()
                except OSError:
                    return
                with plain:
                    try:
                        with context.wrap_socket(plain, server_side=True) if context else plain as connection:
                            connection.sendall(word)
                    except OSError:
                        continue

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            # Closing alone would not wake the thread.
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def greeted(port: int, host: str) -> bytes:
    """Return what a TLS server says to a client that asks for *host*."""
    with (
        socket.create_connection(("127.0.0.1", port), 5) as plain,
        AUTHORITY.client().wrap_socket(plain, server_hostname=host) as connection,
    ):
        return connection.recv(100)


def nameless(port: int, host: str) -> bytes:
    """Return the answer to a request for *host* by a client that names no host in the TLS handshake."""
    context = AUTHORITY.client()
    context.check_hostname = False
    with socket.create_connection(("127.0.0.1", port), 5) as plain, context.wrap_socket(plain) as connection:
        connection.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        return connection.recv(100)


def tls_route(name: str, hostname: str) -> Resource:
    rules = [{"backendRefs": [{"name": name, "port": 80}]}]
    return route(name, *rules, hostnames=[hostname], kind="TLSRoute")


def tcp_service(name: str, port: int) -> list[Resource]:
    return [made("Service", name, version="v1", spec={"ports": [{"port": 80}]}), endpoints(name, ("", port))]


@pytest.mark.haproxy
def test_each_connection_gets_to_the_listener_of_its_host(tmp_path: Path) -> None:
    port = free_port()
    own, backends = AUTHORITY.issue("a.ended.test", "web.test"), AUTHORITY.issue("through.test")
    with (
        greeting(b"through", tmp_path, backends) as through,
        greeting(b"ended", tmp_path) as ended,
        serving("web") as web,
    ):
        objects = [
            gateway("gw", *listeners(port)),
            secret("pair", own),
            *tcp_service("through", through),
            *tcp_service("ended", ended),
            *tcp_service("web", web["web"]),
            tls_route("through", "through.test"),
            tls_route("ended", "a.ended.test"),
            route("web", rule("/", to="web")),
        ]
        with served(tmp_path, port, *objects):
            assert greeted(port, "through.test") == b"through"
            assert greeted(port, "a.ended.test") == b"ended"
            answer = ask(port, "web.test", tls=AUTHORITY.client())
            assert (answer.status, answer.body.partition("\n")[0]) == (200, "web")
            # The address is the client's, not that of the frontend in front.
            assert "x-forwarded-for: 127.0.0.1\n" in f"{answer.body}\n"
            # What came for one listener is none of another one's business.
            assert ask(port, "through.test", tls=AUTHORITY.client(), server_name="web.test").status == 421
            assert nameless(port, "through.test").startswith(b"HTTP/1.1 421 ")
            with pytest.raises(OSError, match=r".+"):
                greeted(port, "b.ended.test")


@pytest.mark.parametrize("ways", [*itertools.permutations(WAYS, 2)])
def test_https_and_tls_listeners_share_a_port_unless_their_hosts_are_equal(ways: tuple[dict[str, Any], ...]) -> None:
    one, other = ways

    shared = gateway("gw", {"name": "a", "port": 1, "hostname": "a.test", **one}, {"name": "b", "port": 1, **other})
    same = gateway("gw", {"name": "a", "port": 1, **one}, {"name": "b", "port": 1, **other})
    plain = gateway("gw", {"name": "a", "port": 1, **one}, {"name": "b", "port": 1, "protocol": "HTTP"})

    assert [listener.conflict for listener in listeners_of(shared)] == ["", ""]
    assert [listener.conflict for listener in listeners_of(same)] == ["HostnameConflict"] * 2
    assert [listener.conflict for listener in listeners_of(plain)] == ["ProtocolConflict"] * 2


def test_a_listener_alone_needs_no_frontend_in_front() -> None:
    found = gateway("gw", *listeners(443)[:2])

    # Without its certificate one of the two cannot be served.
    ports = served_ports(found, stores_of(gateway_class(), found), CONTROLLER, PortRules())

    assert [(one.kind, one.is_inner) for one in ports] == [("passthrough", False)]


def test_inner_addresses_stay_and_are_this_machine_s() -> None:
    addresses = {name: inner_address(name) for name in map(str, range(200))}

    assert len(set(addresses.values())) == 200
    assert all(address.startswith("127.") and int(address.split(".")[1]) >= 128 for address in addresses.values())
    assert addresses["7"] == inner_address("7")


def test_no_name_leads_to_the_inner_address_of_another_gateway() -> None:
    # The digests of what these names make are alike: found by trying sixteen million.
    names = {"web": "10.0.0.1", "gfcd8f5": "10.0.0.2"}
    gateways = [gateway(name, *listeners(443), addresses=[{"value": address}]) for name, address in names.items()]
    for found, namespace in zip(gateways, ("victim", "evil"), strict=True):
        found["metadata"]["namespace"] = namespace
    pairs = [
        {**secret("pair", AUTHORITY.issue("a.test")), "metadata": {"name": "pair", "namespace": namespace}}
        for namespace in ("victim", "evil")
    ]
    stores = stores_of(gateway_class(), *gateways, *pairs)
    rules = PortRules.of(pool=names.values())

    inner = [
        address
        for found in gateways
        for port in served_ports(found, stores, CONTROLLER, rules)
        if port.is_inner
        for address in port.addresses
    ]

    assert len(inner) == 4
    assert len(set(inner)) == 4
