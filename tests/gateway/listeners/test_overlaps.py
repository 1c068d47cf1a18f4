"""The status reports overlapping listeners, unresolved references, and the listeners of a rejected Gateway."""

from itertools import combinations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.gateway.hostnames import intersection
from haptic_trio.gateway.listeners.addresses import Placement
from haptic_trio.gateway.listeners.listeners import listeners_of
from haptic_trio.gateway.listeners.overlaps import overlapping
from haptic_trio.gateway.listeners.port_rules import PortRules
from haptic_trio.gateway.listeners.ports import served_ports
from haptic_trio.k8s.resource import Resource
from haptic_trio.status.gateway_conditions import Neighbours, gateway_status, set_status
from haptic_trio.status.sources import is_fulfilled
from tests.gateway.objects import CONTROLLER, gateway, gateway_class, made, stores_of
from tests.gateway.serving import Authority, secret

PAIR = {"certificateRefs": [{"name": "pair"}]}
LABELS = st.sampled_from(["a", "b"])
HOSTS = st.builds(
    lambda star, labels: ".".join([*star, *labels]),
    st.sampled_from([(), ("*",)]),
    st.lists(LABELS, min_size=1, max_size=3),
) | st.just("")


def https(name: str, host: str, port: int = 443, **fields: Any) -> dict[str, Any]:
    named = {"hostname": host} if host else {}
    return {"name": name, "port": port, "protocol": "HTTPS", "tls": PAIR, **named, **fields}


def status_of(one: Resource, *objects: Resource) -> dict[str, Any]:
    return gateway_status(one, stores_of(gateway_class(), one, *objects), Placement(addresses=("192.0.2.1",)), {})


def verdicts(found: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["reason"]) for one in found["conditions"]}


@given(st.lists(HOSTS, max_size=6, unique=True))
def test_listeners_overlap_where_two_of_them_have_a_host_in_common(hosts: list[str]) -> None:
    listeners = listeners_of(gateway("gw", *(https(str(number), host) for number, host in enumerate(hosts))))

    pairs = [
        pair for pair in combinations(listeners, 2) if intersection(pair[0].hostname, pair[1].hostname) is not None
    ]
    assert overlapping(listeners) == {listener.key for pair in pairs for listener in pair}


def test_a_listener_says_that_it_overlaps_and_nothing_if_it_does_not() -> None:
    passed: dict[str, Any] = {"protocol": "TLS", "tls": {"mode": "Passthrough"}}
    one = gateway(
        "gw",
        https("a", "foo.example.com"),
        https("b", "foo.example.org"),
        https("c", "*.example.com"),
        https("d", "*.example.com", 8443),
        https("e", "*.foo.example.org", **passed),
        https("f", "x.foo.example.org"),
        {"name": "plain", "port": 80, "protocol": "HTTP"},
        {"name": "host", "port": 80, "protocol": "HTTP", "hostname": "foo.example.com"},
    )

    found = {entry["name"]: verdicts(entry).get("OverlappingTLSConfig") for entry in status_of(one)["listeners"]}

    assert {name for name, verdict in found.items() if verdict} == {"a", "c", "e", "f"}
    assert set(found.values()) == {None, ("True", "OverlappingHostnames")}


def test_the_end_of_an_overlap_is_written_although_the_gateway_has_not_changed() -> None:
    one = gateway("gw", https("a", "foo.example.com"), allowedListeners={"namespaces": {"from": "Same"}})

    def status_beside(host: str) -> dict[str, Any]:
        spec = {"parentRef": {"name": "gw"}, "listeners": [https("b", host)]}
        return status_of(one, made("ListenerSet", "more", spec=spec))

    overlapping_status, separate_status = status_beside("*.example.com"), status_beside("*.example.org")

    assert "OverlappingTLSConfig" in verdicts(overlapping_status["listeners"][0])
    assert "OverlappingTLSConfig" not in verdicts(separate_status["listeners"][0])
    assert not is_fulfilled(overlapping_status, separate_status)


def test_a_gateway_reports_references_of_its_listeners() -> None:
    one = gateway("gw", https("a", "a.test"), {"name": "plain", "port": 80, "protocol": "HTTP"})

    assert verdicts(status_of(one))["ResolvedRefs"] == ("False", "ListenersNotResolved")
    assert verdicts(status_of(one))["Accepted"] == ("True", "Accepted")
    pair = secret("pair", Authority().issue("a.test"))
    assert verdicts(status_of(one, pair))["ResolvedRefs"] == ("True", "ResolvedRefs")


def test_what_is_not_accepted_is_not_served_and_neither_is_what_others_add_to_it() -> None:
    everybody = {"namespaces": {"from": "Same"}}
    spec = {"parentRef": {"name": "gw"}, "listeners": [{"name": "more", "port": 81, "protocol": "HTTP"}]}
    more = made("ListenerSet", "more", spec=spec)
    plain = gateway("gw", allowedListeners=everybody)
    one = gateway("gw", allowedListeners=everybody, infrastructure={"parametersRef": {"name": "x"}})

    def of(gateway: Resource) -> tuple[list[int], dict[str, tuple[str, str]]]:
        stores = stores_of(gateway_class(), gateway, more)
        ports = served_ports(gateway, stores, CONTROLLER, PortRules())
        return [port.port for port in ports], verdicts(
            set_status(more, Neighbours(gateway, stores, {}, PortRules()), stores, {})
        )

    assert of(plain) == ([80, 81], {"Accepted": ("True", "Accepted"), "Programmed": ("True", "Programmed")})
    assert of(one) == (
        [],
        {"Accepted": ("False", "ParentNotAccepted"), "Programmed": ("False", "ParentNotProgrammed")},
    )
    (listener,) = status_of(one)["listeners"]
    assert verdicts(listener)["Programmed"] == ("False", "Invalid")
