"""The Gateway that holds a port, of several that claim it by listeners of their own or of ListenerSets."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haptic_trio.gateway.listeners.held_ports import HeldPorts, unavailable_ports
from haptic_trio.gateway.listeners.port_rules import BEYOND, HELD, PortRules
from haptic_trio.gateway.listeners.ports import served_ports
from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.store import Stores
from haptic_trio.status.gateway import ListenerSetStatus
from tests.gateway.objects import CONTROLLER, gateway, gateway_class, made, stores_of
from tests.libraries.gateway.test_gateway import Site
from tests.support.work import Work

RULES = PortRules()
EVERYBODY = {"namespaces": {"from": "All"}}
PORT = 7443


def http(port: int, **fields: Any) -> dict[str, Any]:
    return {"name": f"p{port}", "port": port, "protocol": "HTTP", **fields}


def aged(day: int, namespace: str, one: Resource) -> Resource:
    created = f"2026-01-{day:02}T00:00:00Z"
    return {**one, "metadata": {**one["metadata"], "namespace": namespace, "creationTimestamp": created}}


def owned(day: int, namespace: str, *listeners: dict[str, Any], **fields: Any) -> Resource:
    """Return the Gateway `gw` of *namespace*, created on *day*."""
    return aged(day, namespace, gateway("gw", *listeners, **fields))


def added(day: int, namespace: str, *listeners: dict[str, Any], name: str = "set", to: str = "shared") -> Resource:
    """Return a ListenerSet of *namespace* for the Gateway of the namespace *to*, created on *day*."""
    spec = {"parentRef": {"name": "gw", "namespace": to}, "listeners": list(listeners)}
    return aged(day, namespace, made("ListenerSet", name, spec=spec))


def unavailable(one: Resource, *others: Resource, rules: PortRules = RULES) -> dict[int, str]:
    return unavailable_ports(one, stores_of(gateway_class(), one, *others), CONTROLLER, rules)


SHARED = owned(1, "shared", http(80), allowedListeners=EVERYBODY)
VICTIM = owned(5, "victim", http(PORT))


def test_a_new_listener_set_of_an_old_gateway_takes_no_port_from_a_gateway_that_is_older_than_the_set() -> None:
    one = added(6, "attacker", http(PORT), http(9444))
    stores = stores_of(gateway_class(), SHARED, VICTIM, one)

    assert unavailable_ports(VICTIM, stores, CONTROLLER, RULES) == {}
    # Only the listener of the set is not served.
    assert unavailable_ports(SHARED, stores, CONTROLLER, RULES) == {PORT: HELD}
    assert [port.port for port in served_ports(SHARED, stores, CONTROLLER, RULES)] == [80, 9444]
    assert [port.port for port in served_ports(VICTIM, stores, CONTROLLER, RULES)] == [PORT]
    status = ListenerSetStatus(stores, CONTROLLER, RULES).wanted(one)
    assert status is not None
    assert [
        (condition["status"], condition["reason"])
        for entry in status["listeners"]
        for condition in entry["conditions"]
        if condition["type"] == "Accepted"
    ] == [("False", "PortUnavailable"), ("True", "Accepted")]


def test_a_listener_set_has_a_port_that_a_younger_gateway_asks_for() -> None:
    one = added(4, "tenant", http(PORT))

    assert unavailable(SHARED, VICTIM, one) == {}
    assert unavailable(VICTIM, SHARED, one) == {PORT: HELD}


def test_a_listener_set_that_waits_for_its_gateway_has_no_claim() -> None:
    early, late = added(1, "tenant", http(PORT), to="late"), owned(6, "late", http(80), allowedListeners=EVERYBODY)

    assert unavailable(VICTIM, early, late) == {}
    assert unavailable(late, early, VICTIM) == {PORT: HELD}


def test_a_port_that_a_gateway_has_by_itself_stays_its_own_with_new_listener_sets() -> None:
    own = owned(1, "shared", http(PORT), allowedListeners=EVERYBODY)
    one = added(6, "tenant", http(PORT, hostname="a.test"))

    assert unavailable(own, one, VICTIM) == {}
    assert unavailable(VICTIM, one, own) == {PORT: HELD}


def test_an_older_listener_set_keeps_a_port_for_younger_ones_of_the_gateway() -> None:
    old, young = added(4, "tenant", http(PORT)), added(6, "attacker", http(PORT, hostname="a.test"))

    assert unavailable(SHARED, VICTIM, old, young) == {}
    assert unavailable(SHARED, VICTIM, young) == {PORT: HELD}


def test_of_two_listener_sets_the_older_one_has_the_port_though_its_gateway_is_younger() -> None:
    young = owned(2, "young", http(81), allowedListeners=EVERYBODY)
    first, second = added(3, "tenant", http(PORT), to="young"), added(4, "other", http(PORT))

    assert unavailable(young, SHARED, first, second) == {}
    assert unavailable(SHARED, young, first, second) == {PORT: HELD}


def test_a_gateway_and_a_listener_set_of_one_name_and_age_have_different_claims() -> None:
    one, other = owned(5, "shared", http(80), allowedListeners=EVERYBODY), added(5, "victim", http(PORT), name="gw")

    assert unavailable(VICTIM, one, other) == {}
    assert unavailable(one, VICTIM, other) == {PORT: HELD}


SECURE = {"protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "absent"}]}}
UNSERVED: dict[str, dict[str, Any]] = {
    "an invalid host name": http(PORT, hostname="in valid"),
    "no supported kind of routes": http(PORT, allowedRoutes={"kinds": [{"kind": "UDPRoute"}]}),
    "no certificate": http(PORT, protocol="HTTPS"),
    "no supported protocol": http(PORT, protocol="UDP"),
}


@pytest.mark.parametrize("listener", UNSERVED.values(), ids=UNSERVED)
def test_a_listener_that_cannot_be_served_holds_no_port(listener: dict[str, Any]) -> None:
    assert unavailable(VICTIM, owned(1, "other", listener)) == {}
    assert unavailable(VICTIM, SHARED, added(2, "tenant", listener)) == {}
    assert unavailable(VICTIM, owned(1, "other", http(PORT))) == {PORT: HELD}


def test_a_listener_keeps_its_port_while_its_secret_is_absent() -> None:
    assert unavailable(VICTIM, owned(1, "other", http(PORT, **SECURE))) == {PORT: HELD}
    assert unavailable(VICTIM, SHARED, added(2, "tenant", http(PORT, **SECURE))) == {PORT: HELD}


def test_a_gateway_that_is_not_served_holds_no_port() -> None:
    invalid = {"infrastructure": {"parametersRef": {"group": "", "kind": "ConfigMap", "name": "a"}}}
    rejected = owned(1, "shared", http(PORT), allowedListeners=EVERYBODY, **invalid)
    foreign = owned(1, "other", http(PORT), gatewayClassName="else")

    assert unavailable(VICTIM, rejected, foreign, added(2, "tenant", http(PORT, hostname="a.test"))) == {}
    # Its own status says why it is not served.
    assert unavailable(rejected, VICTIM) == {}


def test_listeners_that_exclude_each_other_hold_no_port() -> None:
    assert unavailable(VICTIM, owned(1, "other", http(PORT), {**http(PORT), "name": "again"})) == {}


def test_a_gateway_beyond_the_limit_of_its_namespace_holds_no_port() -> None:
    first, beyond = owned(1, "other", http(81)), owned(2, "other", http(PORT))
    beyond["metadata"]["name"] = "beyond"
    third = owned(3, "third", http(PORT))

    assert unavailable(beyond, first, VICTIM, rules=PortRules(most=1)) == {PORT: BEYOND}
    assert unavailable(VICTIM, first, beyond, rules=PortRules(most=1)) == {}
    # The next one has the port.
    assert unavailable(VICTIM, first, beyond, third, rules=PortRules(most=1)) == {PORT: HELD}
    assert unavailable(third, first, beyond, VICTIM, rules=PortRules(most=1)) == {}


@pytest.mark.parametrize(
    ("one", "rules"),
    [
        (added(2, "tenant", http(81), http(PORT)), PortRules(most=1)),
        (added(2, "tenant", http(81), http(PORT)), PortRules(listeners=1)),
        (added(2, "tenant", http(PORT), to="gone"), RULES),
        (added(2, "tenant", http(PORT), to="closed"), RULES),
        (added(2, "tenant", {**http(PORT), "hostname": "a.test"}, to="odd"), RULES),
    ],
    ids=["ports of the namespace", "listeners of the namespace", "no Gateway", "not allowed", "conflict"],
)
def test_a_listener_set_that_is_not_served_holds_no_port(one: Resource, rules: PortRules) -> None:
    closed = owned(1, "closed", http(80), allowedListeners={"namespaces": {"from": "Same"}})
    odd = owned(1, "odd", http(PORT, hostname="a.test", protocol="HTTPS"), allowedListeners=EVERYBODY)

    assert unavailable(VICTIM, SHARED, closed, odd, one, rules=rules) == {}


def test_another_listener_that_is_not_served_lifts_no_limit_on_ports() -> None:
    greedy = added(2, "greedy", http(81), http(PORT))
    empty = added(3, "other", http(PORT, hostname="a.test", allowedRoutes={"kinds": [{"kind": "UDPRoute"}]}))

    assert unavailable(SHARED, greedy, empty, rules=PortRules(most=1)) == {PORT: BEYOND}
    assert unavailable(SHARED, greedy, added(3, "other", http(PORT, hostname="a.test")), rules=PortRules(most=1)) == {}


def test_a_selector_decides_by_the_labels_of_a_namespace() -> None:
    selector = {"namespaces": {"from": "Selector", "selector": {"matchLabels": {"may": "listen"}}}}
    shared = owned(1, "shared", http(80), allowedListeners=selector)
    one, space = added(2, "tenant", http(PORT)), made("Namespace", "tenant", namespace="", version="v1")

    assert unavailable(VICTIM, shared, one, space) == {}
    space["metadata"]["labels"] = {"may": "listen"}
    assert unavailable(VICTIM, shared, one, space) == {PORT: HELD}


PORTS = st.sampled_from([80, 81])
LISTENERS = st.lists(
    st.builds(
        lambda port, protocol, **fields: http(port, protocol=protocol, **fields),
        PORTS,
        st.sampled_from(["HTTP", "HTTP", "HTTP", "TCP"]),
        hostname=st.sampled_from(["a.test", "b.test", "in valid"]),
    ),
    max_size=2,
)
SOMEBODY = st.sampled_from([EVERYBODY, EVERYBODY, {"namespaces": {"from": "Same"}}, {}])


@st.composite
def worlds(draw: st.DrawFn, namespaces: tuple[str, ...], parents: tuple[str, ...]) -> list[Resource]:
    """Return a Gateway of some *namespaces*, and ListenerSets of them for Gateways of *parents*; of different ages."""
    gateways = draw(st.lists(st.sampled_from(namespaces), min_size=1, max_size=3, unique=True))
    sets = draw(st.lists(st.tuples(st.sampled_from(namespaces), st.sampled_from(parents)), max_size=3))
    days = iter(draw(st.permutations(range(1, 1 + len(gateways) + len(sets)))))
    found = [owned(next(days), one, *draw(LISTENERS), allowedListeners=draw(SOMEBODY)) for one in gateways]
    return found + [
        added(next(days), origin, *draw(LISTENERS), name=f"s{number}", to=to)
        for number, (origin, to) in enumerate(sets)
    ]


def younger(objects: Iterable[Resource]) -> list[Resource]:
    """Return *objects* with ages that are younger than all of a world's."""
    return [
        aged(10 + int(one["metadata"]["creationTimestamp"][8:10]), one["metadata"]["namespace"], one) for one in objects
    ]


