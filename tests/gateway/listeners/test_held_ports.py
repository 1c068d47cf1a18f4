"""The Gateway with the oldest claim of a port holds it, at a cost that is linear in the number of Gateways."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haptic_trio.gateway.answers import Answers
from haptic_trio.gateway.listeners.held_ports import HeldPorts, unavailable_ports
from haptic_trio.gateway.listeners.listener_limits import listeners_beyond
from haptic_trio.gateway.listeners.listeners import all_listeners, our_gateways
from haptic_trio.gateway.listeners.port_rules import BEYOND, HELD, PortRules
from haptic_trio.gateway.listeners.ports import served_ports
from haptic_trio.gateway.objects import age_of
from haptic_trio.gateway.routes.attachment import listeners_for
from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.store import Stores
from haptic_trio.status.gateway import ListenerSetStatus
from tests.gateway.objects import CONTROLLER, gateway, gateway_class, made, route, rule, stores_of
from tests.gateway.serving import Authority, secret
from tests.libraries.gateway.test_gateway import Site
from tests.support.work import Work

RULES = PortRules(listeners=2)
SIZE = 8
LISTENERS = 4


def expected(stores: Stores, one: Mapping[str, Any]) -> set[int]:
    """Return the ports of *one* on which another Gateway has an older claim, by going over all of them."""
    everything = {
        name_in_full(other): claims_of(other, stores)
        for other in our_gateways(stores, CONTROLLER)
        if not other["spec"].get("infrastructure")
    }
    own = everything.pop(name_in_full(one), {})
    return {port for port, age in own.items() if any(claims.get(port, age) < age for claims in everything.values())}


def name_in_full(one: Mapping[str, Any]) -> tuple[str, str]:
    return one["metadata"]["namespace"], one["metadata"]["name"]


def claims_of(one: Mapping[str, Any], stores: Stores) -> dict[int, tuple[Any, ...]]:
    """Return the oldest claim of each port of *one*: its listener can be served, and both owners of it exist."""
    claims: dict[int, tuple[Any, ...]] = {}
    beyond = listeners_beyond(one, stores, RULES)
    for listener in all_listeners(one, stores):
        needs_certificate = listener.protocol == "HTTPS" and not listener.source.get("tls")
        can_be_served = listener.is_accepted and listener.kinds and listener.hostname != "in valid"
        # Nothing listens on port 0, which stands for what is no port.
        if can_be_served and not needs_certificate and listener.key not in beyond and listener.port:
            (owner,) = [
                owner
                for owner in stores["gateways" if listener.kind == "Gateway" else "listenerSets"].list()
                if name_in_full(owner) == (listener.namespace, listener.owner)
            ]
            age = max((*age_of(one), "Gateway"), (*age_of(owner), listener.kind))
            claims[listener.port] = min(age, claims.get(listener.port, age))
    return claims


SPACES = ("web", "other")
# Most objects have no fault, so that many are served.
FAULTS: list[dict[str, Any]] = [
    *[{}] * 12, {"port": 81.0}, {"port": True}, {"port": "80"}, {"protocol": "UDP"}, {"protocol": "HTTPS"},
    {"hostname": "in valid"}, {"allowedRoutes": {"kinds": [{"kind": "UDPRoute"}]}},
    {"protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "pair"}]}},
]  # fmt: skip
ALLOWED: list[dict[str, Any]] = [
    {}, {"from": "None"}, {"from": "Same"}, *[{"from": "All"}] * 4,
    {"from": "Selector", "selector": {"matchLabels": {"in": "yes"}}}, {"from": "Selector", "selector": {}},
    {"from": "Selector"},
]  # fmt: skip


def owner(random: Random, kind: str) -> Resource:
    """Return some Gateway or ListenerSet."""
    spec: dict[str, Any] = {"listeners": []}
    for number in range(random.choice([0, 1, 1, 2] if kind == "Gateway" else [1, 2, 3])):
        found: dict[str, Any] = {"name": f"l{number}", "port": random.choice([80, 81]), "protocol": "HTTP"}
        hostname = random.choice([{}, {"hostname": "a.test"}, {"hostname": "b.test"}])
        spec["listeners"].append({**found, **hostname, **random.choice(FAULTS)})
    if kind == "Gateway":
        spec["gatewayClassName"] = random.choice(["haptic"] * 5 + ["else"])
        spec["allowedListeners"] = {"namespaces": random.choice(ALLOWED)}
        if not random.randrange(6):
            spec["infrastructure"] = {"parametersRef": {"name": "a"}}
    else:
        extra = random.choice([*[{}] * 4, *[{"namespace": "web"}] * 2, {"kind": "Other"}, {"group": "x"}])
        spec["parentRef"] = {"name": random.choice("abc"), **extra}
    one = made(
        kind, random.choice("abc" if kind == "Gateway" else "abcdefgh"), namespace=random.choice(SPACES), spec=spec
    )
    day = random.randrange(9)
    if day:
        one["metadata"]["creationTimestamp"] = f"2026-01-0{day}T00:00:00Z"
    return one


def namespace(random: Random) -> Resource:
    found = made("Namespace", random.choice(SPACES), namespace="", version="v1")
    found["metadata"]["labels"] = {"in": random.choice(["yes", "no"])}
    return found


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=True))
def test_the_gateway_with_the_oldest_claim_has_the_port(random: Random) -> None:
    gateways = [owner(random, "Gateway") for _ in range(random.randint(2, 5))]
    sets = [owner(random, "ListenerSet") for _ in range(random.randint(0, 8))]
    stores = stores_of(gateway_class(), *gateways, *sets, *(namespace(random) for _ in range(2)))
    held = HeldPorts(stores, CONTROLLER, RULES)
    makers = (partial(owner, kind="Gateway"), partial(owner, kind="ListenerSet"), namespace)
    changes = [random.choice(makers)(random) for _ in range(3)]
    for change in (None, *changes):
        if change is not None:
            kind = {"Gateway": "gateways", "ListenerSet": "listenerSets", "Namespace": "namespaces"}[change["kind"]]
            for name in stores:
                if name.startswith(kind):
                    stores[name].upsert(change)
        for one in our_gateways(stores, CONTROLLER):
            found = {port for port, why in unavailable_ports(one, stores, CONTROLLER, RULES).items() if why == HELD}
            assert found == expected(stores, one)
            assert held.unavailable(one, ()) == unavailable_ports(one, stores, CONTROLLER, RULES)


def listeners(first: int, count: int = LISTENERS) -> list[dict[str, Any]]:
    return [{"name": f"l{port}", "port": port, "protocol": "HTTP"} for port in range(first, first + count)]


def own_ports(size: int) -> Iterable[Resource]:
    """Gateways of which each has ports of its own."""
    yield from (gateway(f"g{number}", *listeners(10_000 + number * LISTENERS)) for number in range(size))


def same_ports(size: int) -> Iterable[Resource]:
    """Gateways that all ask for the same ports."""
    yield from (gateway(f"g{number}", *listeners(10_000)) for number in range(size))


def sets_of(size: int, allowed: dict[str, Any]) -> Iterable[Resource]:
    """Gateways, each with a ListenerSet: all these ask for the same ports."""
    for number in range(size):
        namespaces = {"namespaces": allowed}
        yield gateway(f"g{number}", *listeners(20_000 + number, 1), allowedListeners=namespaces)
        yield made("ListenerSet", f"s{number}", spec={
            "parentRef": {"name": f"g{number}"}, "listeners": listeners(10_000)
        })  # fmt: skip


SHAPES: dict[str, Callable[[int], Iterable[Resource]]] = {
    "own ports": own_ports,
    "same ports": same_ports,
    "sets": lambda size: sets_of(size, {"from": "All"}),
    "sets by selector": lambda size: sets_of(size, {"from": "Selector", "selector": {"matchLabels": {"a": "b"}}}),
}


def site_of(objects: Iterable[Resource]) -> Site:
    """Return a site with *objects* that has been rendered once without them."""
    site = Site()
    site.render()
    site.put(made("Namespace", "web", namespace="", version="v1"), *objects)
    return site


@pytest.mark.parametrize("shape", ["own ports", "sets by selector"])
def test_twice_as_many_gateways_cost_twice_as_much(shape: str) -> None:
    costs = []
    for size in (2, SIZE, 2 * SIZE):
        site = site_of(SHAPES[shape](size))
        with Work() as work:
            rendered = site.render()
        assert not rendered.rejections
        costs.append(work.calls)

    assert costs[2] <= 2.2 * costs[1], costs


@pytest.mark.parametrize("shape", SHAPES)
def test_the_status_of_twice_as_many_gateways_costs_twice_as_much(shape: str) -> None:
    costs = []
    for size in (2, 4 * SIZE, 8 * SIZE):
        stores = stores_of(gateway_class(), *SHAPES[shape](size))
        held = HeldPorts(stores, CONTROLLER, RULES)
        with Work() as work:
            for one in stores["gateways"].list():
                held.unavailable(one, ())
        costs.append(work.calls)

    assert costs[2] <= 2.5 * costs[1], costs


def test_a_changed_listener_costs_the_same_among_more_gateways() -> None:
    costs, fragments = [], []
    for size in (SIZE, 4 * SIZE):
        site = site_of(own_ports(size))
        site.render()
        site.put(gateway("g1", *listeners(10_000 + LISTENERS)[1:]))
        with Work() as work:
            fragments.append(site.render().fragments_rendered)
        costs.append(work.calls)

    assert fragments[0] == fragments[1], fragments
    assert costs[1] <= 1.5 * costs[0], costs


def test_only_those_with_the_port_are_rendered_again_for_another_holder() -> None:
    site = site_of(own_ports(SIZE))
    young = gateway("young", *listeners(10_000, 1))
    young["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    site.put(young)
    assert "frontend gateway-port::web_young_10000" not in site.render().text

    site.put(gateway("g0", *listeners(10_001, 1)))
    rendered = site.render()

    assert "frontend gateway-port::web_young_10000" in rendered.text
    assert rendered.fragments_rendered <= 12


def strangers(size: int, parent: str) -> Iterable[Resource]:
    """ListenerSets of another tenant, half of them for *parent* in the namespace web, half for one in their own."""
    for number in range(size):
        reference = {"name": parent, **({"namespace": "web"} if number % 2 else {})}
        yield made("ListenerSet", f"s{number}", namespace="other", spec={
            "parentRef": reference, "listeners": listeners(20_000 + number, 1)
        })  # fmt: skip


@pytest.mark.parametrize("allowed", ["None", "Same"])
def test_listener_sets_of_strangers_cost_a_gateway_nothing(allowed: str) -> None:
    costs = []
    for size in (1, 8 * SIZE):
        one = gateway("gw", *listeners(10_000, 1), allowedListeners={"namespaces": {"from": allowed}})
        stores = stores_of(gateway_class(), one, *strangers(size, "gw"))
        with Work() as work:
            all_listeners(one, stores)
        costs.append(work.calls)

    assert costs[0] == costs[1], costs


def test_a_namespace_beyond_the_limit_costs_twice_as_much_for_twice_as_many_gateways() -> None:
    costs = []
    for size in (2, 4 * SIZE, 8 * SIZE):
        stores = stores_of(gateway_class(), *own_ports(size), *sets_of(size, {"from": "Same"}))
        held = HeldPorts(stores, CONTROLLER, PortRules(most=SIZE))
        with Work() as work:
            rejected = sum(BEYOND in held.unavailable(one, ()).values() for one in stores["gateways"].list())
        assert size == 2 or rejected > size / 2
        costs.append(work.calls)

    assert costs[2] <= 2.5 * costs[1], costs


def test_a_change_beyond_the_limit_has_other_gateways_of_the_namespace_left_alone() -> None:
    wide = PortRules().most // 4
    site = site_of(gateway(f"g{number}", *listeners(10_000 + number * wide, wide)) for number in range(6))
    assert site.render().text.count("\nfrontend gateway-port::web_g") == 4 * wide

    site.put(gateway("g5", *listeners(10_000 + 6 * wide, wide)))

    assert site.render().fragments_rendered <= 4


@pytest.mark.parametrize("host", ["h{}.test", "*.h{}.test"])
def test_twice_as_many_listeners_of_a_port_cost_twice_as_much(host: str) -> None:
    pair = secret("pair", Authority().issue("h0.test"))
    costs = []
    for size in (2, 80, 160):
        everyone = [
            {"name": f"l{number}", "port": 9443, "protocol": "HTTPS", "hostname": host.format(number),
             "tls": {"certificateRefs": [{"name": "pair"}]}}
            for number in range(size)
        ]  # fmt: skip
        one = gateway("wide", *everyone)
        stores = stores_of(gateway_class(), one, pair)
        with Work() as work:
            (port,) = served_ports(one, stores, CONTROLLER, RULES)
        assert len(port.listeners) == size
        costs.append(work.calls)

    assert costs[2] <= 2.2 * costs[1], costs


def test_the_status_of_twice_as_many_listener_sets_of_a_gateway_costs_twice_as_much() -> None:
    costs = []
    for size in (2, 40, 80):
        one = gateway("wide", *listeners(9_000, 1), allowedListeners={"namespaces": {"from": "Same"}})
        sets = [
            made("ListenerSet", f"s{number}", spec={
                "parentRef": {"name": "wide"}, "listeners": [{**listeners(9_000, 1)[0], "hostname": f"h{number}.test"}]
            })
            for number in range(size)
        ]  # fmt: skip
        source = ListenerSetStatus(stores_of(gateway_class(), one, *sets), CONTROLLER, RULES)
        with Work() as work:
            found = [source.wanted(one) for one in sets]
        assert all(status and status["conditions"][0]["status"] == "True" for status in found)
        costs.append(work.calls)

    assert costs[2] <= 2.2 * costs[1], costs


def test_routes_of_twice_as_many_listener_sets_of_a_gateway_cost_twice_as_much() -> None:
    costs = []
    for size in (2, 40, 80):
        one = gateway("wide", *listeners(9_000, 1), allowedListeners={"namespaces": {"from": "All"}})
        sets, routes = [], []
        for number in range(size):
            own = {**listeners(9_000, 1)[0], "hostname": f"h{number}.test"}
            sets.append(made("ListenerSet", f"s{number}", spec={"parentRef": {"name": "wide"}, "listeners": [own]}))
            routes.append(route(f"r{number}", rule("/"), parents=[{"kind": "ListenerSet", "name": f"s{number}"}]))
        stores = stores_of(gateway_class(), one, *sets, *routes)
        answers = Answers(stores)
        with Work() as work:
            # The records keep the answers.
            found = [
                answers.record(partial(listeners_for, each, "HTTPRoute", answers.lookups, CONTROLLER))
                for each in routes
            ]
        assert all(len(served) == 1 for served, _ in found)
        costs.append(work.calls)

    assert costs[2] <= 2.2 * costs[1], costs
