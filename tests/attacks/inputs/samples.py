"""Benign tenants, kind by kind, with something in every field that the libraries read.

A sample is built again and again, each time with a number of its own, so that
hundreds of its copies stand in one configuration.
"""

from typing import Any, Final

from haptic_trio.k8s.resource import Resource
from tests.attacks.inputs.annotation_samples import ANNOTATION_SAMPLES
from tests.attacks.inputs.gateway_samples import GATEWAY_SAMPLES
from tests.attacks.inputs.tenants import Sample, Tenant, pair, secrets
from tests.support.kubernetes import (
    endpoint,
    endpoint_slice,
    ingress,
    ingress_class,
    path,
    rule,
    service,
    service_backend,
    tls_secret,
)


def shared(namespace: str, age: int) -> list[Resource]:
    """Return what all copies of a tenant use together."""
    own = Tenant(namespace, 0, age)
    tls = {"mode": "Terminate", "certificateRefs": [{"kind": "Secret", "name": "pair"}]}
    listeners = [
        {"name": "http", "port": own.port(1), "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}},
        {"name": "https", "port": own.port(2), "protocol": "HTTPS", "hostname": f"*.{namespace}.test", "tls": tls},
        {"name": "pass", "port": own.port(3), "protocol": "TLS", "tls": {"mode": "Passthrough"}},
    ]
    return [
        own.made("Gateway", "shared", spec={"gatewayClassName": "haptic", "listeners": listeners}),
        service("app", namespace=namespace),
        endpoint_slice("app", endpoint("10.0.1.1"), ports=8080, namespace=namespace),
        *secrets(namespace, "users", "hashes", "authority"),
        tls_secret("pair", *pair(namespace), namespace=namespace, age=age),
    ]


def _plain(tenant: Tenant) -> list[Resource]:
    name, namespace = tenant.name("plain"), tenant.namespace
    host = tenant.host("plain")
    return [
        ingress(
            name,
            rule(host, path("/a", name, "http"), path("/b", name, 80, kind="Exact")),
            rule(f"*.{host}", path("/", name, kind="ImplementationSpecific")),
            namespace=namespace,
            age=tenant.age,
            tls=[{"hosts": [host], "secretName": name}],
            defaultBackend=service_backend(name),
        ),
        ingress(
            f"{name}-class",
            rule(f"class.{host}", path("/", name)),
            namespace=namespace,
            age=tenant.age,
            ingress_class=f"{namespace}-{name}",
        ),
        ingress_class(f"{namespace}-{name}", "haptic-trio/ingress-controller"),
        service(name, {"name": "http", "port": 80, "protocol": "TCP", "targetPort": "web"}, namespace=namespace),
        endpoint_slice(name, endpoint("10.0.0.1"), endpoint("10.0.0.2"), ports={"http": 8080}, namespace=namespace),
        endpoint_slice(name, endpoint("fd00::1"), ports={"http": 8080}, family="IPv6", suffix="6", namespace=namespace),
        tls_secret(name, *pair(namespace), namespace=namespace, age=tenant.age),
    ]


def _wild(tenant: Tenant) -> list[Resource]:
    """A wildcard under `spec.tls`, and a host below it that has no certificate of its own."""
    host = tenant.host("wild")
    own: dict[str, Any] = {"namespace": tenant.namespace, "age": tenant.age}
    tls = [{"hosts": [f"*.{host}"], "secretName": "pair"}]
    return [
        ingress(tenant.name("wild"), rule(f"*.{host}", path("/", "app")), tls=tls, **own),
        ingress(tenant.name("inner"), rule(f"inner.{host}", path("/", "app")), **own),
    ]


SAMPLES: Final = (Sample("plain", _plain, 120), Sample("wild", _wild, 120), *ANNOTATION_SAMPLES, *GATEWAY_SAMPLES)
