"""An owner of a host learns why it is not served: class, path, port, certificate or conflict."""

import pytest

from haptic_trio.explain.answers import HostAnswer, ObjectAnswer, RouteAnswer
from haptic_trio.explain.resolve import explain
from haptic_trio.k8s.resource import Resource
from tests.explain.sites import site_of
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, ingress_class, path, rule, service

HOST = "web.example.com"
OWN = "this controller serves the class haptic and classes with spec.controller haptic-trio/ingress-controller"
CLASS = ingress_class("nginx", "k8s.io/ingress-nginx")


def of_class(name: str | None) -> Resource:
    """Return an Ingress for the host of the class *name*."""
    return ingress("web", rule(HOST, path("/", "web")), ingress_class=name)


def route(*objects: Resource, path: str = "/") -> RouteAnswer:
    """Return the answer to a request for the host."""
    answer = explain(site_of(*objects), f"{HOST}{path}")
    assert isinstance(answer, RouteAnswer)
    return answer


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ([of_class("nginx")], f"its class is nginx; {OWN}"),
        ([of_class("nginx"), CLASS], f"its class is nginx, of the controller k8s.io/ingress-nginx; {OWN}"),
        ([of_class(None)], f"it has no class (spec.ingressClassName); {OWN}"),
    ],
)
def test_ingress_of_another_class_is_named(objects: list[Resource], reason: str) -> None:
    site = site_of(*objects)

    host, request, found = (explain(site, target) for target in (HOST, f"{HOST}/a", "Ingress default/web"))

    assert isinstance(host, HostAnswer)
    assert isinstance(request, RouteAnswer)
    assert isinstance(found, ObjectAnswer)
    assert host.reasons == request.reasons == (f"Ingress default/web names this host, but {reason}",)
    assert request.status == 404
    assert found.notes == (f"not served: {reason}",)


def test_ingress_without_the_path_is_named_with_its_paths() -> None:
    web = ingress("web", rule(HOST, path("/shop", "web")))

    assert route(web, service("web"), path="/cart").reasons == (
        "Ingress default/web names this host, but has no path for /cart (paths: /shop (Prefix))",
    )
    assert route(web, service("web"), path="/shop/a").reasons == ()


def test_missing_port_is_a_warning_with_the_ports_of_the_service() -> None:
    web = ingress("web", rule(HOST, path("/", "web", "grpc")))
    slices = endpoint_slice("web", endpoint("10.0.0.1"), ports=80)

    answer = route(web, service("web", {"name": "http", "port": 80}), slices)

    assert answer.status == 503
    expected = "Ingress default/web: PortNotFound: the Service default/web has no port grpc (ports: 80 (http))"
    assert any(warning.startswith(expected) for warning in answer.warnings)
    assert "the backend does not exist, so `no-route` answers" in answer.notes


def test_missing_certificate_is_a_reason() -> None:
    tls = [{"hosts": [HOST], "secretName": "gone"}]

    answer = route(ingress("web", rule(HOST, path("/", "web")), tls=tls), service("web"))

    assert answer.reasons == (
        "no certificate is served for the host, though Ingress default/web asks for TLS with the Secret gone",
    )
    assert any("CertificateNotFound" in warning for warning in answer.warnings)


def test_conflict_names_the_object_that_has_the_path() -> None:
    older = ingress("a", rule(HOST, path("/", "a")), age=2)
    newer = ingress("b", rule(HOST, path("/", "b")), age=1)

    answer = route(older, newer, service("a"), service("b"))

    assert answer.winner is not None
    winner = answer.winner.made_by.object
    (warning,) = [one for one in answer.warnings if "HostPathConflict" in one]
    assert winner is not None
    assert str(winner) in warning.partition("HostPathConflict")[2]
    assert str(winner) not in warning.partition("HostPathConflict")[0]
