"""Regular expressions for paths in several routes of one host, on a real HAProxy: each of them routes."""

from pathlib import Path
from typing import Any

import pytest

from haptic_trio.k8s.resource import Resource
from tests.gateway.crowd import HOST, open_gateway
from tests.gateway.objects import route, rule
from tests.gateway.serving import render
from tests.support.processes.ports import free_port
from tests.support.traffic.proxy import running
from tests.support.traffic.servers import ask

pytestmark = pytest.mark.haproxy


def expression(value: str, **fields: Any) -> dict[str, Any]:
    """Return a match of paths by the expression *value*."""
    return {"path": {"type": "RegularExpression", "value": value}, **fields}


def method(service: str) -> dict[str, Any]:
    """Return a match of the methods of gRPC services by the expression *service*."""
    return {"method": {"type": "RegularExpression", "service": service, "method": "Get"}}


def named(name: str, day: int, *matches: dict[str, Any], kind: str = "HTTPRoute", host: str = HOST) -> Resource:
    """Return a route of the namespace *name*, created on *day*, whose answers name it."""
    redirect = {"type": "RequestRedirect", "requestRedirect": {"hostname": f"{name}.test"}}
    filters = [redirect] if kind == "HTTPRoute" else []
    found = rule(matches=list(matches), filters=filters)
    if kind == "HTTPRoute":
        del found["backendRefs"]
    return route(
        name,
        found,
        kind=kind,
        hostnames=[host] if host else [],
        namespace=name,
        created=f"2026-01-{day:02}T00:00:00Z",
        parents=[{"name": "gw", "namespace": "web"}],
    )


def answers(directory: Path, routes: list[Resource], *targets: str) -> list[str]:
    """Return the names of the routes that requests for *targets* came to, or else their status."""
    port = free_port()
    rendered = render(open_gateway(port), *routes, bindAddress="127.0.0.1")
    files = {file.path: file.content.decode() for file in rendered.files.values()}
    with running(directory, rendered.text, files, port=port):
        found = [ask(port, HOST, target) for target in targets]
    return [
        one.headers["location"].split("/")[2].partition(".")[0] if one.status == 302 else str(one.status)
        for one in found
    ]


@pytest.mark.parametrize("host", [HOST, "*.test", ""])
def test_each_route_of_a_host_is_reached_by_its_expressions(tmp_path: Path, host: str) -> None:
    routes = [
        named("first", 1, expression("/[a-c]+"), host=host),
        named("second", 2, expression("/[c-e]+"), expression("/two/.*"), host=host),
        named("third", 3, expression("/x/[0-9]+"), host=host),
    ]

    found = answers(tmp_path, routes, "/a", "/e", "/c", "/two/x", "/x/1", "/x/y")

    assert found == ["first", "second", "first", "second", "third", "404"]


@pytest.mark.parametrize("day", [1, 9], ids=["older", "younger"])
def test_expressions_come_before_the_prefix_of_all_paths(tmp_path: Path, day: int) -> None:
    everything = {"path": {"type": "PathPrefix", "value": "/"}}
    routes = [
        named("all", day, everything),
        named("method", 2, {**everything, "method": "GET"}),
        named("one", 4, expression("/a[0-9]")),
        named("two", 5, expression("/b[0-9]")),
        named("prefix", 6, {"path": {"type": "PathPrefix", "value": "/b1"}}),
    ]

    assert answers(tmp_path, routes, "/a1", "/b2", "/b1", "/c") == ["one", "two", "prefix", "method"]
