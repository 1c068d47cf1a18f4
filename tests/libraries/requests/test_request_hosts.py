"""The host of a request on the wire: an application finds no other host in it than the one that decides its route."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.gateway.filters.test_filters import leading_to
from tests.gateway.objects import gateway, route
from tests.gateway.objects import rule as route_rule
from tests.gateway.serving import served
from tests.libraries.conftest import Cluster
from tests.libraries.tenants.tenants import ALL, NGINX
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service
from tests.support.processes.ports import free_port
from tests.support.traffic.http2 import connect_http2
from tests.support.traffic.raw import exchange
from tests.support.traffic.servers import Answer, serving

pytestmark = pytest.mark.haproxy

HERE, OPEN, CLOSED = "127.0.0.1", "open.example.com", "closed.example.com"
HIDDEN = {
    "target alone": [f"GET http://{CLOSED}/ HTTP/1.1"],
    "target alone, HTTP/1.0": [f"GET http://{CLOSED}/ HTTP/1.0"],
    "target with a port": [f"GET http://{CLOSED}:80/ HTTP/1.1"],
    "target without a path": [f"GET http://{CLOSED} HTTP/1.1"],
    "target with a query alone": [f"GET http://{CLOSED}?x HTTP/1.0"],
    "other scheme": [f"GET x://{CLOSED}/ HTTP/1.0"],
    "options": [f"OPTIONS http://{CLOSED} HTTP/1.0"],
    "query alone": [f"GET http://{OPEN}?x HTTP/1.1", f"Host: {OPEN}"],
    "other target": [f"GET http://{CLOSED}/ HTTP/1.1", f"Host: {OPEN}"],
    "two hosts": ["GET / HTTP/1.1", f"Host: {OPEN}", f"Host: {CLOSED}"],
}
"""Requests of which an application may read the host CLOSED, while the header names another one or none."""
BROKEN = [
    CLOSED + rest
    for rest in ("::80", ":80:80", ":80a", ":abc", ":+80", ";x", "%00", "%2f", ",x", "&x", "'", "(", "@", "/")
]
BROKEN += [f"[{CLOSED}]", f'"{CLOSED}"', f"x@{CLOSED}", "closed%2eexample.com", f"{CLOSED}|", "*.example.com"]


SCHEMES = {"http": 200, "https": 200, "HTTPS": 200, "ftp": 400, "httpx": 400, "javascript": 400}
"""The status of an HTTP/2 request with each scheme."""


@contextmanager
def edge(cluster: Cluster) -> Iterator[None]:
    """Serve an application that is closed at one of its hosts and open at all others."""
    closed = {f"{NGINX}whitelist-source-range": "203.0.113.0/24"}
    with serving("web") as ports:
        cluster.serve(
            ingress("closed", rule(CLOSED, path("/", "web")), annotations=closed),
            ingress("open", rule(None, path("/", "web"))),
            service("web"),
            endpoint_slice("web", endpoint(HERE), ports=ports["web"]),
            libraries=ALL,
        )
        yield


def ask_by_scheme(port: int, scheme: str) -> Answer:
    """Send an HTTP/2 request with *scheme*."""
    with connect_http2(port) as client:
        client.send([(":method", "GET"), (":scheme", scheme), (":authority", OPEN), (":path", "/a")])
        return client.answer()


@pytest.mark.parametrize("lines", HIDDEN.values(), ids=HIDDEN)
def test_no_host_beside_the_header_reaches_an_application(cluster: Cluster, lines: list[str]) -> None:
    with edge(cluster):
        assert exchange(cluster.http_port, *lines).status == 400


def test_a_header_that_is_not_a_host_is_rejected(cluster: Cluster) -> None:
    with edge(cluster):
        found = {host: exchange(cluster.http_port, "GET / HTTP/1.1", f"Host: {host}").status for host in BROKEN}

    assert found == dict.fromkeys(BROKEN, 400)


def test_an_http2_request_with_the_scheme_of_another_protocol_is_rejected(cluster: Cluster) -> None:
    with edge(cluster):
        found = {scheme: ask_by_scheme(cluster.http_port, scheme) for scheme in SCHEMES}

    assert {scheme: answer.status for scheme, answer in found.items()} == SCHEMES
    # A server gets neither scheme nor host with the path.
    assert {answer.body.split("\n")[1] for answer in found.values() if answer.status == 200} == {"/a"}


def test_an_http2_request_with_an_empty_authority_is_rejected_before_rules_that_set_the_host(cluster: Cluster) -> None:
    with serving("web") as ports:
        cluster.serve(
            ingress("any", rule(None, path("/", "web")), annotations={"haproxy.org/set-host": "inner.example.com"}),
            service("web"),
            endpoint_slice("web", endpoint(HERE), ports=ports["web"]),
            libraries=ALL,
        )
        found = {}
        for target in (("GET", "/a"), ("OPTIONS", "*")):
            for fields in ((":authority", ""),), ((":authority", ""), ("host", OPEN)), (), (("host", OPEN),):
                with connect_http2(cluster.http_port) as client:
                    client.send([(":method", target[0]), (":scheme", "http"), (":path", target[1]), *fields])
                    found[target, fields] = client.answer().status

    # The server implements no OPTIONS.
    assert list(found.values()) == [400, 400, 200, 200, 400, 400, 501, 501]


def test_other_hosts_are_served(cluster: Cluster) -> None:
    hosts = [
        OPEN,
        f"{OPEN}:8080",
        f"{OPEN}:",
        f"{OPEN.upper()}.",
        "my_host",
        "localhost:80",
        "10.0.0.1",
        "[::1]:80",
        "",
    ]
    with edge(cluster):
        found = {host: exchange(cluster.http_port, "GET / HTTP/1.1", f"Host: {host}").status for host in hosts}
        without = exchange(cluster.http_port, "GET / HTTP/1.0").status
        closed = [exchange(cluster.http_port, "GET / HTTP/1.1", f"Host: {CLOSED}{end}").status for end in ("", ".:80")]

    assert found == dict.fromkeys(hosts, 200)
    assert without == 200
    assert closed == [403, 403]


def test_an_application_gets_a_path_for_a_url(cluster: Cluster) -> None:
    with edge(cluster):
        lines = [f"GET https://{OPEN}/a%2Fb//c?next=//d HTTP/1.1", f"Host: {OPEN}"]
        found = exchange(cluster.http_port, *lines).body.split("\n")
        root = exchange(cluster.http_port, f"GET http://{OPEN} HTTP/1.1", f"Host: {OPEN}").body.split("\n")

    assert found[1] == "/a%2Fb//c?next=//d"
    assert "x-forwarded-proto: http" in found
    assert root[1] == "/"


@pytest.mark.parametrize("version", ["1.2", "2.0", "3.0"])
def test_a_url_becomes_a_path_whatever_version_a_client_writes(cluster: Cluster, version: str) -> None:
    with edge(cluster):
        lines = [f"GET https://{OPEN}/a?b HTTP/{version}", f"Host: {OPEN}"]
        found = exchange(cluster.http_port, *lines).body.split("\n")

    assert found[1] == "/a?b"


def test_a_gateway_does_the_same(tmp_path: Path) -> None:
    port = free_port()
    with serving("web") as ports:
        listener = {"name": "web", "port": port, "protocol": "HTTP"}
        objects = [gateway("gw", listener), *leading_to("web", ports["web"]), route("web", route_rule("/", to="web"))]
        with served(tmp_path, port, *objects):
            hidden = {name: exchange(port, *lines).status for name, lines in HIDDEN.items()}
            broken = {host: exchange(port, "GET / HTTP/1.1", f"Host: {host}").status for host in BROKEN}
            found = exchange(port, f"GET https://{OPEN}/a?b HTTP/1.1", f"Host: {OPEN}").body.split("\n")
            newer = exchange(port, f"GET https://{OPEN}/a?b HTTP/2.0", f"Host: {OPEN}").body.split("\n")
            schemes = {scheme: ask_by_scheme(port, scheme).status for scheme in SCHEMES}

    assert schemes == SCHEMES
    assert hidden == dict.fromkeys(HIDDEN, 400)
    assert broken == dict.fromkeys(BROKEN, 400)
    assert (found[1], newer[1]) == ("/a?b", "/a?b")
