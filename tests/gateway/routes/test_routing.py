"""The entries that routes contribute to the maps."""

import re
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haptic_trio.gateway.objects import GatewayObjectError
from haptic_trio.gateway.routes.kinds import HTTP_ROUTE, ROUTE_KINDS
from haptic_trio.gateway.routes.matches import EXACT, PREFIX
from haptic_trio.gateway.routes.routing import entries, rule_entries
from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.store import Stores
from tests.gateway.objects import CONTROLLER, gateway, gateway_class, grant, made, route, rule, service, stores_of


def table(stores: Stores, path_kind: str = PREFIX) -> dict[str, str]:
    """Return all entries; no key may be there twice."""
    found: dict[str, str] = {}
    for kind in ROUTE_KINDS.values():
        for one in stores[kind.store].list():
            for entry in entries(one, kind, path_kind, stores, CONTROLLER):
                assert entry.key not in found
                found[entry.key] = entry.value
    return found


def rules(stores: Stores) -> dict[str, str]:
    """Return what all rules do; no key may be there twice."""
    found = [
        entry for one in stores["httpRoutes"].list() for entry in rule_entries(one, HTTP_ROUTE, stores, CONTROLLER)
    ]
    known = {entry.key: entry.value for entry in found}
    assert len(known) == len(found)
    return known


def stage(*objects: Resource) -> Stores:
    """Return stores with a Gateway `gw`, a Service `app`, and *objects*."""
    present = {one["kind"] for one in objects}
    return stores_of(gateway_class(), service(), *([] if "Gateway" in present else [gateway()]), *objects)


def is_rejected(one: Resource, stores: Stores) -> bool:
    """Whether a part of what *one* contributes cannot be expressed."""
    try:
        list(entries(one, HTTP_ROUTE, PREFIX, stores, CONTROLLER))
        list(entries(one, HTTP_ROUTE, EXACT, stores, CONTROLLER))
        list(rule_entries(one, HTTP_ROUTE, stores, CONTROLLER))
    except GatewayObjectError:
        return True
    return False


def headers(*names: str) -> list[dict[str, Any]]:
    """Return a match for each of *names*, a header that must be `x`."""
    return [{"headers": [{"name": name, "value": "x"}]} for name in names]


def test_a_rule_that_only_chooses_a_backend_is_one_entry() -> None:
    stores = stage(route("r", rule("/a/"), hostnames=["A.example.com"]))

    assert table(stores) == {"web/gw/http|a.example.com|/a/": "gateway::web_app_80"}
    assert rules(stores) == {}


def test_an_exact_path_has_a_map_of_its_own() -> None:
    exact = {"matches": [{"path": {"type": "Exact", "value": "/a/"}}], "backendRefs": [{"name": "app", "port": 80}]}

    stores = stage(route("r", exact))

    assert table(stores, EXACT) == {"web/gw/http|*|/a/": "gateway::web_app_80"}
    assert table(stores) == {}


def test_a_rule_without_matches_takes_every_path() -> None:
    assert table(stage(route("r", rule()))) == {"web/gw/http|*|/": "gateway::web_app_80"}


def test_a_host_name_is_what_route_and_listener_have_in_common() -> None:
    listener = {"name": "l", "port": 80, "protocol": "HTTP", "hostname": "*.example.com"}
    hostnames = ["*.a.example.com", "b.example.com", "example.com", "c.example.org"]

    found = table(stage(gateway("gw", listener), route("r", rule(), hostnames=hostnames)))

    assert set(found) == {"web/gw/l|*.a.example.com|/", "web/gw/l|b.example.com|/"}


def test_of_two_routes_for_one_path_the_older_one_wins_and_alone_has_the_entry() -> None:
    young = route("a", rule("/x", to="app"), created="2026-01-02T00:00:00Z")
    old = route("b", rule("/x", to="old"), created="2026-01-01T00:00:00Z")

    assert table(stage(young, old, service("old"))) == {"web/gw/http|*|/x/": "gateway::web_old_80"}


def test_a_match_with_conditions_takes_precedence_over_an_older_one_without() -> None:
    old = route("a", rule("/x"), created="2026-01-01T00:00:00Z")
    conditional = rule(matches=[{"path": {"type": "PathPrefix", "value": "/x"}, **headers("v")[0]}], to="new")
    young = route("b", conditional, created="2026-01-02T00:00:00Z")

    found = table(stage(old, young, service("new")))

    assert found == {"web/gw/http|*|/x/": "?h,v,x>gateway::web_new_80;>gateway::web_app_80"}


