"""HTTPRoutes and GRPCRoutes are displaced by older ones of the other kind, at a linear cost."""

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haptic_trio.gateway.answers import Answers
from haptic_trio.gateway.hostnames import intersection
from haptic_trio.gateway.routes.attachment import attach, listeners_for
from haptic_trio.gateway.routes.precedence import contenders
from haptic_trio.k8s.resource import Resource
from tests.gateway.objects import CONTROLLER, gateway, gateway_class, route, rule, stores_of

HTTP = {"name": "http", "port": 80, "protocol": "HTTP"}


def aged(name: str, age: int, *hostnames: str, kind: str = "HTTPRoute", **fields: Any) -> Resource:
    """Return a route of *kind*; the greater *age* the younger."""
    created = f"2026-01-01T{age // 3600:02d}:{age // 60 % 60:02d}:{age % 60:02d}Z"
    return route(name, rule(), kind=kind, hostnames=hostnames, created=created, **fields)


def displaced(routes: Sequence[Resource], shared: Any) -> set[str]:
    """Return the names of the displaced ones of *routes*, which begin with the oldest, as the Gateway API has it."""
    accepted: list[Resource] = []
    found: set[str] = set()
    for one in routes:
        own = shared(one)
        rivals = (other for other in accepted if other["kind"] != one["kind"])
        pairs = (pair for other in rivals for pair in itertools.product(own, shared(other)))
        if any(intersection(here, there) is not None for here, there in pairs):
            found.add(one["metadata"]["name"])
        else:
            accepted.append(one)
    return found


HOSTS = ["a.test", "b.test", "x.a.test", "y.x.a.test", "*.test", "*.a.test", "*.x.a.test", "a.example", "*.example"]


@pytest.mark.slow
@given(
    st.sampled_from(["", "*.test", "*.a.test", "a.test"]),
    st.lists(
        st.tuples(
            st.sampled_from(["HTTPRoute", "GRPCRoute"]),
            st.lists(st.sampled_from(HOSTS), max_size=3, unique=True),
            st.sampled_from(["web", "far"]),
            st.sampled_from(["", "", "http", "other"]),
        ),
        max_size=45,
    ),
    st.sampled_from(["All", "Same"]),
)
@settings(max_examples=150, deadline=None)
def test_the_decision_is_that_of_the_gateway_api(
    hostname: str, found: list[tuple[str, list[str], str, str]], allowed: str
) -> None:
    routes = [
        aged(
            f"r{age}",
            age,
            *hosts,
            kind=kind,
            namespace=namespace,
            parents=[{"name": "gw", "namespace": "web", **({"sectionName": section} if section else {})}],
        )
        for age, (kind, hosts, namespace, section) in enumerate(found)
    ]
    listener = {
        **HTTP,
        "allowedRoutes": {"namespaces": {"from": allowed}},
        **({"hostname": hostname} if hostname else {}),
    }
    stores = stores_of(gateway_class(), gateway("gw", listener), *routes)

    def shared(one: Resource) -> list[str]:
        names = one["spec"].get("hostnames", [""])
        return [both for name in names if (both := intersection(name, hostname)) is not None]

    attached = {one["metadata"]["name"] for one in routes if listeners_for(one, one["kind"], stores, CONTROLLER)}

    eligible = [
        one
        for one, (_kind, _hosts, namespace, section) in zip(routes, found, strict=True)
        if shared(one) and section != "other" and (allowed == "All" or namespace == "web")
    ]
    assert attached == {one["metadata"]["name"] for one in eligible} - displaced(eligible, shared)


