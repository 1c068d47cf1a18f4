"""Routes of several namespaces for one host, on a real HAProxy: who serves what."""

from pathlib import Path
from typing import Any

import pytest

from haptic_trio.k8s.resource import Resource
from tests.gateway.crowd import HOST
from tests.gateway.objects import gateway, grant, route, rule, service
from tests.gateway.serving import served
from tests.support.kubernetes import ingress
from tests.support.kubernetes import path as ingress_path
from tests.support.kubernetes import rule as ingress_rule
from tests.support.processes.ports import free_port
from tests.support.traffic.servers import ask

pytestmark = pytest.mark.haproxy

WIDE = "*." + HOST.partition(".")[2]


def to(name: str, *matches: dict[str, Any], namespace: str = "", host: str = HOST, day: int = 1) -> Resource:
    """Return a route of *namespace* whose answers name it."""
    redirect = {"type": "RequestRedirect", "requestRedirect": {"hostname": f"{name}.test"}}
    found = rule(matches=list(matches), filters=[redirect])
    del found["backendRefs"]
    parents = [{"name": "gw", "namespace": "web"}]
    created = f"2026-01-{day:02}T00:00:00Z"
    hosts = [host] if host else []
    return route(name, found, hostnames=hosts, namespace=namespace or name, created=created, parents=parents)


def prefix(value: str, **more: Any) -> dict[str, Any]:
    return {"path": {"type": "PathPrefix", "value": value}, **more}


def listener(name: str, port: int, source: str = "All", **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "port": port,
        "protocol": "HTTP",
        "allowedRoutes": {"namespaces": {"from": source}},
        **fields,
    }


def who(port: int, host: str, target: str, **headers: str) -> str:
    """Return the name of the route that a request came to, or else the status."""
    answer = ask(port, host, target, headers=headers)
    if answer.status != 302:
        return str(answer.status)
    return answer.headers["location"].split("/")[2].partition(".")[0]


def test_routes_of_a_wider_listener_serve_no_path_of_a_listeners_host(tmp_path: Path) -> None:
    port = free_port()
    routes = [
        to("own", prefix("/api"), namespace="web"),
        to("wide", prefix("/"), host=WIDE),
        to("every", prefix("/"), host=""),
    ]
    shared = gateway("gw", listener("all", port))
    with served(tmp_path, port, shared, *routes):
        # As the Gateway API orders them, hosts of one listener are open to wider ones.
        assert [who(port, HOST, target) for target in ("/api", "/other")] == ["own", "wide"]

    apart = gateway("gw", listener("all", port), listener("own", port, "Same", hostname=HOST))
    with served(tmp_path, port, apart, *routes):
        assert [who(port, HOST, target) for target in ("/api", "/other")] == ["own", "404"]
        assert [who(port, host, "/other") for host in (HOST.replace("shop", "x"), "x.example.org")] == ["wide", "every"]


@pytest.mark.parametrize(("other", "own"), [("/%61dmin", "/admin"), ("/admin", "/%61dmin"), ("/a%26b", "/a&b")])
@pytest.mark.parametrize("kind", ["PathPrefix", "Exact"])
def test_an_older_route_with_another_spelling_of_a_path_takes_only_requests_that_it_matches(
    tmp_path: Path, kind: str, other: str, own: str
) -> None:
    port = free_port()
    routes = [
        to("older", {"path": {"type": kind, "value": other}, "headers": [{"name": "x", "value": "older"}]}),
        to("guard", {"path": {"type": kind, "value": own}}, namespace="victim", day=5),
        to("rest", prefix("/"), namespace="victim", day=5),
    ]

    with served(tmp_path, port, gateway("gw", listener("all", port)), *routes):
        assert [who(port, HOST, path) for path in (own, other)] == ["guard", "guard"]
        assert [who(port, HOST, path, x="older") for path in (own, other)] == ["older", "older"]


def test_spellings_are_paths_of_their_own_if_paths_are_not_normalised(tmp_path: Path) -> None:
    port = free_port()
    routes = [to("one", prefix("/%61dmin")), to("other", prefix("/admin"), day=5), to("rest", prefix("/"), day=5)]

    with served(tmp_path, port, gateway("gw", listener("all", port)), *routes, normalizePaths=False):
        assert [who(port, HOST, path) for path in ("/%61dmin", "/admin", "/%41dmin")] == ["one", "other", "rest"]


def test_an_ingress_and_a_route_of_one_host_have_ports_of_their_own(tmp_path: Path) -> None:
    port, http = free_port(), free_port()
    own = ingress("own", ingress_rule(HOST, ingress_path("/api", "web")), namespace="own")
    objects = [gateway("gw", listener("all", port)), own, to("wide", prefix("/"), host=WIDE)]
    context: dict[str, Any] = {"libraries": ("ingress",), "httpPort": http, "hostOwnership": "namespace"}
    with served(tmp_path, port, *objects, **context):
        assert [who(port, HOST, target) for target in ("/api", "/other")] == ["wide", "wide"]
        # The Service of the Ingress is not there.
        assert [who(http, HOST, target) for target in ("/api", "/other")] == ["503", "404"]


def regex(value: str, **more: Any) -> dict[str, Any]:
    return {"path": {"type": "RegularExpression", "value": value}, **more}


def with_header(value: str) -> dict[str, Any]:
    return prefix("/", headers=[{"type": "RegularExpression", "name": "x", "value": value}])


