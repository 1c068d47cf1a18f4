"""The Gateway API library: what comes of routes, whatever is in them, and what their changes cost."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from haptic_trio.gateway.expressions.check import Expression, expression
from haptic_trio.gateway.routes import matches
from haptic_trio.gateway.routes.precedence.claimants import MOST_ROUTES
from haptic_trio.k8s.resource import Resource, ref_of
from haptic_trio.k8s.store import Stores
from haptic_trio.pipeline.render import Rendered, Renderer
from haptic_trio.templating.incremental.recorder import current_recorder
from haptic_trio.validation_tests.fixtures import make_stores
from tests.gateway.crowd import HOST, conditional, crowd, open_gateway, shop
from tests.gateway.objects import gateway, gateway_class, made, plural_of, route, rule, service
from tests.support.components.rendering import library_config

NASTY = [
    "\n",
    "\r",
    "\t",
    " ",
    "'",
    '"',
    "\\",
    "#",
    "%",
    "%[src]",
    "${HOME}",
    "$",
    ",",
    ";",
    ">",
    "&",
    "|",
    "?",
    "=",
    "}",
]
HOSTILE = st.lists(st.one_of(st.sampled_from(NASTY), st.text(max_size=3)), min_size=1, max_size=8).map("".join)


class Site:
    """A configuration with one Gateway and one route, and whatever is put beside it."""

    def __init__(self) -> None:
        self.config = library_config("base", "ssl", "gateway")
        self.stores: Stores = make_stores(self.config)
        self._renderer = Renderer(self.config)
        slices = made(
            "EndpointSlice",
            "app-1",
            version="discovery.k8s.io/v1",
            addressType="IPv4",
            ports=[{"name": "", "port": 8080}],
            endpoints=[{"addresses": ["10.0.0.1"]}],
        )
        slices["metadata"]["labels"] = {"kubernetes.io/service-name": "app"}
        self.put(gateway_class(), gateway(), service(), slices, route("good", rule("/good")))

    def _stores_of(self, one: Resource) -> list[str]:
        watched = self.config.watched_resources.items()
        return [
            name for name, kind in watched if (kind.api_version, kind.resources) == (one["apiVersion"], plural_of(one))
        ]

    def put(self, *objects: Resource) -> None:
        for one in objects:
            for name in self._stores_of(one):
                self.stores[name].upsert(one)

    def remove(self, *objects: Resource) -> None:
        for one in objects:
            for name in self._stores_of(one):
                self.stores[name].delete(ref_of(one))

    def render(self) -> Rendered:
        return self._renderer.render_here(self.stores)


SITE = Site()
PLAIN = SITE.render().text


def hostile_route(text: str) -> Resource:
    """Return a route with *text* in every place where the API takes text."""
    condition = {"name": text, "value": text}
    modifier = {"set": [{"name": "x-a", "value": text}], "add": [{"name": text, "value": text}], "remove": [text]}
    filters: list[dict[str, Any]] = [
        {"type": "RequestHeaderModifier", "requestHeaderModifier": modifier},
        {"type": "ResponseHeaderModifier", "responseHeaderModifier": {"set": [{"name": "x-b", "value": text}]}},
        {"type": "CORS", "cors": {"allowOrigins": [text], "allowMethods": [text], "allowHeaders": [text]}},
        {"type": text},
    ]
    return route(
        "hostile",
        rule(matches=[{"path": {"type": "PathPrefix", "value": "/a"}, "queryParams": [condition]}], name=text),
        rule(matches=[{"path": {"type": "Exact", "value": f"/{text}"}}]),
        rule(matches=[{"path": {"type": "RegularExpression", "value": text}}]),
        rule("/b", filters=filters),
        rule("/c", filters=filters[1:]),
        rule("/d", to=text),
        rule("/e", timeouts={"request": text}),
        hostnames=[text, f"*.{text}", "a.test"],
        parents=[{"name": "gw", "sectionName": text}, {"name": "gw"}, {"name": text}],
    )


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(HOSTILE, st.integers(0, 6))
def test_nothing_of_a_route_gets_into_the_configuration(text: str, number: int) -> None:
    whole = hostile_route(text)
    # Alone, so that one rule that is rejected does not hide the others.
    alone = {**whole, "spec": {**whole["spec"], "rules": [whole["spec"]["rules"][number]]}}
    for one in (whole, alone):
        SITE.put(one)

        rendered = SITE.render()

        assert rendered.text == PLAIN
        for path, content in rendered.texts.items():
            if path.startswith("maps/gateway-"):
                lines = [line for line in content.text.split("\n") if line]
                begins = ("web/", "HTTPRoute/web/", "gateway-port::web_")
                assert all(line.split(" ")[0].startswith(begins) for line in lines)
                assert all(len(line.split(" ")) == 2 for line in lines)
        assert "web/gw/http|*|/good/ gateway::web_app_80" in rendered.texts["maps/gateway-prefix.map"].text


def test_a_route_costs_what_it_changes() -> None:
    site = Site()
    site.put(*(route(f"r{number}", rule("/"), hostnames=[f"h{number}.test"]) for number in range(200)))
    site.render()

    site.put(route("new", rule("/"), hostnames=["new.test"]))
    rendered = site.render()

    # The route in each of three maps; the backend of its Service is for the others, too.
    assert rendered.fragments_rendered == 3
    assert not rendered.is_new


def test_what_we_write_into_a_status_renders_nothing_again() -> None:
    site = Site()
    site.render()

    site.put({**route("good", rule("/good")), "status": {"parents": []}})

    assert site.render().fragments_rendered == 0


def test_owners_get_warnings_about_fields_without_effect_while_their_route_is_served() -> None:
    site = Site()
    slow = {**rule("/a", retry={"attempts": 1, "backoff": "1s"}), "sessionPersistence": {"type": "Header"}}
    site.put(route("slow", slow))

    said = {warning.message.split(":")[0]: warning.reason for warning in site.render().warnings}

    assert said == {
        "spec.rules[0].retry.backoff": "FieldWithoutEffect",
        "spec.rules[0].sessionPersistence": "FieldWithoutEffect",
    }
    site.put(route("slow", slow, parents=[{"name": "gone"}]))
    assert site.render().warnings == ()


@pytest.mark.parametrize("day", [1, 28], ids=["older", "younger"])
@pytest.mark.parametrize("namespace", ["a-victim", "victim"])
def test_very_many_matches_of_a_namespace_leave_the_routes_of_another_served(day: int, namespace: str) -> None:
    site = Site()
    site.put(open_gateway(), service(namespace=namespace), service(namespace="attacker"))
    site.put(shop(namespace), *crowd(day))

    rendered = site.render()

    assert rendered.rejections == ()
    candidates = list_in(rendered)
    assert f"h,x-version,beta>gateway::{namespace}_app_80" in candidates
    assert candidates[-1] == f">gateway::{namespace}_app_80"
    assert len(candidates) > 100
    assert {(warning.subject.namespace, warning.reason) for warning in rendered.warnings} == {
        ("attacker", "FieldWithoutEffect")
    }


@pytest.mark.parametrize("kind", ["Exact", "PathPrefix"])
def test_each_route_is_analysed_once_and_at_its_own_cost(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    analysed: list[str] = []

    def noted(text: str) -> Expression:
        analysed.append(current_recorder().subjects[-1].namespace)
        return expression(text)

    def attack(number: int, version: str) -> Resource:
        header = {"name": "x-version", "type": "RegularExpression", "value": f"{version}{number}+"}
        return common(f"r{number}", {"headers": [header]}, namespace="attacker", created="2026-01-28T00:00:00Z")

    def common(name: str, match: dict[str, Any], **fields: Any) -> Resource:
        found = rule(matches=[{"path": {"type": kind, "value": "/cart"}, **match}])
        return route(name, found, hostnames=[HOST], parents=[{"name": "gw", "namespace": "web"}], **fields)

    monkeypatch.setattr(matches, "expression", noted)
    site = Site()
    site.put(open_gateway(), service(namespace="victim"), service(namespace="attacker"))
    site.put(common("shop", {}, namespace="victim", created="2026-01-01T00:00:00Z"))
    site.put(*(attack(number, "a") for number in range(8)))
    site.render()
    assert analysed == ["attacker"] * 8

    analysed.clear()
    site.put(*(attack(number, "b") for number in range(8)))
    site.render()
    assert analysed == ["attacker"] * 8

    analysed.clear()
    site.put(common("shop", {"method": "GET"}, namespace="victim", created="2026-01-01T00:00:00Z"))
    site.render()
    assert analysed == []


def test_routes_add_no_backends_to_a_service_that_they_may_not_name() -> None:
    site = Site()
    site.put(service(namespace="victim"), route("shop", rule("/"), namespace="victim"))
    foreign = rule("/", retry={"attempts": 3, "codes": [500]})
    foreign["backendRefs"][0]["namespace"] = "victim"
    site.put(route("evil", foreign, namespace="attacker"))

    def backends() -> list[str]:
        lines = site.render().texts["haproxy.cfg"].text.splitlines()
        return [line.split()[1] for line in lines if line.startswith("backend gateway::victim_")]

    assert backends() == ["gateway::victim_app_80"]

    origin = {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "attacker"}
    granted = {"from": [origin], "to": [{"group": "", "kind": "Service"}]}
    site.put(made("ReferenceGrant", "open", namespace="victim", spec=granted))

    assert backends() == ["gateway::victim_app_80", "gateway::victim_app_80_retry3_500"]


@pytest.mark.parametrize("day", [1, 28], ids=["older", "younger"])
def test_very_many_routes_of_a_namespace_cost_other_namespaces_little(day: int) -> None:
    site = Site()
    site.put(open_gateway(), service(namespace="victim"), service(namespace="attacker"), shop("victim"))
    rivals = crowd(day, MOST_ROUTES + 100)
    site.put(*rivals)
    omitted = {warning.subject.name for warning in site.render().warnings if "older routes" in warning.message}
    assert len(omitted) == 100
    assert {warning.reason for warning in site.render().warnings} == {"FieldWithoutEffect"}

    changed = shop("victim")
    changed["spec"]["rules"][0] = conditional("gamma")
    site.put(changed)
    rendered = site.render()

    assert "h,x-version,gamma>gateway::victim_app_80" in list_in(rendered)
    # The route in three maps, and the one that has written the list.
    assert rendered.fragments_rendered <= 4

    # The next one takes the place of a deleted one; only routes of one block and two more are concerned.
    site.remove(next(one for one in rivals if one["metadata"]["name"] not in omitted and one is not rivals[0]))
    rendered = site.render()
    assert len({one.subject.name for one in rendered.warnings if "older routes" in one.message}) == 99
    assert rendered.fragments_rendered < 60


def test_routes_without_hosts_of_other_gateways_are_no_rivals() -> None:
    site = Site()
    site.put(open_gateway(), gateway("other", {"name": "http", "port": 81, "protocol": "HTTP"}))
    site.put(
        *(route(f"r{number}", rule("/"), parents=[{"name": "other"}]) for number in range(40)), route("own", rule("/"))
    )
    site.render()

    site.put(route("own", rule("/"), parents=[{"name": "gw"}, {"name": "gone"}]))

    assert site.render().fragments_rendered == 3


def list_in(rendered: Rendered) -> list[str]:
    """Return the candidates of the host and path that all routes share."""
    lines = rendered.texts["maps/gateway-prefix.map"].text.splitlines()
    (value,) = [line.partition(" ")[2] for line in lines if line.startswith(f"web/gw/http|{HOST}|/cart/ ")]
    return value.removeprefix("?").split(";")


def test_a_change_beside_a_list_that_is_too_long_costs_what_it_changes() -> None:
    site = Site()
    site.put(open_gateway(), service(namespace="victim"), service(namespace="attacker"), shop("victim"), *crowd(28))
    site.render()

    site.put(route("new", rule("/"), hostnames=["new.test"]))

    assert site.render().fragments_rendered == 3
