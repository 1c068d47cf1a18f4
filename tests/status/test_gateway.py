"""The status of Gateway API objects reports acceptance, addresses, conflicts and reasons for rejections."""

import base64
from collections.abc import Sequence
from typing import Any

import pytest

from haptic_trio.gateway.features import FEATURES
from haptic_trio.gateway.listeners.port_rules import PortRules
from haptic_trio.gateway.routes.attached import AttachedRoutes
from haptic_trio.gateway.routes.kinds import HTTP_ROUTE
from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.store import Stores
from haptic_trio.status.gateway import (
    GatewayClassStatus,
    GatewayStatus,
    ListenerSetStatus,
    RouteStatus,
)
from haptic_trio.status.sources import is_fulfilled
from haptic_trio.validation_tests.live.certificates import issue
from tests.gateway.objects import CONTROLLER, gateway, gateway_class, grant, made, route, rule, service, stores_of
from tests.support.work import Work

POOL = ["10.0.0.1", "10.0.0.2"]
NOW = "2026-01-01T00:00:00Z"


def verdicts(conditions: Sequence[Any]) -> dict[str, tuple[str, str]]:
    """Return status and reason of each condition."""
    return {one["type"]: (one["status"], one["reason"]) for one in conditions}


def gateway_source(stores: Stores, pool: Sequence[str] = POOL, shared: Sequence[str] | None = ()) -> GatewayStatus:
    return GatewayStatus(stores, CONTROLLER, PortRules.of(pool, addresses=len(pool)), lambda: shared, clock=lambda: NOW)


def status_of(one: Resource, *objects: Resource, pool: Sequence[str] = POOL) -> dict[str, Any]:
    """Return the status of the Gateway *one*."""
    found = gateway_source(stores_of(gateway_class(), one, *objects), pool).wanted(one)
    assert found is not None
    return dict(found)


def https(**tls: Any) -> dict[str, Any]:
    return {"name": "https", "port": 443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "cert"}], **tls}}


def tls_secret(name: str = "cert", namespace: str = "web") -> Resource:
    issued = issue(("a.example.com",))
    data = {"tls.crt": issued.chain, "tls.key": issued.key}
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
    return made("Secret", name, namespace=namespace, version="v1", type="kubernetes.io/tls", data=encoded)


def test_a_class_is_accepted_and_lists_supported_features() -> None:
    one = gateway_class()
    source = GatewayClassStatus(stores_of(one), CONTROLLER, clock=lambda: NOW)

    wanted = source.wanted(one)

    assert wanted is not None
    assert verdicts(wanted["conditions"]) == {"Accepted": ("True", "Accepted")}
    assert [feature["name"] for feature in wanted["supportedFeatures"]] == sorted(FEATURES)
    assert source.wanted(gateway_class("example.com/other")) is None


def test_a_gateway_has_an_address_and_counts_its_routes_once() -> None:
    twice = route("a", rule(), parents=[{"name": "gw"}, {"name": "gw", "sectionName": "http"}])
    found = status_of(gateway(), twice, route("b", rule("/b")), route("c", rule(), parents=[{"name": "other"}]))

    assert found["addresses"] == [{"type": "IPAddress", "value": "10.0.0.1"}]
    assert verdicts(found["conditions"]) == {
        "Accepted": ("True", "Accepted"),
        "Programmed": ("True", "Programmed"),
        "ResolvedRefs": ("True", "ResolvedRefs"),
    }
    (listener,) = found["listeners"]
    assert listener["attachedRoutes"] == 2
    assert verdicts(listener["conditions"]) == {
        "Accepted": ("True", "Accepted"),
        "Programmed": ("True", "Programmed"),
        "ResolvedRefs": ("True", "ResolvedRefs"),
        "Conflicted": ("False", "NoConflicts"),
    }
    assert all(one["observedGeneration"] == 1 for one in found["conditions"] + listener["conditions"])


def test_without_a_pool_a_gateway_is_where_haproxy_is() -> None:
    one = gateway()
    stores = stores_of(gateway_class(), one)

    assert not gateway_source(stores, (), None).is_ready
    wanted = gateway_source(stores, (), ["192.0.2.1", "lb.example.com"]).wanted(one)
    assert wanted is not None
    assert wanted["addresses"] == [
        {"type": "IPAddress", "value": "192.0.2.1"},
        {"type": "Hostname", "value": "lb.example.com"},
    ]


