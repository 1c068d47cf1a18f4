"""A route is attached to the listeners that accept it, and gets a reason from each of the others."""

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haptic_trio.gateway.hostnames import intersection
from haptic_trio.gateway.listeners.listeners import all_listeners, listeners_of
from haptic_trio.gateway.routes.attachment import attach, listeners_for
from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.store import Stores
from tests.gateway.objects import CONTROLLER, gateway, gateway_class, made, route, rule, stores_of

HTTP = {"name": "http", "port": 80, "protocol": "HTTP"}


def reasons(one: Resource, *objects: Resource) -> list[str]:
    """Return what became of each parent reference of *one*: the names of listeners, or a reason."""
    stores = stores_of(gateway_class(), one, *objects)
    return [
        ",".join(attached.listener.name for attached in attachment.attached) or attachment.reason
        for attachment in attach(one, one["kind"], stores, CONTROLLER)
    ]


def namespace(name: str, **labels: str) -> Resource:
    found = made("Namespace", name, namespace="", version="v1")
    found["metadata"]["labels"] = labels
    return found


def test_a_reference_may_name_a_listener_or_a_port() -> None:
    parents = [
        {"name": "gw"},
        {"name": "gw", "sectionName": "b"},
        {"name": "gw", "port": 81},
        {"name": "gw", "sectionName": "a", "port": 81},
        {"name": "other"},
        {"name": "gw", "kind": "Service", "group": ""},
    ]
    listeners = ({**HTTP, "name": "a"}, {**HTTP, "name": "b", "port": 81})

    found = reasons(route("r", rule(), parents=parents), gateway("gw", *listeners))

    assert found == ["a,b", "b", "b", "NoMatchingParent"]


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        ({}, "NotAllowedByListeners"),
        ({"namespaces": {"from": "All"}}, "http"),
        ({"namespaces": {"from": "Same"}}, "NotAllowedByListeners"),
        ({"namespaces": {"from": "Selector", "selector": {"matchLabels": {"team": "x"}}}}, "http"),
        ({"namespaces": {"from": "Selector", "selector": {"matchLabels": {"team": "y"}}}}, "NotAllowedByListeners"),
        ({"namespaces": {"from": "Selector"}}, "NotAllowedByListeners"),
        (
            {
                "namespaces": {
                    "from": "Selector",
                    "selector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["w", "x"]}]},
                }
            },
            "http",
        ),
        ({"namespaces": {"from": "All"}, "kinds": [{"kind": "GRPCRoute"}]}, "NotAllowedByListeners"),
    ],
)
def test_a_listener_chooses_namespaces_and_kinds(allowed: dict[str, object], expected: str) -> None:
    far = route("r", rule(), namespace="far", parents=[{"name": "gw", "namespace": "web"}])

    assert reasons(far, gateway("gw", {**HTTP, "allowedRoutes": allowed}), namespace("far", team="x")) == [expected]


def test_host_names_must_have_something_in_common() -> None:
    listener = {**HTTP, "hostname": "*.example.com"}

    assert reasons(route("r", rule(), hostnames=["a.example.org"]), gateway("gw", listener)) == [
        "NoMatchingListenerHostname"
    ]


def conflicts(stores: Stores) -> dict[str, str]:
    (found,) = stores["gateways"].list()
    return {listener.name: listener.conflict for listener in all_listeners(found, stores)}


def test_listeners_of_one_gateway_that_exclude_each_other_are_both_out() -> None:
    same = [{**HTTP, "name": "a"}, {**HTTP, "name": "b"}, {**HTTP, "name": "c", "hostname": "c.test"}]
    mixed = [{**HTTP, "name": "d", "port": 81}, {"name": "e", "port": 81, "protocol": "HTTPS"}]

    found = {listener.name: listener.conflict for listener in listeners_of(gateway("gw", *same, *mixed))}

    assert found == {
        **dict.fromkeys("ab", "HostnameConflict"),
        "c": "",
        **dict.fromkeys("de", "ProtocolConflict"),
    }


def test_listeners_of_a_listener_set_lose_conflicts_with_existing_ones() -> None:
    def listener_set(name: str, created: str, *listeners: dict[str, object]) -> Resource:
        found = made("ListenerSet", name, spec={"parentRef": {"name": "gw"}, "listeners": list(listeners)})
        found["metadata"]["creationTimestamp"] = created
        return found

    own = gateway("gw", {**HTTP, "hostname": "a.test"}, allowedListeners={"namespaces": {"from": "Same"}})
    old = listener_set("z", "2026-01-01T00:00:00Z", {**HTTP, "name": "z1", "hostname": "z.test"})
    young = listener_set(
        "y",
        "2026-01-02T00:00:00Z",
        {**HTTP, "name": "y1", "hostname": "a.test"},
        {**HTTP, "name": "y2", "hostname": "z.test"},
        {**HTTP, "name": "y3", "protocol": "TCP"},
        {**HTTP, "name": "y4", "hostname": "y.test"},
    )

    assert conflicts(stores_of(gateway_class(), own, old, young)) == {
        "http": "",
        "z1": "",
        "y1": "HostnameConflict",
        "y2": "HostnameConflict",
        "y3": "ProtocolConflict",
        "y4": "",
    }
    to_set = route("r", rule(), parents=[{"name": "z", "kind": "ListenerSet"}, {"name": "gw"}])
    assert reasons(to_set, own, old, young) == ["z1", "http"]


