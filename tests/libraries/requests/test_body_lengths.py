"""The length of a body on the wire: HAProxy, its rules and servers agree on it."""

import http.client
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.gateway.filters.test_filters import leading_to
from tests.gateway.objects import gateway, route
from tests.gateway.objects import rule as route_rule
from tests.gateway.serving import served
from tests.libraries.conftest import Cluster
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service
from tests.support.processes.ports import free_port
from tests.support.traffic.http2 import connect_http2, get
from tests.support.traffic.raw import exchange
from tests.support.traffic.servers import PATIENCE, QuietHandler, answering

pytestmark = pytest.mark.haproxy

HERE, HOST = "127.0.0.1", "a.example.com"
LONGEST = 10**18 - 1
TOO_LONG = [10**18, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1, 2**64, 2**64 + 3, 10**20]
"""Lengths that the versions of HAProxy read as negative numbers, as small ones, or not at all, and some below."""


class _Early(QuietHandler):
    """Answers before it reads the body, and keeps the lengths of bodies."""

    lengths: list[int]

    def answer(self) -> None:
        rest = int(self.headers.get("Content-Length", "0"))
        self.lengths.append(rest)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
        while rest > 0 and (part := self.rfile.read1(65536)):
            rest -= len(part)

    def do_CONNECT(self) -> None:  # noqa: N802 - the name that the base class looks up
        self.answer()


@contextmanager
def application() -> Iterator[tuple[int, list[int]]]:
    """Run a server, and yield its port and the lengths that it is sent."""
    lengths: list[int] = []
    with answering(type("Handler", (_Early,), {"lengths": lengths})) as port:
        yield port, lengths


def announce(port: int, length: int) -> int:
    """Return the status of the answer to a body of *length* bytes, none of which is sent."""
    return exchange(port, "POST / HTTP/1.1", f"Host: {HOST}", f"Content-Length: {length}").status


def announce_http2(port: int, length: int) -> int:
    """Return the same for HTTP/2; 0 if the stream was reset."""
    fields = {":method": "POST", ":scheme": "http", ":authority": HOST, ":path": "/", "content-length": str(length)}
    return connect_by(port, fields)


def test_no_server_gets_a_length_that_haproxy_reads_as_another(cluster: Cluster) -> None:
    with application() as (port, lengths):
        cluster.serve(
            ingress("web", rule(HOST, path("/", "web"))),
            service("web"),
            endpoint_slice("web", endpoint(HERE), ports=port),
        )
        assert [announce(cluster.http_port, length) for length in TOO_LONG] == [400] * len(TOO_LONG)
        # Of the longest HAProxy resets the stream.
        assert {announce_http2(cluster.http_port, length) for length in TOO_LONG} <= {0, 400}
        assert lengths == []

        assert announce(cluster.http_port, LONGEST) == announce_http2(cluster.http_port, LONGEST) == 200
        assert lengths == [LONGEST, LONGEST]


def test_nor_does_one_behind_a_gateway(tmp_path: Path) -> None:
    port = free_port()
    with application() as (server, lengths):
        listener = {"name": "web", "port": port, "protocol": "HTTP"}
        objects = [gateway("gw", listener), *leading_to("web", server), route("web", route_rule(to="web"))]
        with served(tmp_path, port, *objects):
            assert [announce(port, length) for length in TOO_LONG] == [400] * len(TOO_LONG)
            assert lengths == []
            assert announce(port, LONGEST) == 200


@pytest.mark.parametrize("protocol", ["websocket", "foo", ""])
def test_an_extended_connect_announces_no_body(cluster: Cluster, protocol: str) -> None:
    fields = {":method": "CONNECT", ":protocol": protocol, ":scheme": "http", ":authority": HOST, ":path": "/"}
    with application() as (port, lengths):
        cluster.serve(
            ingress("web", rule(HOST, path("/", "web"))),
            service("web"),
            endpoint_slice("web", endpoint(HERE), ports=port),
        )
        assert connect_by(cluster.http_port, {**fields, "content-length": "40"}) == 400
        assert lengths == []
        assert connect_by(cluster.http_port, fields) == 200


def test_a_connect_of_a_route_announces_no_body(tmp_path: Path) -> None:
    port = free_port()
    tunnel = route_rule(to="web")
    tunnel["matches"] = [{"method": "CONNECT"}]
    fields = {":method": "CONNECT", ":authority": f"{HOST}:443"}
    with application() as (server, lengths):
        listener = {"name": "web", "port": port, "protocol": "HTTP"}
        with served(tmp_path, port, gateway("gw", listener), *leading_to("web", server), route("web", tunnel)):
            assert connect_by(port, {**fields, "content-length": "40"}) == 400
            assert lengths == []
            assert connect_by(port, fields) == 200


def connect_by(port: int, fields: dict[str, str]) -> int:
    """Return the status of the answer to an HTTP/2 request with *fields*; 0 if the stream was reset."""
    with connect_http2(port) as client:
        client.send(fields.items(), end=False)
        return client.wait_status()


@pytest.mark.parametrize("part", [b"", b"abc"])
def test_no_server_takes_a_request_for_the_rest_of_a_body_that_ends_early(cluster: Cluster, part: bytes) -> None:
    fields = {":method": "POST", ":scheme": "http", ":authority": HOST, ":path": "/", "content-length": "1000"}
    with application() as (port, lengths):
        cluster.serve(
            ingress("web", rule(HOST, path("/", "web"))),
            service("web"),
            endpoint_slice("web", endpoint(HERE), ports=port),
        )
        with connect_http2(cluster.http_port) as attacker:
            attacker.send(fields.items(), end=False)
            if part:
                attacker.send_data(part)
            assert attacker.wait_status() == 200
            attacker.end()
            # HAProxy has read the end before this answer.
            attacker.send(get(HOST))
            assert attacker.answer().status == 200
            statuses = requests(cluster.http_port, 4)

    assert statuses == [200] * 4
    assert lengths == [1000, 0, 0, 0, 0, 0]


def requests(port: int, number: int) -> list[int]:
    """Return the statuses of requests on one connection: HAProxy sends all but the first one on any idle connection."""
    connection = http.client.HTTPConnection(HERE, port, timeout=PATIENCE)
    with closing(connection):
        found = []
        for _ in range(number):
            connection.request("GET", "/", headers={"Host": HOST})
            with connection.getresponse() as answer:
                found.append(answer.status)
        return found


@pytest.mark.parametrize(
    "annotation", ["nginx.ingress.kubernetes.io/proxy-body-size", "haproxy-ingress.github.io/proxy-body-size", ""]
)
def test_no_length_passes_a_limit(cluster: Cluster, annotation: str) -> None:
    limit = {annotation: "5g"} if annotation else {}
    with application() as (port, lengths):
        cluster.serve(
            ingress("web", rule(HOST, path("/", "web")), annotations=limit),
            service("web"),
            endpoint_slice("web", endpoint(HERE), ports=port),
            libraries=("base", "ssl", "ingress", "nginx-annotations", "haproxy-ingress-annotations"),
            maxBodySize=0 if annotation else "5g",
        )
        found = [
            ask(cluster.http_port, length)
            for ask in (announce, announce_http2)
            for length in (5 * 2**30, 5 * 2**30 + 1, 2**33, LONGEST)
        ]

    assert found == [200, 413, 413, 413] * 2
    assert lengths == [5 * 2**30] * 2