LONG, LONGEST = "/" + "a" * 3_000, "/" + "a" * 9_000
SLOW = "/[a-z]*[a-y]*[0-9]"
"""Takes too many steps for `LONG`."""


@pytest.mark.parametrize("day", [1, 9], ids=["older", "younger"])
def test_an_expression_costs_long_requests_of_other_namespaces_nothing(tmp_path: Path, day: int) -> None:
    port = free_port()
    routes = [
        to("first", regex(SLOW), regex(SLOW + "x", headers=[{"name": "h", "value": "no"}]), day=day),
        to("second", regex("/[ab]+"), day=5),
        to("third", prefix("/"), day=6),
        to("deep", prefix("/deep"), namespace="first", day=7),
    ]
    with served(tmp_path, port, gateway("gw", listener("all", port)), *routes):
        found = [who(port, HOST, target) for target in ("/a1", LONG, LONG + "c", "/deep/" + LONG)]

    assert found == ["first", "second", "third", "deep"]


def test_a_long_request_does_not_bypass_a_rule_of_the_namespace_that_serves_it(tmp_path: Path) -> None:
    port = free_port()
    routes = [
        to("guard", regex(SLOW), namespace="own"),
        to("rest", prefix("/"), namespace="own", day=2),
        to("other", prefix("/"), day=3),
    ]
    with served(tmp_path, port, gateway("gw", listener("all", port)), *routes):
        assert [who(port, HOST, target) for target in ("/a1", "/b", LONG, "/b;x" + LONG, LONGEST)] == [
            *("guard", "rest"),
            *("414", "414", "414"),
        ]


@pytest.mark.parametrize("host", [WIDE, ""], ids=["wildcard", "every host"])
def test_a_wider_host_of_another_namespace_serves_long_requests(tmp_path: Path, host: str) -> None:
    port = free_port()
    own = to("guard", regex(SLOW), namespace="own")
    shared = gateway("gw", listener("all", port))
    for wider, wanted in (
        (to("wider", prefix("/"), host=host), "wider"),
        (to("wider", prefix("/"), host=host, namespace="own"), "414"),
        (to("wider", prefix("/", method="GET"), host=host), "wider"),
        (to("wider", prefix("/", method="GET"), host=host, namespace="own"), "414"),
        # No route serves it.
        (to("wider", prefix("/x"), host=host), "414"),
    ):
        with served(tmp_path, port, shared, own, wider):
            assert who(port, HOST, LONG) == wanted


@pytest.mark.parametrize("host", [HOST, WIDE, ""], ids=["host", "wildcard", "every host"])
def test_the_namespace_of_a_route_counts_and_not_that_of_its_service(tmp_path: Path, host: str) -> None:
    port = free_port()
    guard = to("guard", regex(SLOW), namespace="own")
    for namespace, wanted in (("own", "414"), ("app", "503")):
        # Its Service has no endpoints, and is in the namespace `app` in either case.
        found = rule(matches=[prefix("/")])
        found["backendRefs"] = [{"name": "app", "namespace": "app", "port": 80}]
        parents = [{"name": "gw", "namespace": "web"}]
        rest = route("rest", found, hostnames=[host] if host else [], namespace=namespace, parents=parents)
        objects = [guard, rest, service(namespace="app"), grant("app", origin="own")]
        with served(tmp_path, port, gateway("gw", listener("all", port)), *objects):
            # The path with two readings has one route.
            assert [who(port, HOST, target) for target in ("/b", "/a%2Fb", LONG)] == ["503", "503", wanted]


def test_a_header_that_is_too_long_costs_requests_of_other_namespaces_nothing(tmp_path: Path) -> None:
    port = free_port()
    slow = with_header("[a-z]*[a-y]*[!?]")
    guarded = [to("first", slow), to("rest", prefix("/"), namespace="first", day=2)]
    for routes, wanted in (
        ([to("first", slow), to("second", prefix("/"), day=2)], "second"),
        (guarded, "431"),
        ([*guarded, to("second", with_header("a+"), day=3)], "second"),
        ([*guarded, to("second", with_header("b+"), day=3)], "431"),
    ):
        with served(tmp_path, port, gateway("gw", listener("all", port)), *routes):
            assert who(port, HOST, "/", x="a" * 5_000) == wanted


def test_steps_of_one_namespace_leave_steps_for_the_expressions_of_another(tmp_path: Path) -> None:
    port = free_port()
    costly = [regex(f"/[a-z]*[a-y]*[{number}]") for number in range(9)]
    routes = [
        to("first", *costly),
        to("second", regex("/[a-z]*[a-y]*"), day=2),
        to("rest", prefix("/"), namespace="second", day=3),
    ]
    with served(tmp_path, port, gateway("gw", listener("all", port)), *routes):
        assert who(port, HOST, "/" + "a" * 1_000) == "second"


@pytest.mark.parametrize("host", [WIDE, ""], ids=["wildcard", "every host"])
def test_steps_of_one_host_leave_steps_for_the_expressions_of_a_wider_one(tmp_path: Path, host: str) -> None:
    port = free_port()
    routes = [
        to("first", *(regex(f"/[a-z]*[a-y]*[{number}]") for number in range(16))),
        to("second", regex("/[a-z]*[a-y]*"), host=host, day=2),
        to("rest", prefix("/"), host=host, namespace="second", day=3),
    ]
    with served(tmp_path, port, gateway("gw", listener("all", port)), *routes):
        assert who(port, HOST, "/" + "a" * 1_000) == "second"
