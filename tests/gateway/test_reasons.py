"""A Gateway or route that is not served has a reason that names the field and the existing objects."""

from haptic_trio.gateway.reasons import gateway_faults, route_faults, routes_at
from haptic_trio.k8s.resource import Resource
from tests.gateway.objects import CONTROLLER, gateway, gateway_class, made, route, rule, service, stores_of
from tests.gateway.serving import endpoints


def faults_of(own: Resource, *objects: Resource) -> list[str]:
    return [str(fault) for fault in route_faults(own, stores_of(own, *objects), CONTROLLER)]


SERVED = (gateway_class(), gateway(), service("app"), endpoints("app", ("", 8080)))


def test_served_route_has_no_fault() -> None:
    assert faults_of(route("r", rule("/")), *SERVED) == []


def test_parent_that_does_not_exist_is_named_with_the_existing_ones() -> None:
    lost = route("r", rule("/"), parents=[{"name": "gwx"}])

    assert faults_of(lost, *SERVED) == ["spec.parentRefs[0]: the Gateway web/gwx does not exist (Gateways: web/gw)"]
    assert faults_of(lost) == ["spec.parentRefs[0]: the Gateway web/gwx does not exist; there are no Gateways"]


def test_listener_that_does_not_exist_is_named_with_the_existing_ones() -> None:
    lost = route("r", rule("/"), parents=[{"name": "gw", "sectionName": "https"}])

    (fault,) = faults_of(lost, *SERVED)

    assert fault.startswith("spec.parentRefs[0]: the Gateway web/gw has no usable listener with sectionName https (")


def test_foreign_class_is_named_with_the_served_ones() -> None:
    other = made("GatewayClass", "other", namespace="", spec={"controllerName": "example.com/other"})
    of_other, of_none = gateway("gw", gatewayClassName="other"), gateway("gw", gatewayClassName="nothing")

    (foreign,) = gateway_faults(of_other, stores_of(gateway_class(), other, of_other), CONTROLLER)
    (unknown,) = gateway_faults(of_none, stores_of(gateway_class(), of_none), CONTROLLER)

    assert (foreign.reason, unknown.reason) == ("ForeignClass", "GatewayClassNotFound")
    assert "the GatewayClass other is of the controller example.com/other; this controller serves" in foreign.message
    assert unknown.message.startswith("there is no GatewayClass nothing; this controller serves the GatewayClasses ")


def test_backend_is_named_that_is_missing_or_has_no_endpoint() -> None:
    own = route("r", {"backendRefs": [{"name": "gone", "port": 80}, {"name": "app", "port": 80}]})

    gone, empty = faults_of(own, gateway_class(), gateway(), service("app"))

    field, answer = "spec.rules[0].backendRefs", "requests for it are answered with"
    assert gone == f"{field}[0]: the Service web/gone does not exist; {answer} 500"
    assert empty == f"{field}[1]: the Service web/app has no ready endpoint; {answer} 503"


def test_routes_of_a_host_are_those_that_name_it_a_wildcard_or_no_host() -> None:
    stores = stores_of(
        route("own", rule("/"), hostnames=["a.b.test"]),
        route("wide", rule("/"), hostnames=["*.test"]),
        route("any", rule("/")),
        route("other", rule("/"), hostnames=["c.test"]),
    )

    def names(*, is_named: bool) -> list[str]:
        return [one["metadata"]["name"] for one in routes_at(stores, "a.b.test", is_named=is_named)]

    assert names(is_named=False) == ["any", "own", "wide"]
    assert names(is_named=True) == ["own", "wide"]