def test_methods_go_before_headers_and_these_before_parameters() -> None:
    matches = [
        {"queryParams": [{"name": "q", "value": "1"}]},
        *headers("h"),
        {"method": "GET"},
        {"headers": [{"name": "h", "value": "1"}, {"name": "i", "value": "2", "type": "RegularExpression"}]},
    ]

    (value,) = table(stage(route("r", rule(matches=matches)))).values()

    targets = value.removeprefix("?").split(";")
    assert [target.partition(">")[0] for target in targets] == ["m,GET", "h,h,1&hr,i,2,8192,3", "h,h,x", "q,q,1"]


def test_grpc_expressions_are_those_of_service_and_method() -> None:
    match = {"method": {"type": "RegularExpression", "service": "a|b", "method": "Get[A-Z]"}}

    found = table(stage(route("r", rule(matches=[match]), kind="GRPCRoute")))

    (value,) = found.values()
    pattern = unquote(value.removeprefix("?p,").partition(",")[0])
    assert re.fullmatch(pattern, "/a/GetX")
    assert not re.fullmatch(pattern, "/a")


@pytest.mark.parametrize(("kind", "day"), [("HTTPRoute", 1), ("HTTPRoute", 9), ("GRPCRoute", 1), ("GRPCRoute", 9)])
def test_expressions_of_several_routes_are_candidates_of_one_entry(kind: str, day: int) -> None:
    def one(name: str, day: int, text: str) -> Resource:
        regex = {"type": "RegularExpression"}
        http, grpc = {"path": {**regex, "value": f"/{text}"}}, {"method": {**regex, "service": text}}
        matches = [http if kind == "HTTPRoute" else grpc]
        created = f"2026-01-{day:02}T00:00:00Z"
        return route(name, rule(matches=matches, to=name), kind=kind, created=created, hostnames=["a.test"])

    everything = route("all", rule(to="all"), kind=kind, created=f"2026-01-{day:02}T00:00:00Z", hostnames=["a.test"])
    stores = stage(one("x", 2, "x+"), one("y", 3, "y+"), everything, *map(service, ("x", "y", "all")))

    ((key, value),) = table(stores).items()

    assert key == "web/gw/http|a.test|/"
    assert re.findall(r">gateway::web_(\w+?)_80", value) == ["x", "y", "all"]


def test_a_request_that_meets_no_condition_falls_back_to_shorter_prefixes() -> None:
    conditional = rule(matches=[{"path": {"type": "PathPrefix", "value": "/a/b"}, "method": "GET"}], to="new")
    stores = stage(route("r", rule("/a", to="app"), conditional), route("s", rule("/")), service("new"))

    assert table(stores)["web/gw/http|*|/a/b/"] == "?m,GET>gateway::web_new_80;>gateway::web_app_80"


def test_a_path_of_files_without_defaults_competes_like_any_other() -> None:
    silent = rule(matches=headers("v"), to="new")

    found = table(stage(route("a", silent), route("b", rule("/")), service("new")))

    assert found == {"web/gw/http|*|/": "?h,v,x>gateway::web_new_80;>gateway::web_app_80"}


def test_weights_and_unresolved_backends_become_a_rule() -> None:
    backends = [{"name": "app", "port": 80, "weight": 3}, {"name": "gone", "port": 80}]

    stores = stage(route("r", rule("/", backendRefs=backends)))

    ((key, text),) = rules(stores).items()
    assert key.startswith("HTTPRoute/web/r/")
    assert key.endswith(".0")
    assert table(stores) == {"web/gw/http|*|/": f"={key}"}
    assert text == "b,3,gateway%3A%3Aweb_app_80,;b,1,%21,"


def test_the_key_of_a_rule_is_that_of_its_content_whatever_its_place() -> None:
    # With the number for a key, entries would lead to another rule while they change one after the other.
    first, second, changed = (
        rule(path, filters=[{"type": "RequestHeaderModifier", "requestHeaderModifier": {"remove": [name]}}])
        for path, name in (("/a", "x-one"), ("/b", "x-two"), ("/a", "x-two"))
    )
    before, moved = stage(route("r", first, second)), stage(route("r", second, first))
    after = stage(route("r", changed, second))

    assert table(moved) == table(before)
    assert rules(moved) == rules(before)
    kept = rules(before).items() & rules(after).items()
    assert [key for key, _ in kept] == [table(before)["web/gw/http|*|/b/"].removeprefix("=")]
    assert rules(before).keys() & rules(after).keys() == {key for key, _ in kept}


def test_rules_with_the_same_content_share_an_entry() -> None:
    one = rule("/a", filters=[{"type": "RequestHeaderModifier", "requestHeaderModifier": {"remove": ["x-one"]}}])
    stores = stage(route("r", one, one))

    assert [f"={key}" for key in rules(stores)] == [table(stores)["web/gw/http|*|/a/"]]