def test_a_gateway_allows_listener_sets_only_if_configured() -> None:
    listener_set = made("ListenerSet", "s", spec={"parentRef": {"name": "gw"}, "listeners": [{**HTTP, "name": "s1"}]})

    assert set(conflicts(stores_of(gateway_class(), gateway("gw"), listener_set))) == {"http"}


def grpc(name: str, created: str, *hostnames: str, **fields: Any) -> Resource:
    return route(name, rule(), kind="GRPCRoute", created=created, hostnames=hostnames, **fields)


@pytest.mark.parametrize(
    ("own", "other", "meet"),
    [
        (["a.test"], ["a.test"], True),
        (["a.test"], ["b.test"], False),
        (["a.test", "c.test"], ["b.test", "c.test"], True),
        (["a.test"], [], True),
        ([], ["a.test"], True),
        ([], [], True),
        (["a.b.test"], ["*.test"], True),
        (["*.test"], ["a.b.test"], True),
        (["*.a.test"], ["*.b.test"], False),
    ],
)
def test_of_two_kinds_for_one_host_the_older_route_is_attached(own: list[str], other: list[str], meet: bool) -> None:
    http, older, newer = route("r", rule(), hostnames=own, created="2"), grpc("g", "1", *other), grpc("g", "3", *other)

    assert reasons(http, gateway(), older) == ["HostnameConflict" if meet else "http"]
    assert reasons(older, gateway(), http) == ["http"]
    assert reasons(http, gateway(), newer) == ["http"]
    assert reasons(newer, gateway(), http) == ["HostnameConflict" if meet else "http"]


def test_routes_of_two_kinds_meet_on_a_listener_only() -> None:
    listeners = {**HTTP, "name": "a"}, {**HTTP, "name": "b", "port": 81}
    one = route("r", rule(), created="2")

    assert reasons(one, gateway("gw", *listeners), grpc("g", "1", parents=[{"name": "gw", "sectionName": "a"}])) == [
        "b"
    ]
    assert reasons(one, gateway(), grpc("g", "1", parents=[{"name": "other"}])) == ["http"]
    assert reasons(one, gateway(), grpc("g", "1", namespace="elsewhere")) == ["http"]


def test_a_route_that_is_displaced_displaces_none() -> None:
    oldest = route("oldest", rule(), hostnames=["*.test"], created="1")
    displaced = grpc("displaced", "2", "a.test", "a.example")
    newest = route("newest", rule(), hostnames=["a.example"], created="3")

    assert reasons(displaced, gateway(), oldest, newest) == ["HostnameConflict"]
    assert reasons(newest, gateway(), oldest, displaced) == ["http"]


def test_of_routes_of_one_age_and_name_one_is_attached() -> None:
    one, other = route("same", rule(), created="1"), grpc("same", "1")

    assert [reasons(one, gateway(), other), reasons(other, gateway(), one)] == [["http"], ["HostnameConflict"]]


HOSTS = st.lists(st.sampled_from(["a.test", "b.test", "*.test", "*.a.test", "x.a.test"]), max_size=2, unique=True)


@given(st.lists(st.tuples(st.booleans(), HOSTS), min_size=2, max_size=6))
@settings(max_examples=60, deadline=None)
def test_no_two_kinds_share_a_host_and_the_oldest_is_never_displaced(found: list[tuple[bool, list[str]]]) -> None:
    routes = [
        route(f"r{age}", rule(), kind="GRPCRoute" if is_grpc else "HTTPRoute", hostnames=hosts, created=str(age))
        for age, (is_grpc, hosts) in enumerate(found)
    ]
    stores = stores_of(gateway_class(), gateway(), *routes)
    attached = {
        one["metadata"]["name"]: listeners_for(one, one["kind"], stores, CONTROLLER).get("web/gw/http")
        for one in routes
    }

    assert attached["r0"] is not None
    for one, other in itertools.combinations(routes, 2):
        first, second = attached[one["metadata"]["name"]], attached[other["metadata"]["name"]]
        if one["kind"] != other["kind"] and first is not None and second is not None:
            pairs = itertools.product(first.hostnames, second.hostnames)
            assert all(intersection(here, there) is None for (here, _), (there, _) in pairs)
    # A match is dropped only in favour of an existing one.
    for one in routes:
        if attached[one["metadata"]["name"]] is None:
            assert any(
                other["kind"] != one["kind"] and attached[other["metadata"]["name"]] is not None for other in routes
            )


def alternating(count: int, host: str) -> list[Resource]:
    """Return HTTPRoutes and GRPCRoutes in turns, the oldest with the last name; *host* may contain `{i}` and `{j}`."""
    return [
        route(
            f"r{count - i:05d}",
            rule(),
            kind="HTTPRoute" if i % 2 == 0 else "GRPCRoute",
            hostnames=[name.format(i=i, j=i + 1) for name in host.split()],
            created=f"2026-01-01T{i // 3600:02d}:{i // 60 % 60:02d}:{i % 60:02d}Z",
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("host", ["a.example", "h{i}.example h{j}.example"])
def test_rivals_of_one_host_are_compared_once_each(host: str) -> None:
    routes = alternating(2_000, host)
    lookups = stores_of(gateway_class(), gateway("gw", HTTP), *routes)

    # Each comparison of a route with all that are older, and of these again, would never end; recursion overflows.
    found = {attachment.reason for attachment in attach(routes[-1], routes[-1]["kind"], lookups, CONTROLLER)}

    assert found == {"HostnameConflict"}
