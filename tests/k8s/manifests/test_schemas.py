"""Manifests are checked by the fields, types and values of their kinds."""

from typing import Any

import pytest

from haptic_trio.errors import Problem
from haptic_trio.k8s.manifests.schemas import check_manifests
from haptic_trio.k8s.resource import Resource
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, ingress_class, path, rule, service, tls_secret

PRESENT = "write apiVersion: networking.k8s.io/v1"
NOT_A_NUMBER = ("spec.ports[0].port", "expected integer, not bool True", "write a number without quotes")


def made(kind: str, api_version: str, **fields: Any) -> Resource:
    """Return an object with *fields*."""
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "a", "namespace": "default"}, **fields}


def check(resource: Resource) -> list[tuple[str, str, str]]:
    """Return path, message and hint of each problem of *resource*."""
    found = list(check_manifests([resource]))
    return [(one.path, one.message, one.hint) for one in found]


def test_objects_that_a_cluster_takes_have_no_problems() -> None:
    objects = [
        ingress("web", rule("example.com", path("/", "web", "http")), annotations={"a": "b"}, tls=[{"hosts": ["a"]}]),
        ingress_class("haptic", "haptic-trio/ingress-controller", default=True),
        service("web", {"name": "http", "port": 80, "targetPort": "web"}, type="ClusterIP"),
        service("api", {"port": 80, "targetPort": 8080, "protocol": "UDP"}, selector={"app": "api"}),
        endpoint_slice("web", endpoint("10.0.0.1"), ports={"http": 80}),
        tls_secret("web", "a", "b"),
        made("ConfigMap", "v1", data={"any.key": "text"}, immutable=None),
        made("HTTPRoute", "gateway.networking.k8s.io/v1beta1", spec={"hostnames": []}),
        made("Widget", "example.com/v1", spec={"what": "ever"}),
        made("Deployment", "apps/v1", spec={"replicas": 1}),
    ]

    assert list(check_manifests(objects)) == []


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        (
            made("Ingress", "networking.k8s.io/v1", spec={"ingressClassNam": "haptic"}),
            ("spec.ingressClassNam", "unknown field", "did you mean `ingressClassName`?"),
        ),
        (
            ingress("web", rule("example.com", path("/", "web", kind="Prefx"))),
            (
                "spec.rules[0].http.paths[0].pathType",
                "'Prefx' is not one of Exact, Prefix, ImplementationSpecific",
                "did you mean `Prefix`?",
            ),
        ),
        (
            service("web", {"port": "80"}),
            ("spec.ports[0].port", "expected integer, not '80'", "write a number without quotes"),
        ),
        (service("web", {"port": True}), NOT_A_NUMBER),
        (
            made("ConfigMap", "v1", data={"debug": 1}),
            ("data.debug", "expected string, not int 1", "put it in quotes"),
        ),
        (made("Service", "v1", spec=[]), ("spec", "expected object, not a list", "")),
        (
            made("Ingres", "networking.k8s.io/v1"),
            ("kind", "there is no kind 'Ingres' in networking.k8s.io/v1", "did you mean `Ingress`?"),
        ),
        (
            made("HTTPRout", "gateway.networking.k8s.io/v1"),
            ("kind", "there is no kind 'HTTPRout' in gateway.networking.k8s.io/v1", "did you mean `HTTPRoute`?"),
        ),
        (
            made("Ingress", "networking.k8s.io/v1beta1"),
            ("apiVersion", "Ingress is not served in networking.k8s.io/v1beta1", PRESENT),
        ),
        (
            made("Ingress", "extensions/v1beta1"),
            ("apiVersion", "Ingress is not served in extensions/v1beta1", PRESENT),
        ),
    ],
)  # fmt: skip
def test_what_a_cluster_would_reject_is_reported(resource: Resource, expected: tuple[str, str, str]) -> None:
    assert check(resource) == [expected]


def test_values_of_secrets_are_not_quoted() -> None:
    assert check(made("Secret", "v1", data={"password": 12345})) == [
        ("data.password", "expected string", "put it in quotes")
    ]


def test_problems_name_the_object_and_are_limited() -> None:
    problems = list(check_manifests([made("Service", "v1", spec={f"no{number}": 1 for number in range(100)})]))

    assert len(problems) == 20
    assert isinstance(problems[0], Problem)
    assert {problem.subject for problem in problems} == {"Service default/a"}
