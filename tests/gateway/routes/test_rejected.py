"""Rejected routes without a good version, as after a restart, keep their paths: no other route gets their requests."""

from pathlib import Path
from typing import Any

import pytest

from haptic_trio.gateway.routes.kinds import HTTP_ROUTE
from haptic_trio.gateway.routes.matches import PREFIX
from haptic_trio.gateway.routes.routing import entries, rule_entries
from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline.render import Rendered
from tests.gateway.filters.test_filters import leading_to
from tests.gateway.objects import CONTROLLER, gateway, gateway_class, route, rule, service, stores_of
from tests.gateway.serving import endpoints, served
from tests.support.components.succession import Succession
from tests.support.kubernetes import AGES
from tests.support.processes.ports import free_port
from tests.support.traffic.servers import ask, serving

LIBRARIES = ("base", "ssl", "gateway")
ALL = {"namespaces": {"from": "All"}}
BAD = [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "x", "value": "a\x00b"}]}}]
CLOSED = "no-route"


def versioned(resource: Resource, version: int) -> Resource:
    metadata = {**resource["metadata"], "resourceVersion": str(version), "uid": resource["metadata"]["name"]}
    return {**resource, "metadata": metadata}


def owned(namespace: str, age: int, *rules: Any, version: int = 1, kind: str = "HTTPRoute", **more: Any) -> Resource:
    fields = {"hostnames": ["a.test"], "parents": [{"name": "gw", "namespace": "infra"}], **more}
    found = route(namespace, *rules, namespace=namespace, created=AGES.format(age), **fields)
    return versioned({**found, "kind": kind}, version)


def broken(path: str = "/", **fields: Any) -> Any:
    """Return a rule that is dropped, since it sets a header to an invalid value."""
    return {**rule(path, to="app"), "filters": BAD, **fields}


def serve(*objects: Resource) -> tuple[Succession, Rendered]:
    """Start a controller that has rendered nothing before."""
    controller = Succession(LIBRARIES)
    listeners = gateway(
        "gw",
        {"name": "http", "port": 8888, "protocol": "HTTP", "hostname": "*.test", "allowedRoutes": ALL},
        {"name": "own", "port": 8888, "protocol": "HTTP", "hostname": "b.test", "allowedRoutes": ALL},
    )
    listeners["metadata"]["namespace"] = "infra"
    found = [service("app", namespace=namespace) for namespace in ("victim", "evil")]
    return controller, controller.render(gateway_class(), listeners, *found, endpoints("app", ("", 80)), *objects)


def entries_in(rendered: Rendered, kind: str = "prefix") -> dict[str, str]:
    """Return the values of entries, without the listeners: by host and path."""
    lines = [line for line in rendered.texts[f"maps/gateway-{kind}.map"].text.splitlines() if line[:1] != "#"]
    found = [line.partition("|")[2].split(" ", 1) for line in lines if line]
    assert len({key for key, _ in found}) == len(found)
    return {key: value.removesuffix(">victim") for key, value in found}


EVIL = "gateway::evil_app_80"
VICTIM = "gateway::victim_app_80"


def test_a_younger_route_of_another_namespace_does_not_get_the_requests_of_a_rejected_route() -> None:
    _, rendered = serve(owned("victim", 5, broken("/"), broken("/x")), owned("evil", 20, rule("/", to="app")))

    assert {str(one.subject) for one in rendered.rejections} == {"HTTPRoute victim/victim"}
    assert entries_in(rendered) == {"a.test|/": CLOSED, "a.test|/x/": CLOSED}


def test_a_rejected_route_takes_no_match_of_an_older_route_and_no_more_specific_one() -> None:
    older = owned("evil", 1, rule("/", to="app"))
    _, rendered = serve(older, owned("victim", 5, broken("/"), broken("/x")))
    assert entries_in(rendered) == {"a.test|/": EVIL, "a.test|/x/": CLOSED}

    conditional = rule("/", to="app")
    conditional["matches"][0]["headers"] = [{"name": "x-beta", "value": "yes"}]
    younger = owned("evil", 9, conditional, rule("/x/y", to="app"))
    _, rendered = serve(younger, owned("victim", 5, broken("/")))
    assert entries_in(rendered) == {"a.test|/": f"?h,x-beta,yes>{EVIL};>{CLOSED}", "a.test|/x/y/": EVIL}


def test_only_matches_that_can_be_expressed_are_kept() -> None:
    headers = [{"name": "x-beta", "value": "(", "type": "RegularExpression"}]
    matches = [
        {"path": {"type": "Exact", "value": "/e"}},
        {"path": {"type": "Exact", "value": "no path"}},
        {"path": {"type": "PathPrefix", "value": "/p"}, "headers": headers},
    ]
    _, rendered = serve(owned("victim", 5, broken(matches=matches)), owned("evil", 20, rule("/p", to="app")))

    assert (entries_in(rendered, "exact"), entries_in(rendered)) == ({"a.test|/e": CLOSED}, {"a.test|/p/": EVIL})


