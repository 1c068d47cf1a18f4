"""Clients that the administrator denies get no connection to a route of any kind."""

import socket
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.objects import gateway, route, rule
from tests.gateway.serving import secret, served
from tests.gateway.test_mixed_ports import AUTHORITY, greeting, listeners, tcp_service, tls_route
from tests.support.processes.ports import free_port
from tests.support.traffic.servers import PATIENCE, serving

HERE, DENIED = "127.0.0.1", "127.0.0.2"
HOSTS = ("through.test", "a.ended.test", "web.test")


def received(port: int, host: str, source: str) -> bytes:
    """Return what a client with the address *source* gets first, over TLS with a *host*; empty without a connection."""
    try:
        with socket.create_connection((HERE, port), PATIENCE, source_address=(source, 0)) as plain:
            if not host:
                return plain.recv(12)
            with AUTHORITY.client().wrap_socket(plain, server_hostname=host) as connection:
                # The other servers speak first, and read nothing.
                if host == "web.test":
                    connection.sendall(b"GET / HTTP/1.1\r\nHost: web.test\r\n\r\n")
                return connection.recv(12)
    except OSError:
        return b""


@pytest.mark.haproxy
@pytest.mark.parametrize("setting", [{"deniedSources": [DENIED]}, {"allowedSources": [HERE]}], ids=str)
def test_denied_clients_reach_no_tcp_or_tls_route(tmp_path: Path, setting: dict[str, Any]) -> None:
    port, plain = free_port(), free_port()
    pair = AUTHORITY.issue(*HOSTS)
    with (
        serving("web") as web,
        greeting(b"hello", tmp_path) as open_port,
        greeting(b"hello", tmp_path, pair) as over_tls,
    ):
        objects = [
            gateway("gw", *listeners(port), {"name": "tcp", "port": plain, "protocol": "TCP"}),
            secret("pair", pair),
            *tcp_service("through", over_tls),
            *tcp_service("ended", open_port),
            *tcp_service("app", web["web"]),
            tls_route("through", "through.test"),
            tls_route("ended", "a.ended.test"),
            route("web", rule("/"), hostnames=["web.test"]),
            route("tcp", {"backendRefs": [{"name": "ended", "port": 80}]}, kind="TCPRoute"),
        ]
        with served(tmp_path, port, *objects, **setting):
            found = {
                source: [received(plain, "", source), *(received(port, host, source) for host in HOSTS)]
                for source in (HERE, DENIED)
            }

    assert found[HERE] == [b"hello", b"hello", b"hello", b"HTTP/1.1 200"]
    assert found[DENIED] == [b"", b"", b"", b"HTTP/1.1 403"]
