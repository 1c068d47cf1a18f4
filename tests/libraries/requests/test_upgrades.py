"""Upgrades on the wire: no client gets a tunnel in which requests pass the rules."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.libraries.conftest import Cluster
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service
from tests.support.traffic.http2 import connect_http2, get
from tests.support.traffic.servers import PATIENCE, QuietHandler, answering

pytestmark = pytest.mark.haproxy

HERE, HOST = "127.0.0.1", "a.example.com"
WEBSOCKET = ["Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
BEHIND = f"GET /closed HTTP/1.1\r\nHost: {HOST}\r\n\r\n"
"""A request that the rules reject, sent behind another one."""


class _Application(QuietHandler):
    """Answers every request in the same way, and keeps what it was sent."""

    status = 200
    heads: list[tuple[str, dict[str, str]]]

    def answer(self) -> None:
        self.heads.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        self.send_response(self.status)
        if self.status == 101:
            self.send_header("Connection", "upgrade")
            self.send_header("Upgrade", self.headers.get("Upgrade", "websocket"))
        else:
            self.send_header("Content-Length", "0")
        self.end_headers()


@contextmanager
def edge(cluster: Cluster, status: int) -> Iterator[list[tuple[str, dict[str, str]]]]:
    """Serve an application that answers with *status*, and whose path /closed is closed; yield what it is sent."""
    heads: list[tuple[str, dict[str, str]]] = []
    closed = {"nginx.ingress.kubernetes.io/whitelist-source-range": "203.0.113.0/24"}
    with answering(type("Handler", (_Application,), {"status": status, "heads": heads})) as port:
        cluster.serve(
            ingress("closed", rule(HOST, path("/closed", "web")), annotations=closed),
            ingress("open", rule(HOST, path("/", "web"))),
            service("web"),
            endpoint_slice("web", endpoint(HERE), ports=port),
            libraries=("base", "ssl", "ingress", "nginx-annotations"),
        )
        yield heads


def statuses(port: int, *lines: str, number: int = 2) -> list[int]:
    """Return the first *number* statuses of answers to a request with the header *lines*, and to the one behind it."""
    with socket.create_connection((HERE, port), PATIENCE) as connection:
        head = "\r\n".join(["GET /socket HTTP/1.1", f"Host: {HOST}", *lines])
        connection.sendall(f"{head}\r\n\r\n{BEHIND}".encode())
        with connection.makefile("rb") as received:
            found = (int(line.split(b" ")[1]) for line in received if line.startswith(b"HTTP/1."))
            return [next(found) for _ in range(number)]


def extended(protocol: str) -> list[tuple[str, str]]:
    """Return the fields of an extended CONNECT for *protocol*."""
    fields = {"method": "CONNECT", "protocol": protocol, "scheme": "http", "authority": HOST, "path": "/socket"}
    return [(f":{name}", value) for name, value in fields.items()] + [("sec-websocket-version", "13")]


UPGRADES: list[Any] = [
    *(["Upgrade: " + one] for one in ("h2c", "H2C", "h2", "TLS/1.0", "tls/1.3", "HTTP/2.0", "HTTP/1.1", "h3")),
    *(["Upgrade: " + one] for one in ("foo, h2c", "h2c,foo", "foo , TLS/1.2", "websocket, HTTP/2.0")),
    ["Upgrade: foo", "Upgrade: h2c"],
    ["Upgrade: foo", "Upgrade: TLS/1.0"],
    # A comma in quotes separates nothing for HAProxy.
    ['Upgrade: ", h2c'],
    ['Upgrade: "foo,HTTP/2.0'],
]


@pytest.mark.parametrize("lines", UPGRADES, ids="; ".join)
def test_no_server_is_asked_for_http_or_tls_in_a_tunnel(cluster: Cluster, lines: list[str]) -> None:
    names = ["Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABkAAQAAP__", *WEBSOCKET, *lines]
    with edge(cluster, 200) as heads:
        assert statuses(cluster.http_port, *names) == [200, 403]

    assert [target for target, _ in heads] == ["/socket"]
    assert heads[0][1].get("upgrade", "foo") == "foo"


@pytest.mark.parametrize("protocol", ["h2c", "TLS/1.0", "HTTP/2.0"])
def test_nor_by_extended_connect(cluster: Cluster, protocol: str) -> None:
    with edge(cluster, 200) as heads, connect_http2(cluster.http_port) as client:
        client.send(extended(protocol), end=False)
        assert client.wait_status() in (0, 200)

    assert not any("upgrade" in headers for _, headers in heads)


@pytest.mark.parametrize("protocol", ["websocket", "SPDY/3.1", "tcp"])
def test_other_protocols_are_asked_for(cluster: Cluster, protocol: str) -> None:
    with edge(cluster, 200) as heads:
        assert statuses(cluster.http_port, "Connection: upgrade", f"Upgrade: {protocol}", *WEBSOCKET) == [200, 403]

    assert [(headers["connection"], headers["upgrade"]) for _, headers in heads] == [("upgrade", protocol)]


@pytest.mark.parametrize("status", [200, 400, 426])
@pytest.mark.parametrize("protocol", ["websocket", "foo"])
def test_behind_an_upgrade_that_is_rejected_requests_meet_the_rules(
    cluster: Cluster, status: int, protocol: str
) -> None:
    with edge(cluster, status) as heads:
        found = statuses(cluster.http_port, "Connection: upgrade", f"Upgrade: {protocol}", *WEBSOCKET)
        assert found == [status, 403]
        with connect_http2(cluster.http_port) as client:
            client.send(extended(protocol), end=False)
            client.send_data(BEHIND.encode())
            client.wait_status()

    assert {target for target, _ in heads} == {"/socket"}


@pytest.mark.parametrize("lines", [[], ["Connection: upgrade"], ["Upgrade: websocket"]], ids="; ".join)
def test_an_answer_that_was_not_asked_for_opens_no_tunnel(cluster: Cluster, lines: list[str]) -> None:
    with edge(cluster, 101) as heads:
        assert statuses(cluster.http_port, *lines) == [502, 403]
        with connect_http2(cluster.http_port) as client:
            client.send(get(HOST, "/socket"))
            assert client.wait_status() == 502

    assert {target for target, _ in heads} == {"/socket"}


def test_a_closed_path_cannot_open_a_tunnel(cluster: Cluster) -> None:
    with edge(cluster, 101) as heads:
        for target in ("/closed", "/closed/x", "//closed", "/x/../closed"):
            with socket.create_connection((HERE, cluster.http_port), PATIENCE) as connection:
                head = "\r\n".join(
                    [f"GET {target} HTTP/1.1", f"Host: {HOST}", "Connection: upgrade", "Upgrade: websocket"]
                )
                connection.sendall(f"{head}\r\n{WEBSOCKET[0]}\r\n{WEBSOCKET[1]}\r\n\r\n".encode())
                assert connection.recv(4096).split(b" ")[1] == b"403"
            with connect_http2(cluster.http_port) as client:
                client.send([(name, target if name == ":path" else value) for name, value in extended("websocket")])
                assert client.wait_status() == 403

    assert heads == []