def served_in(stores: Stores, namespaces: tuple[str, ...]) -> dict[tuple[str, int], set[tuple[str, str]]]:
    """Return the listeners of objects in *namespaces* that are served, by the namespace of the Gateway and the port."""
    held = HeldPorts(stores, CONTROLLER, RULES)
    found: dict[tuple[str, int], set[tuple[str, str]]] = {}
    for one in stores["gateways"].list():
        assert held.unavailable(one, ()) == unavailable_ports(one, stores, CONTROLLER, RULES)
        for port in served_ports(one, stores, CONTROLLER, RULES):
            place = one["metadata"]["namespace"], port.port
            listeners = {(each.key, each.hostname) for each in port.listeners}
            found[place] = {each for each in listeners if each[0].partition("/")[0] in namespaces}
    return {place: listeners for place, listeners in found.items() if listeners}


OLD, NEW = ("a", "c", "e"), ("b", "d")


@settings(max_examples=40, deadline=None)
@given(worlds(OLD, OLD), worlds(NEW, (*OLD, *NEW)).map(younger))
def test_younger_objects_change_nothing_that_older_ones_of_other_namespaces_have(
    old: list[Resource], new: list[Resource]
) -> None:
    before = served_in(stores_of(gateway_class(), *old), OLD)

    stores = stores_of(gateway_class(), *old, *new)

    assert served_in(stores, OLD) == before
    # And no two Gateways have one port.
    ports = [port for _, port in served_in(stores, (*OLD, *NEW))]
    assert len(ports) == len(set(ports))


