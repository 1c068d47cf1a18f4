"""Tunnels on the wire: CONNECT is rejected unless a route asks for it; WebSockets work over each HTTP version."""

import base64
import hashlib
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from haptic_trio.k8s.resource import Resource
from tests.gateway.filters.test_filters import leading_to
from tests.gateway.objects import gateway, route
from tests.gateway.objects import rule as route_rule
from tests.gateway.serving import served
from tests.libraries.conftest import Cluster
from tests.libraries.tls.test_ssl import AUTHORITY, secret, secure
from tests.support.kubernetes import endpoint, endpoint_slice, service
from tests.support.processes.ports import free_port
from tests.support.traffic.http2 import Http2Client, connect_http2
from tests.support.traffic.servers import PATIENCE

pytestmark = pytest.mark.haproxy

HERE, HOST = "127.0.0.1", "a.example.com"
MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
CONNECT = [(":method", "CONNECT"), (":authority", f"{HOST}:443")]
EXTENDED = [
    (":method", "CONNECT"),
    (":protocol", "websocket"),
    (":scheme", "https"),
    (":authority", HOST),
    (":path", "/socket"),
    ("sec-websocket-version", "13"),
]


class _Tunnels:
    """A server that agrees to any CONNECT and WebSocket, and sends back what comes after that."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self.heads: list[bytes] = []
        self.port: int = server.getsockname()[1]

    def run(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with connection:
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            if not (part := connection.recv(4096)):
                return
            head += part
        self.heads.append(head)
        key = re.search(rb"sec-websocket-key: (\S+)", head, re.IGNORECASE)
        if key:
            accept = base64.b64encode(hashlib.sha1(key[1] + MAGIC, usedforsecurity=False).digest())
            lines = b"HTTP/1.1 101 OK\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept
        else:
            lines = b"HTTP/1.1 200 OK"
        connection.sendall(lines + b"\r\n\r\n")
        connection.sendall(b"echo " + connection.recv(4096))


@contextmanager
def tunnels() -> Iterator[_Tunnels]:
    with socket.create_server((HERE, 0)) as server:
        found = _Tunnels(server)
        thread = Thread(target=found.run)
        thread.start()
        try:
            yield found
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def trusting(protocol: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    context.set_alpn_protocols([protocol])
    return context


def status_of(port: int, head: str, tls: ssl.SSLContext | None = None) -> int:
    """Return the status of the answer to *head*, whatever follows."""
    with socket.create_connection((HERE, port), PATIENCE) as plain:
        connection = tls.wrap_socket(plain, server_hostname=HOST) if tls else plain
        with connection:
            connection.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n")
            return int(connection.recv(4096).split(b" ")[1])


def site(port: int) -> list[Resource]:
    return [
        secure("web", HOST, "web"),
        secret("web", HOST),
        service("web"),
        endpoint_slice("web", endpoint(HERE), ports=port),
    ]


@contextmanager
def over_http2(cluster: Cluster) -> Iterator[Http2Client]:
    with connect_http2(cluster.https_port, tls=trusting("h2"), server_name=HOST) as client:
        yield client


def test_an_ingress_cannot_open_a_tunnel(cluster: Cluster) -> None:
    heads = [f"CONNECT {HOST}:{port} HTTP/1.1\nHost: {HOST}:{port}" for port in (80, 443)]
    with tunnels() as server:
        cluster.serve(*site(server.port))
        assert [status_of(cluster.http_port, head) for head in heads] == [405, 405]
        assert [status_of(cluster.https_port, head, trusting("http/1.1")) for head in heads] == [405, 405]
        with over_http2(cluster) as client:
            client.send(CONNECT, end=False)
            assert client.wait_status() == 405

    assert server.heads == []


def test_a_websocket_begins_over_http2_by_extended_connect(cluster: Cluster) -> None:
    with tunnels() as server:
        cluster.serve(*site(server.port))
        with over_http2(cluster) as client:
            client.send(EXTENDED, end=False)
            assert client.wait_status() == 200
            client.send_data(b"hello")
            client.wait_data(b"echo hello")

    assert server.heads[0].startswith(b"GET /socket HTTP/1.1\r\n")


def test_a_websocket_begins_over_http1(cluster: Cluster) -> None:
    names = ["Connection: keep-alive, X-Forwarded-For, Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
    head = "\n".join(["GET /socket HTTP/1.1", f"Host: {HOST}", *names, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="])
    with tunnels() as server:
        cluster.serve(*site(server.port))
        assert status_of(cluster.http_port, head) == 101

    lines = server.heads[0].lower().split(b"\r\n")
    assert b"connection: upgrade" in lines
    assert b"x-forwarded-for: 127.0.0.1" in lines


def members(method: str | None, **match: Any) -> dict[str, Any]:
    """Return a rule for *method*; None is a rule for any."""
    found = route_rule(to="web")
    found["matches"] = [{**({"method": method} if method else {}), **match}]
    return found


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([members(None)], 405),
        ([members("GET")], 405),
        ([members(None, headers=[{"name": "x-tunnel", "value": "yes"}])], 405),
        ([members("CONNECT")], 200),
        ([members("CONNECT", headers=[{"name": "x-tunnel", "value": "yes"}]), members(None)], 200),
        ([members("CONNECT", headers=[{"name": "x-tunnel", "value": "no"}]), members(None)], 405),
    ],
    ids=["any", "GET", "header", "CONNECT", "CONNECT and header", "CONNECT and another header"],
)
def test_a_route_that_asks_for_connect_gets_it(tmp_path: Path, rules: list[dict[str, Any]], expected: int) -> None:
    port = free_port()
    head = f"CONNECT {HOST}:443 HTTP/1.1\nHost: {HOST}:443\nX-Tunnel: yes"
    with tunnels() as server:
        listener = {"name": "web", "port": port, "protocol": "HTTP"}
        objects = [gateway("gw", listener), *leading_to("web", server.port), route("web", *rules)]
        with served(tmp_path, port, *objects):
            assert status_of(port, head) == expected

    assert len(server.heads) == (expected == 200)