@pytest.mark.parametrize(
    ("own", "theirs"),
    [("v{i}.example", ""), ("*.v{i}.example", ""), ("*.v{i}.example", "*.g{i}.example"), ("v{i}.example", "*.example")],
)
def test_twice_as_many_rivals_cost_twice_as_much(own: str, theirs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = 0
    original = contenders.contender_of

    def counting(one: Resource, kind: str, owner: contenders.Owner) -> contenders.Contender:
        nonlocal counted
        counted += 1
        return original(one, kind, owner)

    monkeypatch.setattr(contenders, "contender_of", counting)

    def cost(size: int) -> int:
        nonlocal counted
        counted = 0
        routes = [
            aged("first", 0, "first.example"),
            *(aged(f"g{i}", 1 + i, *theirs.format(i=i).split(), kind="GRPCRoute") for i in range(size)),
            *(aged(f"v{i}", 2000 + i, own.format(i=i)) for i in range(size)),
        ]
        answers = Answers(stores_of(gateway_class(), gateway("gw", HTTP), *routes))
        for one in routes:
            answers.record(lambda one=one: listeners_for(one, one["kind"], answers.lookups, CONTROLLER))  # type: ignore[misc]
        return counted

    assert 0 < cost(400) <= 2.2 * cost(200)


@pytest.mark.parametrize("stranger", [{"namespace": "far"}, {"parents": [{"name": "gw", "sectionName": "other"}]}])
def test_rivals_that_the_listener_does_not_have_cost_nothing(
    stranger: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    returned = 0
    original = contenders.Oldest.__call__

    def counting(question: contenders.Oldest, found: Sequence[Resource]) -> tuple[contenders.Contender, ...]:
        nonlocal returned
        answer = original(question, found)
        returned += len(answer)
        return answer

    monkeypatch.setattr(contenders.Oldest, "__call__", counting)
    fields = {"parents": [{"name": "gw", "namespace": "web"}], **stranger}
    rivals = [aged(f"g{i}", i, "*.example", f"g{i}.example", kind="GRPCRoute", **fields) for i in range(100)]
    victims = [aged(f"v{i}", 2000 + i, f"v{i}.example") for i in range(20)]
    answers = Answers(stores_of(gateway_class(), gateway("gw", HTTP), *rivals, *victims))
    for victim in victims:
        question = partial(listeners_for, victim, "HTTPRoute", answers.lookups, CONTROLLER)
        attached, _ = answers.record(question)
        assert attached

    assert 0 < returned <= 20 * 10


@pytest.mark.parametrize("victim", ["shop.example", "*.shop.example"])
@pytest.mark.parametrize("hosts", [[], ["*.example"]])
@pytest.mark.parametrize("kind", ["HTTPRoute", "GRPCRoute"])
def test_a_younger_route_changes_nothing_for_older_ones(victim: str, hosts: list[str], kind: str) -> None:
    # Displaced by the oldest route, it displaces none, but is asked for by all that are younger.
    displaced_one = aged("displaced", 1, kind="GRPCRoute")
    own = aged("own", 10, victim)
    stores = stores_of(gateway_class(), gateway(), aged("oldest", 0, "first.example"), displaced_one, own)
    answers = Answers(stores)
    found, record = answers.record(lambda: list(attach(own, "HTTPRoute", answers.lookups, CONTROLLER)))
    assert [attachment.reason for attachment in found] == [""]

    stores["httpRoutesByGateway" if kind == "HTTPRoute" else "grpcRoutesByGateway"].upsert(
        younger := aged("younger", 20, *hosts, kind=kind)
    )
    for index in ("ByHost", "WithoutHost"):
        stores[("httpRoutes" if kind == "HTTPRoute" else "grpcRoutes") + index].upsert(younger)

    assert answers.holds(record)


def test_a_rule_of_a_rival_is_not_part_of_the_decision() -> None:
    own = aged("own", 10, "a.test")
    stores = stores_of(gateway_class(), gateway(), aged("older", 0, "a.test", kind="GRPCRoute"), own)
    answers = Answers(stores)
    found, record = answers.record(lambda: list(attach(own, "HTTPRoute", answers.lookups, CONTROLLER)))
    assert [attachment.reason for attachment in found] == ["HostnameConflict"]

    changed = aged("older", 0, "a.test", kind="GRPCRoute")
    changed["spec"]["rules"] = [rule("/other")]
    stores["grpcRoutesByHost"].upsert(changed)

    assert answers.holds(record)