@pytest.mark.parametrize("asks", [False, True])
def test_the_status_of_twice_as_many_gateways_with_addresses_costs_twice_as_much(asks: bool) -> None:
    costs = []
    for size in (2, 50, 100):
        pool = [f"10.0.0.{number}" for number in range(1, size + 1)]
        asked = [{"addresses": [{"value": address}]} if asks else {} for address in pool]
        gateways = [gateway(f"g{number}", **fields) for number, fields in enumerate(asked)]
        source = gateway_source(stores_of(gateway_class(), *gateways), pool)
        with Work() as work:
            found = [source.wanted(one) for one in gateways]
        assert sorted(one["addresses"][0]["value"] for one in found if one) == sorted(pool)
        costs.append(work.calls)

    assert costs[2] <= 2.2 * costs[1], costs


def test_where_gateways_share_an_address_a_port_belongs_to_the_oldest() -> None:
    old, young = gateway("old"), gateway("young", {"name": "a", "port": 80, "protocol": "HTTP"}, https())
    old["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    young["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    stores = stores_of(gateway_class(), old, young, tls_secret())
    source = GatewayStatus(stores, CONTROLLER, PortRules.of(shared=[443]), lambda: ("192.0.2.1",), clock=lambda: NOW)

    found = {one["metadata"]["name"]: source.wanted(one) for one in (old, young)}

    def reasons(name: str) -> list[str]:
        return [
            one["reason"]
            for listener in (found[name] or {})["listeners"]
            for one in listener["conditions"]
            if one["type"] == "Accepted"
        ]

    assert reasons("old") == ["Accepted"]
    assert reasons("young") == ["PortUnavailable", "PortUnavailable"]


@pytest.mark.parametrize(
    ("fields", "accepted", "programmed"),
    [
        ({"addresses": [{"type": "x/y", "value": "z"}]}, ("False", "UnsupportedAddress"), ("False", "Invalid")),
        ({"addresses": [{"value": "192.0.2.1"}]}, ("True", "Accepted"), ("False", "AddressNotUsable")),
        ({"infrastructure": {"parametersRef": {"name": "x"}}}, ("False", "InvalidParameters"), ("False", "Invalid")),
    ],
)
def test_what_a_gateway_cannot_have(
    fields: dict[str, Any], accepted: tuple[str, str], programmed: tuple[str, str]
) -> None:
    found = verdicts(status_of(gateway("gw", **fields))["conditions"])

    assert (found["Accepted"], found["Programmed"]) == (accepted, programmed)


def test_a_protocol_that_we_do_not_speak() -> None:
    found = status_of(gateway("gw", {"name": "u", "port": 53, "protocol": "UDP"}))

    assert verdicts(found["conditions"])["Accepted"] == ("False", "ListenersNotValid")
    (listener,) = found["listeners"]
    assert listener["supportedKinds"] == []
    assert verdicts(listener["conditions"])["Accepted"] == ("False", "UnsupportedProtocol")


@pytest.mark.parametrize(
    ("reference", "objects", "reason"),
    [
        ({"name": "cert"}, (), "InvalidCertificateRef"),
        ({"name": "cert"}, (made("Secret", "cert", version="v1", data={"tls.crt": "eA=="}),), "InvalidCertificateRef"),
        ({"name": "cert", "kind": "Other"}, (tls_secret(),), "InvalidCertificateRef"),
        ({"name": "cert", "namespace": "far"}, (tls_secret(namespace="far"),), "RefNotPermitted"),
        (
            {"name": "cert", "namespace": "far"},
            (tls_secret(namespace="far"), grant("far", kind="HTTPRoute", to="Secret")),
            "RefNotPermitted",
        ),
        (
            {"name": "cert", "namespace": "far"},
            (tls_secret(namespace="far"), grant("far", kind="Gateway", to="Secret")),
            "ResolvedRefs",
        ),
        ({"name": "cert"}, (tls_secret(),), "ResolvedRefs"),
    ],
)
def test_certificates_of_a_listener(reference: dict[str, str], objects: tuple[Resource, ...], reason: str) -> None:
    (listener,) = status_of(gateway("gw", https(certificateRefs=[reference])), *objects)["listeners"]

    found = verdicts(listener["conditions"])
    resolved = reason == "ResolvedRefs"
    assert found["ResolvedRefs"] == (str(resolved), reason)
    assert found["Programmed"][0] == str(resolved)


def test_a_listener_whose_clients_cannot_be_verified_is_not_accepted() -> None:
    validation = {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "gone"}]}
    tls = {"frontend": {"default": {}, "perPort": [{"port": 8443, "tls": {"validation": validation}}]}}
    listeners = [https(), {**https(), "name": "clients", "port": 8443}]

    found = status_of(gateway("gw", *listeners, tls=tls), tls_secret())["listeners"]

    accepted = {one["name"]: verdicts(one["conditions"])["Accepted"] for one in found}
    assert accepted == {"https": ("True", "Accepted"), "clients": ("False", "NoValidCACertificate")}


