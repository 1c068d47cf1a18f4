"""ListenerSets of one namespace can add a limited number of listeners to a Gateway."""

from typing import Any

from haptic_trio.gateway.listeners.port_rules import TOO_MANY, TOO_MANY_OWN, PortRules
from haptic_trio.gateway.listeners.ports import rejected_listeners, served_ports
from haptic_trio.gateway.objects import name_of
from haptic_trio.k8s.resource import Resource
from haptic_trio.status.gateway import GatewayStatus, ListenerSetStatus
from tests.gateway.objects import CONTROLLER, gateway, gateway_class, made, stores_of
from tests.gateway.serving import Authority, secret
from tests.libraries.gateway.test_gateway import Site

SHARED = gateway(
    "gw", {"name": "own", "port": 80, "protocol": "HTTP"}, allowedListeners={"namespaces": {"from": "All"}}
)
PARENT = {"name": "gw", "namespace": "web"}


def added(namespace: str, name: str, count: int, *, day: int, **fields: Any) -> Resource:
    listeners = [
        {"name": f"l{number}", "port": 80, "protocol": "HTTP", "hostname": f"{name}{number}.{namespace}.test", **fields}
        for number in range(count)
    ]
    found = made("ListenerSet", name, namespace=namespace, spec={"parentRef": PARENT, "listeners": listeners})
    found["metadata"]["creationTimestamp"] = f"2026-01-0{day}T00:00:00Z"
    return found


def hosts(stores: Any, rules: PortRules) -> list[str]:
    (port,) = served_ports(SHARED, stores, CONTROLLER, rules)
    assert port.listeners == port.known
    return [listener.hostname for listener in port.listeners]


def conditions(status: Any) -> list[tuple[str, str]]:
    return [
        next((one["status"], one["reason"]) for one in entry["conditions"] if one["type"] == "Accepted")
        for entry in status["listeners"]
    ]


def test_the_oldest_listener_sets_of_a_namespace_are_served_up_to_the_limit() -> None:
    young, old = added("greedy", "b", 3, day=2), added("greedy", "a", 2, day=1)
    later = added("greedy", "c", 1, day=4)
    other, own = added("peaceful", "p", 3, day=3), added("web", "w", 9, day=5)
    stores = stores_of(gateway_class(), SHARED, young, old, later, other, own)
    rules = PortRules.of(listeners=3)

    assert hosts(stores, rules) == [
        "*",
        *("a0.greedy.test", "a1.greedy.test", "b0.greedy.test"),
        *("p0.peaceful.test", "p1.peaceful.test", "p2.peaceful.test"),
        *(f"w{number}.web.test" for number in range(9)),
    ]
    rejected = rejected_listeners(SHARED, stores, CONTROLLER, rules)
    assert [(one.owner["metadata"]["namespace"], name_of(one.owner), one.count) for one in rejected] == [
        ("greedy", "b", 2),
        ("greedy", "c", 1),
    ]

    status = ListenerSetStatus(stores, CONTROLLER, rules)
    assert conditions(status.wanted(young)) == [("True", "Accepted"), *[("False", "TooManyListeners")] * 2]
    found = status.wanted(later)
    assert found is not None
    assert [(one["type"], one["status"]) for one in found["conditions"]] == [
        ("Accepted", "False"),
        ("Programmed", "False"),
    ]
    assert found["listeners"][0]["conditions"][0]["message"] == TOO_MANY
    of_gateway = GatewayStatus(stores, CONTROLLER, rules, lambda: ("192.0.2.1",)).wanted(SHARED)
    assert of_gateway is not None
    assert of_gateway["attachedListenerSets"] == 4


def test_a_listener_counts_once_for_each_certificate() -> None:
    tls = {"certificateRefs": [{"name": "pair"}] * 3}
    secure = added("greedy", "a", 3, day=1, port=443, protocol="HTTPS", tls=tls)
    plain = added("greedy", "b", 2, day=2)
    pair = secret("pair", Authority().issue("a0.greedy.test"))
    pair["metadata"]["namespace"] = "greedy"
    stores = stores_of(gateway_class(), SHARED, secure, plain, pair)

    ports = {port.port: port for port in served_ports(SHARED, stores, CONTROLLER, PortRules.of(listeners=7))}

    assert [len(ports[443].listeners), len(ports[80].listeners)] == [2, 2]
    rejected = rejected_listeners(SHARED, stores, CONTROLLER, PortRules.of(listeners=7))
    assert [(name_of(one.owner), one.count) for one in rejected] == [("a", 1), ("b", 1)]


def test_twenty_thousand_listeners_of_a_tenant_leave_the_shared_gateway_what_it_is() -> None:
    site = Site()
    site.put(SHARED, added("peaceful", "p", 3, day=1))
    site.render()
    site.put(*(added("greedy", f"set{number}", 64, day=2) for number in range(320)))

    rendered = site.render()

    assert rendered.rejections == ()
    entries = rendered.texts["maps/gateway-listeners.map"].text.splitlines()
    assert len([line for line in entries if "greedy" in line]) == 64
    warned = {str(one.subject) for one in rendered.warnings if one.reason == "TooManyListeners"}
    assert warned
    assert all("greedy" in subject for subject in warned)


def test_listener_sets_in_the_namespace_of_the_gateway_have_a_limit_of_their_own() -> None:
    old, young = added("web", "a", 3, day=1), added("web", "b", 3, day=2)
    other = added("peaceful", "p", 2, day=3)
    stores = stores_of(gateway_class(), SHARED, old, young, other)
    rules = PortRules.of(listeners=2, own_listeners=4)

    assert hosts(stores, rules) == [
        "*",
        *("a0.web.test", "a1.web.test", "a2.web.test", "b0.web.test"),
        *("p0.peaceful.test", "p1.peaceful.test"),
    ]
    (rejected,) = rejected_listeners(SHARED, stores, CONTROLLER, rules)
    assert (name_of(rejected.owner), rejected.count, rejected.reason) == ("b", 2, TOO_MANY_OWN)
    found = ListenerSetStatus(stores, CONTROLLER, rules).wanted(young)
    assert conditions(found) == [("True", "Accepted"), *[("False", "TooManyListeners")] * 2]
    assert found is not None
    assert found["listeners"][1]["conditions"][0]["message"] == TOO_MANY_OWN


def test_listeners_of_the_own_namespace_do_not_cost_others_more_than_the_limit() -> None:
    site = Site()
    site.put(SHARED, *(added("web", f"set{number}", 64, day=2) for number in range(20)))

    rendered = site.render()

    assert rendered.rejections == ()
    entries = rendered.texts["maps/gateway-listeners.map"].text.splitlines()
    assert sum(entry.endswith("/set") for entry in entries) == 1_000