def test_a_rejected_route_keeps_paths_only_on_the_listeners_that_it_is_attached_to() -> None:
    parents = [{"name": "gw", "namespace": "infra", "sectionName": "http"}]
    rejected = owned("victim", 5, broken(), hostnames=["a.test", "b.test", "elsewhere.example"], parents=parents)
    younger = owned("evil", 20, rule("/", to="app"), hostnames=["b.test"])
    listener = younger["spec"]["parentRefs"][0]
    younger["spec"]["parentRefs"] = [{**listener, "sectionName": "own"}]

    _, rendered = serve(rejected, younger)

    lines = rendered.texts["maps/gateway-prefix.map"].text.splitlines()
    assert [line for line in lines if "elsewhere" in line] == []
    assert sorted(line.partition(" ")[2].partition(">")[0] for line in lines if "|b.test|" in line) == [EVIL, CLOSED]


def test_a_rejected_grpc_route_keeps_its_methods() -> None:
    matches = [{"method": {"service": "shop.Cart", "method": "Add"}}, {"method": {"service": "shop.Orders"}}]
    rejected = owned("victim", 5, broken(matches=matches), kind="GRPCRoute")
    younger = owned("evil", 20, {**rule("/", to="app"), "matches": matches}, kind="GRPCRoute")

    _, rendered = serve(rejected, younger)

    assert entries_in(rendered, "exact") == {"a.test|/shop.Cart/Add": CLOSED}
    assert entries_in(rendered) == {"a.test|/shop.Orders/": CLOSED}


@pytest.mark.parametrize("has_history", [False, True])
def test_a_good_version_is_served_and_a_corrected_route_is_open_again(has_history: bool) -> None:
    evil = owned("evil", 20, rule("/", to="app"))
    first = [owned("victim", 5, rule("/", to="app"))] if has_history else []
    controller, _ = serve(evil, *first)

    rendered = controller.render(owned("victim", 5, broken(), version=2))
    assert entries_in(rendered) == {"a.test|/": VICTIM if has_history else CLOSED}

    rendered = controller.render(owned("victim", 5, rule("/", to="app"), version=3))
    assert (entries_in(rendered), rendered.rejections) == ({"a.test|/": VICTIM}, ())

    controller.delete(owned("victim", 5))
    assert entries_in(controller.render()) == {"a.test|/": EVIL}


def test_a_route_that_is_rejected_for_another_reason_is_not_served_in_part() -> None:
    extension = {"type": "ExtensionRef", "extensionRef": {"group": "haptic-trio.io", "kind": "Filter", "name": "f"}}
    plain = route("r", rule("/"), rule("/x"))
    guarded = route("r", rule("/"), {**rule("/x"), "filters": [extension]})
    found = []
    for one in (plain, guarded):
        stores = stores_of(gateway_class(), gateway(), service(), one)
        written = entries(one, HTTP_ROUTE, PREFIX, stores, CONTROLLER, is_rejected=True)
        found.append([entry.value.partition(">")[0] for entry in written])

    # The rules without a filter that may guard access are served, the other one is answered with 500.
    (key,) = [entry.key for entry in rule_entries(guarded, HTTP_ROUTE, stores, CONTROLLER)]
    assert found == [[CLOSED, CLOSED], ["gateway::web_app_80", f"={key}"]]


def test_the_message_about_each_fragment_of_a_rejected_route_names_its_own_template() -> None:
    _, rendered = serve(owned("victim", 5, broken()))

    places = {one.fragment: one.problem.source for one in rendered.rejections}
    assert places == {f"gateway-{name}-http": f"maps/gateway-{name}.map" for name in ("rules", "exact", "prefix")}


@pytest.mark.haproxy
def test_requests_of_a_rejected_route_are_answered_with_503(tmp_path: Path) -> None:
    port = free_port()
    beta = rule("/", to="web")
    beta["matches"][0]["headers"] = [{"name": "x-beta", "value": "yes"}]
    objects = [
        gateway("gw", {"name": "web", "port": port, "protocol": "HTTP"}),
        route("old", rule("/old", to="web"), hostnames=["a.test"], created=AGES.format(1)),
        route("bad", broken(), broken("/old"), hostnames=["a.test", "*.b.test"], created=AGES.format(5)),
        route("new", rule("/", to="web"), hostnames=["a.test", "*.b.test"], created=AGES.format(9)),
        route("beta", beta, hostnames=["*.b.test"], created=AGES.format(9)),
    ]
    with serving("web") as ports:
        objects += leading_to("web", ports["web"])
        with served(tmp_path, port, *objects, rejected=("HTTPRoute web/bad",)):
            closed = [ask(port, host, "/x").status for host in ("a.test", "w.b.test")]
            others = [ask(port, "a.test", "/old").status]
            others.append(ask(port, "w.b.test", "/x", headers={"x-beta": "yes"}).status)

    assert (closed, others) == ([503, 503], [200, 200])