def test_a_route_has_a_status_for_each_own_parent_and_keeps_those_of_others() -> None:
    foreign = {"parentRef": {"name": "x"}, "controllerName": "example.com/other", "conditions": []}
    stale = {"parentRef": {"name": "old"}, "controllerName": CONTROLLER, "conditions": []}
    one = route("r", rule(to="gone"), parents=[{"name": "gw", "sectionName": "nope"}, {"name": "gw"}])
    one["status"] = {"parents": [foreign, stale]}
    stores = stores_of(gateway_class(), gateway(), one)

    wanted = RouteStatus(stores, CONTROLLER, kind=HTTP_ROUTE, clock=lambda: NOW).wanted(one)

    assert wanted is not None
    assert wanted["parents"][0] == foreign
    assert [verdicts(parent["conditions"]) for parent in wanted["parents"][1:]] == [
        {"Accepted": ("False", "NoMatchingParent"), "ResolvedRefs": ("False", "BackendNotFound")},
        {"Accepted": ("True", "Accepted"), "ResolvedRefs": ("False", "BackendNotFound")},
    ]


def test_a_rejected_route_has_the_reason() -> None:
    one = route("r", rule("/a b"))
    stores = stores_of(gateway_class(), gateway(), service(), one)

    wanted = RouteStatus(stores, CONTROLLER, kind=HTTP_ROUTE, clock=lambda: NOW).wanted(one)

    assert wanted is not None
    assert verdicts(wanted["parents"][0]["conditions"])["Accepted"] == ("False", "UnsupportedValue")