def crowd(size: int, day: int) -> Iterable[Resource]:
    """ListenerSets for the port, each with a Gateway that serves none of it, and Gateways that serve none of it."""
    for number in range(size):
        yield added(day, f"t{number}", http(PORT), to=f"t{number}")
        yield owned(day, f"t{number}", http(PORT, hostname="in valid"), allowedListeners={})


def test_twice_as_many_older_claims_that_do_not_count_cost_twice_as_much() -> None:
    costs = []
    for size in (2, 60, 120):
        stores = stores_of(gateway_class(), VICTIM, *crowd(size, day=2))
        held = HeldPorts(stores, CONTROLLER, RULES)
        with Work() as work:
            assert held.unavailable(VICTIM, ()) == {}
        costs.append(work.calls)

    assert costs[2] <= 2.5 * costs[1], costs


def test_younger_claims_cost_the_gateway_with_the_port_nothing() -> None:
    site = Site()
    site.put(VICTIM, SHARED, *crowd(20, day=7))
    assert f"frontend gateway-port::victim_gw_{PORT}" in site.render().text

    site.put(added(8, "attacker", http(PORT)), added(9, "other", http(PORT, hostname="a.test")))
    rendered = site.render()

    # Only the Gateway of the sets is rendered again, in two outputs.
    assert rendered.fragments_rendered == 2
    assert f"frontend gateway-port::shared_gw_{PORT}" not in rendered.text
