"""Listeners get only ports that are allowed, not reserved, and free."""

import pytest

from haptic_trio.gateway.listeners.held_ports import unavailable_ports
from haptic_trio.gateway.listeners.port_rules import (
    BEYOND,
    HELD,
    NOT_ALLOWED,
    RESERVED,
    TAKEN_PORTS,
    PortRules,
    port_range,
    taken_port,
)
from haptic_trio.gateway.listeners.ports import rejected_ports, served_ports
from haptic_trio.gateway.objects import GatewayObjectError, name_of
from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.store import Store, Stores
from haptic_trio.status.gateway import GatewayStatus, ListenerSetStatus
from tests.gateway.objects import CONTROLLER, gateway, gateway_class, made, stores_of


def listener(port: int) -> dict[str, object]:
    return {"name": f"p{port}", "port": port, "protocol": "HTTP"}


def site(*objects: Resource, taken: tuple[tuple[str, int], ...] = ()) -> Stores:
    """Return stores with *objects* and the addresses that HAProxy could not listen on."""
    store = Store(TAKEN_PORTS, ("spec.port",))
    store.replace(taken_port(host, port, "Address already in use") for host, port in taken)
    return Stores([*stores_of(gateway_class(), *objects).values(), store])


@pytest.mark.parametrize(
    ("value", "expected"), [(80, (80, 80)), ("80", (80, 80)), ("1-65535", (1, 65535)), ("8000-8999", (8000, 8999))]
)
def test_a_range_has_two_ends(value: object, expected: tuple[int, int]) -> None:
    assert port_range(value) == expected


@pytest.mark.parametrize("value", [0, 65536, "0-5", "9-5", "1-70000", "80,81", "", "x", "-5", "80-", True, None, 8.0])
def test_an_invalid_range_of_ports_is_rejected(value: object) -> None:
    with pytest.raises(ValueError, match="use a port"):
        port_range(value)
    with pytest.raises(GatewayObjectError):
        PortRules.of(allowed=[value])


def test_listeners_have_only_ports_that_are_allowed_and_not_reserved() -> None:
    one = gateway("gw", *map(listener, (80, 8080, 8081, 5555, 9999)))
    stores = site(one, taken=(("0.0.0.0", 8081),))
    rules = PortRules.of(shared=[8080], reserved=[5555], allowed=["1-8999"])

    assert [port.port for port in served_ports(one, stores, CONTROLLER, rules)] == [80]
    assert unavailable_ports(one, stores, CONTROLLER, rules) == {
        5555: RESERVED,
        8080: HELD,
        8081: "HAProxy cannot listen on it: Address already in use",
        9999: NOT_ALLOWED,
    }


def test_no_port_is_allowed_by_an_empty_list() -> None:
    one = gateway("gw", listener(80))

    assert served_ports(one, site(one), CONTROLLER, PortRules.of(allowed=[])) == []


def test_settings_and_templates_make_the_same_rules() -> None:
    settings = {
        "httpPort": 8080,
        "httpsPort": 8443,
        "metricsPort": 0,
        "passthroughPort": 8444,
        "gatewayAddresses": [],
        "gatewayReservedPorts": [5555],
        "gatewayPorts": ["80", "1000-2000"],
        "gatewayPortsPerNamespace": 20,
        "gatewayListenersPerNamespace": 30,
        "gatewayOwnListeners": 40,
        "gatewayAddressesPerNamespace": 50,
    }

    expected = PortRules.of([], [8080, 8443, 0, 8444], [5555], ["80", "1000-2000"], 20, 30, 40, addresses=50)
    assert PortRules.of_settings(settings) == expected
    assert PortRules.of_settings({}) == PortRules()


def of(namespace: str, created: str, one: Resource) -> Resource:
    return {**one, "metadata": {**one["metadata"], "namespace": namespace, "creationTimestamp": created}}


def added(namespace: str, name: str, parent: str, *ports: int, created: str = "") -> Resource:
    spec = {
        "parentRef": {"name": parent, "namespace": "shared"},
        "listeners": [{**listener(port), "hostname": f"{name}.test"} for port in ports],
    }
    return of(namespace, created, made("ListenerSet", name, spec=spec))


POOL = ("192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4")


@pytest.mark.parametrize("pool", [(), POOL])
def test_the_gateways_of_a_namespace_have_a_limited_number_of_ports(pool: tuple[str, ...]) -> None:
    first = of("greedy", "2026-01-01T00:00:00Z", gateway("z", *map(listener, (5555, 83, 81, 82))))
    second = of("greedy", "2026-01-02T00:00:00Z", gateway("a", *map(listener, (94, 91, 92, 93))))
    other = of("other", "2026-01-03T00:00:00Z", gateway("b", *map(listener, range(70, 75))))
    stores = site(first, second, other)
    rules = PortRules.of(pool, reserved=[5555], most=5)

    served = [[port.port for port in served_ports(one, stores, CONTROLLER, rules)] for one in (first, second, other)]

    # The oldest first, and in the order of the listeners; a reserved port does not count.
    assert served == [[81, 82, 83], [91, 94], [70, 71, 72, 73, 74]]
    assert unavailable_ports(second, stores, CONTROLLER, rules) == {92: BEYOND, 93: BEYOND}
    rejected = rejected_ports(second, stores, CONTROLLER, rules)
    assert {(one.port, one.reason, name_of(one.owner)) for one in rejected} == {(92, BEYOND, "a"), (93, BEYOND, "a")}