def test_a_route_names_the_rejected_regular_expression_and_the_reason() -> None:
    headers = [{"name": "a", "value": "1"}, {"name": "b", "type": "RegularExpression", "value": "(a+)+"}]
    one = route("r", rule(matches=[{"headers": headers[:1]}, {"headers": headers}]))
    stores = stores_of(gateway_class(), gateway(), service(), one)

    wanted = RouteStatus(stores, CONTROLLER, kind=HTTP_ROUTE, clock=lambda: NOW).wanted(one)

    assert wanted is not None
    accepted = next(found for found in wanted["parents"][0]["conditions"] if found["type"] == "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "UnsupportedValue")
    assert accepted["message"] == (
        'rules[0]: matches[1].headers[1].value: the regular expression "(a+)+" repeats a group that can match the same '
        "text in more than one way (exponential time); use one repetition instead of nested ones, and alternatives "
        "that begin with different characters"
    )


def test_a_route_names_its_dropped_rules() -> None:
    def conditions(*rules: dict[str, Any]) -> dict[str, dict[str, Any]]:
        one = route("r", *rules)
        stores = stores_of(gateway_class(), gateway(), service(), one)
        wanted = RouteStatus(stores, CONTROLLER, kind=HTTP_ROUTE, clock=lambda: NOW).wanted(one)
        assert wanted is not None
        return {found["type"]: found for found in wanted["parents"][0]["conditions"]}

    bad = rule("/b", name="pay", retry={"codes": [999]})
    found = conditions(rule("/a"), bad)

    assert found["Accepted"]["status"] == "True"
    partial = found["PartiallyInvalid"]
    assert (partial["status"], partial["reason"]) == ("True", "UnsupportedValue")
    assert partial["message"].startswith("Dropped Rule rules[1] (pay): retry: ")
    assert partial["observedGeneration"] == 1

    assert "PartiallyInvalid" not in conditions(rule("/a"))
    assert "PartiallyInvalid" not in conditions(bad, bad)
    assert conditions(bad, bad)["Accepted"]["reason"] == "UnsupportedValue"
    both = [{"type": "RequestRedirect", "requestRedirect": {}}, {"type": "URLRewrite", "urlRewrite": {}}]
    assert conditions(rule("/a", filters=both))["Accepted"]["reason"] == "IncompatibleFilters"


def test_a_route_of_another_controller_is_not_touched() -> None:
    one = route("r", rule())
    stores = stores_of(gateway_class("example.com/other"), gateway(), one)

    assert RouteStatus(stores, CONTROLLER, kind=HTTP_ROUTE).wanted(one) is None


def test_what_is_written_is_wanted_no_more_and_keeps_its_times() -> None:
    one = route("r", rule())
    stores = stores_of(gateway_class(), gateway(), service(), one)
    written = RouteStatus(stores, CONTROLLER, kind=HTTP_ROUTE, clock=lambda: NOW).wanted(one)
    assert written is not None

    later = RouteStatus(stores, CONTROLLER, kind=HTTP_ROUTE, clock=lambda: "2027-01-01T00:00:00Z")

    assert is_fulfilled(written, later.wanted({**one, "status": written}))


def test_a_set_that_is_not_allowed_has_the_condition() -> None:
    listeners = [{"name": "s", "port": 80, "protocol": "HTTP", "hostname": "s.test"}]
    one = made("ListenerSet", "s", spec={"parentRef": {"name": "gw"}, "listeners": listeners})

    def found(**fields: Any) -> dict[str, tuple[str, str]]:
        stores = stores_of(gateway_class(), gateway("gw", **fields), one)
        wanted = ListenerSetStatus(stores, CONTROLLER, clock=lambda: NOW).wanted(one)
        assert wanted is not None
        return verdicts(wanted["conditions"])

    assert found() == {"Accepted": ("False", "NotAllowed"), "Programmed": ("False", "NotAllowed")}
    assert found(allowedListeners={"namespaces": {"from": "All"}}) == {
        "Accepted": ("True", "Accepted"),
        "Programmed": ("True", "Programmed"),
    }


def test_a_set_cannot_have_a_port_that_others_have_at_the_same_address() -> None:
    listeners = [{"name": name, "port": port, "protocol": "HTTP"} for name, port in (("taken", 8080), ("own", 81))]
    one = made("ListenerSet", "s", spec={"parentRef": {"name": "gw"}, "listeners": listeners})
    stores = stores_of(gateway_class(), gateway("gw", allowedListeners={"namespaces": {"from": "All"}}), one)

    def accepted(*pool: str) -> dict[str, tuple[str, str]]:
        wanted = ListenerSetStatus(stores, CONTROLLER, PortRules.of(pool, [8080]), clock=lambda: NOW).wanted(one)
        assert wanted is not None
        return {entry["name"]: verdicts(entry["conditions"])["Accepted"] for entry in wanted["listeners"]}

    assert accepted() == {"taken": ("False", "PortUnavailable"), "own": ("True", "Accepted")}
    assert accepted("192.0.2.1") == {"taken": ("True", "Accepted"), "own": ("True", "Accepted")}


def test_a_class_has_the_features_that_the_configuration_gives_it() -> None:
    source = GatewayClassStatus(stores_of(gateway_class()), CONTROLLER, features=["A", "B"], clock=lambda: NOW)

    wanted = source.wanted(gateway_class())

    assert wanted is not None
    assert wanted["supportedFeatures"] == [{"name": "A"}, {"name": "B"}]


def test_a_route_has_a_condition_while_a_route_of_another_kind_has_its_host() -> None:
    one = route("r", rule(), hostnames=["a.test"], created="2")
    older = route("g", rule(), kind="GRPCRoute", hostnames=["*.test"], created="1")
    stores = stores_of(gateway_class(), gateway(), service(), one, older)
    source = RouteStatus(stores, CONTROLLER, kind=HTTP_ROUTE, clock=lambda: NOW)
    attached = AttachedRoutes(stores, CONTROLLER)

    def accepted() -> tuple[str, str]:
        wanted = source.wanted(one)
        assert wanted is not None
        return verdicts(wanted["parents"][0]["conditions"])["Accepted"]

    assert "grpcRoutes" in source.inputs
    assert accepted() == ("False", "HostnameConflict")
    assert attached.counts(gateway()) == {"web/gw/http": 1}
    for name in ("grpcRoutes", "grpcRoutesStates", "grpcRoutesByGateway", "grpcRoutesByHost", "grpcRoutesWithoutHost"):
        stores[name].upsert(route("g", rule(), kind="GRPCRoute", hostnames=["other.example"], created="1"))
    assert accepted() == ("True", "Accepted")
    assert attached.counts(gateway()) == {"web/gw/http": 2}


def test_hosts_with_very_many_labels_do_not_cost_the_status_of_other_routes() -> None:
    def answered_again(strangers: int) -> int:
        own = [route(f"r{number}", rule("/"), hostnames=[f"h{number}.test"]) for number in range(100)]
        deep = [
            route(f"s{number}", rule("/"), hostnames=["a." * 110 + f"h{number}.t{host}" for host in range(16)])
            for number in range(strangers)
        ]
        stores = stores_of(gateway_class(), gateway(), *own, *deep)
        source = RouteStatus(stores, CONTROLLER, kind=HTTP_ROUTE, clock=lambda: NOW)
        found = stores["httpRoutesStates"].list()
        for one in found:
            source.wanted(one)
        with Work() as work:
            for one in found[: len(own)]:
                source.wanted(one)
        return work.calls

    answered_again(0)
    assert answered_again(20) <= 2 * answered_again(0)
