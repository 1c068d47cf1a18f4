"""The list of routes agrees with the explanation of each route, and has those that are not served."""

from typing import Any

import msgspec
import pytest

from haptic_trio.explain.answers import RouteAnswer
from haptic_trio.explain.resolve import explain
from haptic_trio.explain.route_list import Route, RouteState, list_routes
from haptic_trio.k8s.resource import Resource
from tests.explain.sites import Workshop, secret, site_of
from tests.explain.test_gateways import mixed
from tests.explain.test_secrets import PASSWORD
from tests.explain.test_truth import fifty
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service

BORROWING = """\
{% each ingress in resources.ingresses %}
{{ ingress.metadata.name }}.test|/x {{ ident((resources.tlsSecrets.list() | first).data.password | b64decode) }}
{% endeach %}
"""


def web() -> list[Resource]:
    return [service("web"), endpoint_slice("web", endpoint("10.0.0.1"), endpoint("10.0.0.2"), ports={"": 80})]


def listed(*objects: Resource) -> dict[tuple[str, str, str], Route]:
    return {(route.host, route.path, route.name): route for route in list_routes(site_of(*objects))}


def test_a_route_has_its_object_backend_servers_and_place() -> None:
    (route,) = listed(*web(), ingress("i", rule("A.example.com", path("/shop", "web", kind="Exact")))).values()

    assert (route.host, route.path, route.match) == ("a.example.com", "/shop", "exact")
    assert (route.kind, route.namespace, route.name) == ("Ingress", "default", "i")
    assert (route.backend, route.servers, route.state) == ("default_web_80", 2, RouteState.SERVING)
    assert route.place == "maps/path-exact.map:1"


def test_routes_agree_with_their_explanations() -> None:
    site = Workshop(fifty(), sslRedirect=True).site()
    found = [route for route in list_routes(site) if route.match != "none"]

    assert len(found) > 60
    for route in found:
        host = route.host.replace("*", "some.unknown.name" if route.host == "*" else "x")
        answer = explain(site, f"host {host}{route.path}")
        assert isinstance(answer, RouteAnswer)
        lines = {f"{one.line.path}:{one.line.line}": one for one in (answer.winner, *answer.others) if one is not None}
        assert (route.place in lines) or answer.others_count > len(answer.others), route
        if route.place in lines:
            entry = lines[route.place]
            assert (entry.backend, entry.match, entry.scope) == (route.backend, route.match, route.host)
            made = entry.made_by.object
            assert made is not None
            assert (made.kind, made.namespace, made.name) == (route.kind, route.namespace, route.name)
        if answer.winner is not None and answer.winner is lines.get(route.place) and answer.status == 503:
            assert route.state is RouteState.DOWN, route


@pytest.mark.parametrize(
    ("backend", "more", "state", "reason"),
    [
        ("web", {}, RouteState.SERVING, ""),
        ("gone", {}, RouteState.DOWN, "ServiceNotFound: the Service default/gone does not exist"),
        ("empty", {}, RouteState.DOWN, "NoEndpoints: the Service default/empty has no ready endpoint"),
        ("web", {"tls": [{"hosts": ["a.test"], "secretName": "no"}]}, RouteState.DEGRADED, "CertificateNotFound: "),
    ],
)
def test_a_route_that_is_not_as_it_should_be_says_why(
    backend: str, more: dict[str, Any], state: RouteState, reason: str
) -> None:
    objects = [*web(), service("empty"), ingress("i", rule("a.test", path("/", backend)), **more)]

    route = listed(*objects)["a.test", "/", "i"]

    assert route.state is state
    assert route.reason.startswith(reason) if reason else not route.reason


def test_a_problem_of_one_path_is_not_that_of_another() -> None:
    routes = listed(*web(), ingress("i", rule("a.test", path("/a", "web"), path("/b", "gone"))))

    assert routes["a.test", "/a", "i"].state is RouteState.SERVING
    assert routes["a.test", "/b", "i"].state is RouteState.DOWN


def test_a_path_that_another_object_has_is_listed_as_a_conflict() -> None:
    routes = listed(
        *web(),
        ingress("old", rule("a.test", path("/", "web"))),
        service("web", namespace="other"),
        ingress("new", rule("a.test", path("/", "web"), path("/own", "web")), namespace="other", age=2),
    )

    assert routes["a.test", "/", "old"].state is RouteState.SERVING
    lost = routes["a.test", "/", "new"]
    assert (lost.state, lost.match, lost.namespace) == (RouteState.CONFLICT, "none", "other")
    assert "default/old" in lost.reason


def test_a_quarantined_object_has_its_routes_and_the_problem() -> None:
    routes = listed(*web(), ingress("bad", rule("a.test", path("/", "web"), path("/with space\n", "web"))))

    assert {route.state for route in routes.values()} == {RouteState.QUARANTINED}
    assert all(route.reason for route in routes.values())


def test_any_text_of_a_quarantined_object_can_be_sent() -> None:
    odd = ingress(
        "bad", rule("a.test", path("/\udc80", "web"), path("/" + "x" * 9000 + "\n", "web"), path("/a\n", "web"))
    )

    found = msgspec.json.encode(list(listed(*web(), odd).values()))

    assert b"udc80" in found
    assert len(found) < 5000


def test_routes_of_gateways_are_listed_with_their_listener() -> None:
    routes = {route.host: route for route in list_routes(mixed())}

    route = routes["shop.test"]
    assert (route.path, route.match, route.kind, route.name) == ("/shop", "prefix", "HTTPRoute", "web")
    assert (route.backend, route.listener) != ("", "")
    assert route.place.startswith("maps/gateway-prefix.map:")


def test_content_of_secrets_is_not_listed() -> None:
    holder = secret("tls", "a.test")
    holder = {**holder, "data": {**holder["data"], "password": "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5"}}
    site = site_of(
        holder, *web(), ingress("i", rule("a.test", path("/", "web"))), snippets={"map-path-prefix-planted": BORROWING}
    )

    found = msgspec.json.encode(list_routes(site)).decode()

    assert PASSWORD in site.texts["maps/path-prefix.map"].text
    assert PASSWORD not in found
    assert "secret, digest" in found