def test_a_port_counts_once_where_all_share_an_address() -> None:
    gateways = [of("web", f"2026-01-0{day}T00:00:00Z", gateway(f"g{day}", listener(80))) for day in (1, 2, 3)]
    last = of("web", "2026-01-04T00:00:00Z", gateway("last", listener(81), listener(82)))
    stores = site(*gateways, last)

    assert unavailable_ports(last, stores, CONTROLLER, PortRules.of(most=2)) == {82: BEYOND}
    assert unavailable_ports(last, stores, CONTROLLER, PortRules.of(POOL, most=4)) == {82: BEYOND}


def test_listener_sets_have_the_ports_that_gateways_of_their_namespace_leave() -> None:
    shared = of("shared", "2026-01-01T00:00:00Z", gateway(
        "gw", listener(80), allowedListeners={"namespaces": {"from": "All"}}
    ))  # fmt: skip
    own = of("greedy", "2026-01-09T00:00:00Z", gateway("own", listener(60), listener(61)))
    old = added("greedy", "old", "gw", 80, 71, 72, created="2026-01-02T00:00:00Z")
    young = added("greedy", "young", "gw", 73, 90, created="2026-01-03T00:00:00Z")
    peaceful = added("peaceful", "peaceful", "gw", 80, 90, created="2026-01-04T00:00:00Z")
    stores = site(shared, own, old, young, peaceful)
    rules = PortRules.of(most=4)

    # A port that another namespace has, by its Gateway or a set, is open to all.
    assert [port.port for port in served_ports(shared, stores, CONTROLLER, rules)] == [71, 80, 90]
    assert [port.port for port in served_ports(own, stores, CONTROLLER, rules)] == [60, 61]
    rejected = rejected_ports(shared, stores, CONTROLLER, rules)
    assert [(one.port, one.reason, one.owner["kind"], name_of(one.owner)) for one in rejected] == [
        (72, BEYOND, "ListenerSet", "old"),
        (73, BEYOND, "ListenerSet", "young"),
    ]


def test_the_status_of_a_listener_beyond_the_limit_says_so() -> None:
    one = gateway("gw", listener(80), listener(81))
    stores = site(one)
    status = GatewayStatus(stores, CONTROLLER, PortRules.of(most=1), lambda: ("192.0.2.1",)).wanted(one)

    assert status is not None
    verdicts = [
        next((condition["status"], condition["reason"]) for condition in entry["conditions"]
             if condition["type"] == "Accepted")
        for entry in status["listeners"]
    ]  # fmt: skip
    assert verdicts == [("True", "Accepted"), ("False", "PortUnavailable")]


def test_at_an_address_of_its_own_a_gateway_lacks_what_is_taken_there() -> None:
    one = gateway("gw", *map(listener, (80, 81, 82, 5555)), addresses=[{"value": "192.0.2.1"}])
    taken = (("192.0.2.1", 80), ("192.0.2.2", 81), ("0.0.0.0", 82))
    rules = PortRules.of(["192.0.2.1", "192.0.2.2"], shared=[81], reserved=[5555])

    assert [port.port for port in served_ports(one, site(one, taken=taken), CONTROLLER, rules)] == [81]


@pytest.mark.parametrize(
    ("port", "message"),
    [(9999, NOT_ALLOWED), (5555, RESERVED), (81, "HAProxy cannot listen on it: Address already in use")],
)
def test_the_status_says_why(port: int, message: str) -> None:
    one = gateway("gw", listener(80), listener(port), allowedListeners={"namespaces": {"from": "All"}})
    spec = {"parentRef": {"name": "gw"}, "listeners": [{**listener(port), "hostname": "set.test"}]}
    added = made("ListenerSet", "set", spec=spec)
    stores = site(one, added, taken=(("127.0.0.1", 81),))
    rules = PortRules.of(reserved=[5555], allowed=["1-8999"])

    of_gateway = GatewayStatus(stores, CONTROLLER, rules, lambda: ("192.0.2.1",)).wanted(one)
    of_set = ListenerSetStatus(stores, CONTROLLER, rules).wanted(added)

    assert of_gateway is not None
    assert of_set is not None
    good, bad = of_gateway["listeners"]
    for entry in (bad, of_set["listeners"][0]):
        accepted = next(one for one in entry["conditions"] if one["type"] == "Accepted")
        programmed = next(one for one in entry["conditions"] if one["type"] == "Programmed")
        assert (accepted["status"], accepted["reason"]) == ("False", "PortUnavailable")
        assert accepted["message"] == message
        assert programmed["status"] == "False"
    assert {one["status"] for one in good["conditions"] if one["type"] in ("Accepted", "Programmed")} == {"True"}


@pytest.mark.parametrize("port", [{"a": "b"}, [80], "80", True, 80.5, None])
def test_what_is_not_a_port_costs_other_gateways_nothing(port: object) -> None:
    odd = gateway("a", listener(81), {"name": "odd", "port": port, "protocol": "HTTP"})
    good = gateway("b", listener(80))
    stores = site(odd, good)

    assert [one.port for one in served_ports(odd, stores, CONTROLLER, PortRules())] == [81]
    assert [one.port for one in served_ports(good, stores, CONTROLLER, PortRules())] == [80]
