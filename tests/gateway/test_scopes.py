"""Hosts of routes, with and without `*`, on a real HAProxy: the most specific one that has an answer counts."""

import socket
from pathlib import Path
from typing import Any

import pytest

from haptic_trio.k8s.resource import Resource
from tests.gateway.objects import gateway, route
from tests.gateway.serving import render, served
from tests.support.processes.ports import free_port
from tests.support.traffic.proxy import running
from tests.support.traffic.servers import ask

pytestmark = pytest.mark.haproxy


def named(name: str, *hostnames: str, parent: str = "", **match: Any) -> Resource:
    """Return a route whose answers name it: for the path `/` of *hostnames*, with the conditions of *match*."""
    redirect = {"type": "RequestRedirect", "requestRedirect": {"hostname": f"{name}.answer"}}
    path = {"path": {"type": "PathPrefix", "value": "/"}}
    parents = [{"name": "gw", **({"sectionName": parent} if parent else {})}]
    return route(
        name, {"matches": [path | match], "filters": [redirect]}, hostnames=list(hostnames), parents=parents
    )  # fmt: skip


def asked(port: int, host: str, path: str = "/", **headers: str) -> str:
    """Return the name of the route that a request came to, or else its status."""
    answer = ask(port, host, path, headers=headers)
    return answer.headers["location"].split("/")[2].partition(".")[0] if answer.status == 302 else str(answer.status)


def header(value: str) -> dict[str, Any]:
    """Return a condition on the header `x`."""
    return {"headers": [{"name": "x", "value": value}]}


def test_a_request_that_meets_no_condition_goes_to_the_next_wider_host(tmp_path: Path) -> None:
    port = free_port()
    objects = [
        gateway("gw", {"name": "any", "port": port, "protocol": "HTTP"}),
        named("exact", "a.b.c.test", **header("1")),
        named("near", "*.b.c.test", **header("2")),
        named("far", "*.test", **header("3")),
        named("any", method="GET", **header("4")),
        named("posted", "*.c.test", method="POST"),
    ]
    with served(tmp_path, port, *objects):
        for host, path, wanted in (
            ("a.b.c.test", "/", ("exact", "near", "far", "any", "404")),
            ("x.b.c.test", "/", ("404", "near", "far", "any", "404")),
            ("y.x.b.c.test", "/", ("404", "near", "far", "any", "404")),
            ("x.test", "/", ("404", "404", "far", "any", "404")),
            ("test", "/", ("404", "404", "404", "any", "404")),
            # The application may read these paths in two ways, which have the same route.
            ("a.b.c.test", "/a%2Fb", ("exact", "near", "far", "any", "404")),
        ):
            assert tuple(asked(port, host, path, x=value) for value in "12345") == wanted, (host, path)


def test_a_path_without_conditions_ends_the_search(tmp_path: Path) -> None:
    port = free_port()
    objects = [
        gateway("gw", {"name": "any", "port": port, "protocol": "HTTP"}),
        named("exact", "a.c.test", **header("1")),
        named("domain", "*.c.test"),
        named("far", "*.test", **header("1")),
    ]
    with served(tmp_path, port, *objects):
        assert [asked(port, "a.c.test", x=value) for value in "12"] == ["exact", "domain"]
        assert [asked(port, "b.c.test", x=value) for value in "12"] == ["domain", "domain"]
        assert [asked(port, "a.c.test", "/a%2Fb", x=value) for value in "12"] == ["exact", "domain"]
        assert [asked(port, "d.test", x=value) for value in "12"] == ["far", "404"]


@pytest.mark.parametrize("labels", [1, 3, 20])
def test_a_wildcard_stands_for_as_many_labels_as_configured(tmp_path: Path, labels: int) -> None:
    port = free_port()
    listeners = [
        {"name": name, "port": port, "protocol": "HTTP", **({"hostname": host} if host else {})}
        for name, host in (("any", ""), ("domain", "*.test"), ("one", "one.test"))
    ]
    objects = [
        gateway("gw", *listeners),
        named("any", parent="any"),
        named("domain", "*.test", parent="domain"),
        named("condition", "x.test", parent="domain", **header("1")),
        named("one", parent="one"),
    ]
    most = ".".join("a" * labels)
    with served(tmp_path, port, *objects, gatewayWildcardLabels=labels):
        assert [asked(port, host) for host in ("one.test", f"{most}.test", f"b.{most}.test", "x.other")] == [
            "one", "domain", "any", "any",
        ]  # fmt: skip
        # Empty labels are none.
        assert asked(port, "x.test") == asked(port, "x..test") == "domain"
        assert asked(port, "x.test", x="1") == "condition"


def test_a_route_that_a_running_haproxy_gets_counts_for_wider_hosts(tmp_path: Path) -> None:
    port = free_port()
    rendered = render(
        gateway("gw", {"name": "any", "port": port, "protocol": "HTTP"}),
        named("exact", "a.test", **header("1")),
        bindAddress="127.0.0.1",
    )
    files = {file.path: file.content.decode() for file in rendered.files.values()}
    text = rendered.text.replace("global\n", f"global\n    stats socket {tmp_path}/admin.sock level admin\n", 1)
    key = files["maps/gateway-rules.map"].split()[0]
    with running(tmp_path, text, files, port=port):
        before = asked(port, "a.test", x="2")
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(tmp_path / "admin.sock"))
            connection.sendall(f"add map maps/gateway-prefix.map web/gw/any|*.test|/ ={key}\n".encode())
            said = connection.makefile().read()
        after = asked(port, "a.test", x="2")

    assert (before, said.strip(), after) == ("404", "", "exact")