def test_another_namespace_needs_a_grant_in_the_right_direction() -> None:
    far = rule("/", backendRefs=[{"name": "app", "namespace": "far", "port": 80}])
    objects = (route("r", far), service("app", "far"))

    assert "%21" in rules(stage(*objects)).popitem()[1]
    assert "%21" in rules(stage(*objects, grant("web", origin="far"))).popitem()[1]
    assert "%21" in rules(stage(*objects, grant("far", name="other"))).popitem()[1]
    assert rules(stage(*objects, grant("far", name="app"))) == {}


def test_a_route_of_another_controller_has_no_entries() -> None:
    stores = stores_of(gateway_class("example.com/other"), gateway(), service(), route("r", rule("/")))

    assert table(stores) == {}


def test_grpc_methods_are_paths() -> None:
    matches = [
        {"method": {"service": "a.B", "method": "C"}},
        {"method": {"service": "a.B"}},
        {"method": {"method": "D"}},
    ]
    stores = stage(route("r", rule(matches=matches), kind="GRPCRoute"))

    assert table(stores, EXACT) == {"web/gw/http|*|/a.B/C": "gateway::web_app_80_h2"}
    assert table(stores) == {
        "web/gw/http|*|/a.B/": "gateway::web_app_80_h2",
        "web/gw/http|*|/": "?p,%2F%5B%5E%2F%5D%2B%2FD,8192,10,3>gateway::web_app_80_h2",
    }


def test_connections_are_routed_by_host_alone() -> None:
    listener = {"name": "tls", "port": 443, "protocol": "TLS", "tls": {"mode": "Passthrough"}}
    stores = stage(gateway("gw", listener), route("r", rule(), kind="TLSRoute", hostnames=["a.example.com"]))

    assert table(stores) == {"web/gw/tls|a.example.com|/": "gateway::web_app_80_tcp"}


@pytest.mark.parametrize(
    "bad",
    [
        {"matches": [{"path": {"type": "PathPrefix", "value": "/a b"}}]},
        {"matches": [{"path": {"type": "Exact", "value": "/a/../b"}}]},
        {"matches": [{"headers": [{"name": "a b", "value": "x"}]}]},
        {"matches": [{"headers": [{"name": "a", "value": "x\ny"}]}]},
        {
            "filters": [
                {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "a", "value": "\r"}]}}
            ]
        },
        {"filters": [{"type": "RequestRedirect", "requestRedirect": {"hostname": "a/b"}}]},
        {"filters": [{"type": "RequestRedirect", "requestRedirect": {"port": "80\r\nX-Injected: a"}}]},
        {"filters": [{"type": "RequestRedirect", "requestRedirect": {"port": 65_536}}]},
        {
            "filters": [
                {"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplaceFullPath", "replaceFullPath": "x"}}}
            ]
        },
        {"matches": [{"path": {"type": "RegularExpression", "value": "("}}]},
        {"matches": [{"headers": [{"name": "h", "type": "RegularExpression", "value": "(a+)+"}]}]},
        {"matches": [{"path": {"type": "RegularExpression", "value": f"/{number}"}} for number in range(129)]},
        {"filters": [{"type": "CORS", "cors": {"allowOrigins": ["https://*.a.*.test"]}}]},
        {"timeouts": {"request": "soon"}},
        {"retry": {"codes": [200]}},
    ],
)
def test_a_route_that_cannot_be_expressed_is_rejected_without_effect_on_others(bad: dict[str, Any]) -> None:
    wrong = route("bad", rule(**bad))
    stores = stage(wrong, route("good", rule("/good")))
    good = stores["httpRoutes"].get("web", "good")[0]

    assert is_rejected(wrong, stores)
    assert [entry.value for entry in entries(good, HTTP_ROUTE, PREFIX, stores, CONTROLLER)] == ["gateway::web_app_80"]


@pytest.mark.parametrize("kind", ["request", "response"])
@pytest.mark.parametrize("change", ["set", "add", "remove"])
@pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding", "Connection"])
@pytest.mark.parametrize("place", ["rule", "backend"])
def test_a_filter_cannot_change_where_a_message_ends(kind: str, change: str, name: str, place: str) -> None:
    # HAProxy 2.8 sends the header as it is and keeps the connection: an answer to another host would follow as a part.
    changes = {change: [name] if change == "remove" else [{"name": name, "value": "99999"}]}
    filters = [{"type": f"{kind.title()}HeaderModifier", f"{kind}HeaderModifier": changes}]
    bad = (
        rule(filters=filters)
        if place == "rule"
        else rule(backendRefs=[{"name": "app", "port": 80, "filters": filters}])
    )
    wrong = route("bad", bad)

    assert is_rejected(wrong, stage(wrong, route("good", rule("/good"))))


def changed(kind: str, change: str, name: str, value: str = "1") -> Resource:
    changes = {change: [name] if change == "remove" else [{"name": name, "value": value}]}
    return route("r", rule(filters=[{"type": f"{kind.title()}HeaderModifier", f"{kind}HeaderModifier": changes}]))


@pytest.mark.parametrize("kind", ["request", "response"])
@pytest.mark.parametrize("name", ["Upgrade", "TE", "trailer", "Keep-Alive", "Proxy-Connection", "HTTP2-Settings"])
def test_a_filter_can_remove_headers_of_the_connection_but_not_set_them(kind: str, name: str) -> None:
    found = {change: changed(kind, change, name) for change in ("set", "add", "remove")}

    assert [change for change, one in found.items() if is_rejected(one, stage(one))] == ["set", "add"]


@pytest.mark.parametrize("name", ["Content_Length", "content.length", "Transfer_Encoding"])
def test_a_filter_sets_no_name_that_applications_take_for_a_length(name: str) -> None:
    one = changed("request", "set", name)

    assert is_rejected(one, stage(one))


@pytest.mark.parametrize("name", ["Host", "hOST"])
def test_a_request_keeps_one_host(name: str) -> None:
    rejected = [changed("request", "add", name, "a.test"), changed("request", "remove", name)]
    rejected += [changed("request", "set", name, value) for value in ("", "a b", "a/b", "a.test, b.test", "a:b")]
    served = [changed("request", "set", name, value) for value in ("a.test", "A_b:8080", "[::1]:80")]
    served += [changed("response", change, name) for change in ("set", "add", "remove")]

    assert all(is_rejected(one, stage(one)) for one in rejected)
    assert not any(is_rejected(one, stage(one)) for one in served)


@settings(max_examples=50)
@given(st.text(max_size=40), st.text(max_size=40))
def test_no_value_can_end_a_field_of_a_program(name: str, value: str) -> None:
    match = {"queryParams": [{"name": name, "value": value}], "headers": [{"name": "h", "value": value}]}
    stores = stage(made("HTTPRoute", "r", spec={"parentRefs": [{"name": "gw"}], "rules": [rule(matches=[match])]}))
    try:
        found = table(stores)
    except GatewayObjectError:
        return
    (entry,) = found.values()

    assert re.fullmatch(r"\?h,h,[A-Za-z0-9%_.~-]*(&q,[A-Za-z0-9%_.~-]*,[A-Za-z0-9%_.~-]*)?>gateway::web_app_80", entry)


BAD_RULES = [
    {"matches": [{"path": {"type": "PathPrefix", "value": "/a b"}}]},
    {"retry": {"codes": [999]}},
    {"retry": {"codes": [500, "x"]}},
    {"retry": {"attempts": "often"}},
    {"timeouts": {"request": "soon"}},
    {"filters": [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"remove": ["a b"]}}]},
    {"filters": [{"type": "RequestRedirect", "requestRedirect": {}}, {"type": "URLRewrite", "urlRewrite": {}}]},
]


@pytest.mark.parametrize("bad", BAD_RULES)
def test_a_rule_that_cannot_be_expressed_is_dropped_and_the_others_are_served(bad: dict[str, Any]) -> None:
    stores = stage(route("r", rule("/good"), rule("/bad") | bad), route("s", rule("/other") | bad))

    (one, other) = stores["httpRoutes"].list()

    assert [entry.key for entry in entries(one, HTTP_ROUTE, PREFIX, stores, CONTROLLER)] == ["web/gw/http|*|/good/"]
    assert list(rule_entries(one, HTTP_ROUTE, stores, CONTROLLER)) == []
    assert is_rejected(other, stores)


@pytest.mark.parametrize("bad", BAD_RULES[1:])
def test_a_dropped_rule_is_nothing_to_routes_with_the_same_path(bad: dict[str, Any]) -> None:
    stores = stage(
        route("r", rule("/x"), created="2026-01-02T00:00:00Z"),
        route("t", rule("/x") | bad, rule("/y"), created="2026-01-01T00:00:00Z"),
    )

    (one, _) = stores["httpRoutes"].list()

    found = {entry.key: entry.value for entry in entries(one, HTTP_ROUTE, PREFIX, stores, CONTROLLER)}
    assert found == {"web/gw/http|*|/x/": "gateway::web_app_80"}


def test_rules_are_checked_once_for_all_paths_of_a_route() -> None:
    modifier = {"type": "RequestHeaderModifier", "requestHeaderModifier": {"remove": ["a"]}}

    def asked(number: int) -> int:
        stores = stage(route("r", *[rule(f"/{one}", filters=[modifier]) for one in range(number)]))
        services, calls = stores["services"], []

        class Counting:
            def get(self, *keys: str) -> Any:
                calls.append(keys)
                return services.get(*keys)

        (one,) = stores["httpRoutes"].list()
        assert len(list(entries(one, HTTP_ROUTE, PREFIX, {**stores, "services": Counting()}, CONTROLLER))) == number
        return len(calls)

    assert asked(32) < 3 * asked(16)
