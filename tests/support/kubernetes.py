"""Builders of Kubernetes objects, as small as a test wants to see them."""

import base64
from typing import Any

from haptic_trio.k8s.resource import Resource

AGES = "2026-01-{:02}T00:00:00Z"


def meta(name: str, namespace: str = "default", *, age: int = 1, **more: Any) -> dict[str, Any]:
    """Return metadata; a higher *age* (1 to 28) is a later creation."""
    return {"name": name, "namespace": namespace, "creationTimestamp": AGES.format(age), "resourceVersion": "1", **more}


def path(path: str, service: str, port: int | str = 80, kind: str = "Prefix") -> dict[str, Any]:
    """Return a path of an Ingress rule."""
    return {"path": path, "pathType": kind, "backend": service_backend(service, port)}


def service_backend(service: str, port: int | str = 80) -> dict[str, Any]:
    """Return an IngressBackend."""
    return {"service": {"name": service, "port": {"number" if isinstance(port, int) else "name": port}}}


def rule(host: str | None, *paths: dict[str, Any]) -> dict[str, Any]:
    """Return a rule of an Ingress; *host* None is every host."""
    http = {"http": {"paths": list(paths)}}
    return http if host is None else {"host": host, **http}


def ingress(
    name: str,
    *rules: dict[str, Any],
    namespace: str = "default",
    age: int = 1,
    ingress_class: str | None = "haptic",
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Resource:
    """Return an Ingress; *spec* adds fields such as `tls` and `defaultBackend`."""
    body: dict[str, Any] = {**spec}
    if rules:
        body["rules"] = list(rules)
    if ingress_class is not None:
        body["ingressClassName"] = ingress_class
    metadata = meta(name, namespace, age=age, **({"annotations": annotations} if annotations else {}))
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": body}


def ingress_class(name: str, controller: str, *, default: bool = False) -> Resource:
    """Return an IngressClass."""
    metadata: dict[str, Any] = {"name": name, "resourceVersion": "1"}
    if default:
        metadata["annotations"] = {"ingressclass.kubernetes.io/is-default-class": "true"}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IngressClass",
        "metadata": metadata,
        "spec": {"controller": controller},
    }


def service(name: str, *ports: dict[str, Any], namespace: str = "default", **spec: Any) -> Resource:
    """Return a Service; without *ports* it has port 80, unnamed."""
    body = {"ports": list(ports) or [{"port": 80, "protocol": "TCP"}], **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta(name, namespace), "spec": body}


def endpoint(address: str, **conditions: bool) -> dict[str, Any]:
    """Return an endpoint of a slice; ready unless *conditions* say something."""
    return {"addresses": [address], "conditions": conditions or {"ready": True}}


def endpoint_slice(
    service: str,
    *endpoints: dict[str, Any],
    ports: dict[str, int] | int,
    namespace: str = "default",
    suffix: str = "1",
    family: str = "IPv4",
) -> Resource:
    """Return an EndpointSlice; *ports* is a number for an unnamed port, or numbers by name."""
    named = {"": ports} if isinstance(ports, int) else ports
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": meta(f"{service}-{suffix}", namespace, labels={"kubernetes.io/service-name": service}),
        "addressType": family,
        "ports": [{"name": name, "port": port, "protocol": "TCP"} for name, port in named.items()],
        "endpoints": list(endpoints),
    }


def tls_secret(
    name: str, certificate: bytes | str, key: bytes | str, *, namespace: str = "default", age: int = 1
) -> Resource:
    """Return a TLS Secret."""
    data = {"tls.crt": _base64(certificate), "tls.key": _base64(key)}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": meta(name, namespace, age=age),
        "data": data,
    }


def _base64(content: bytes | str) -> str:
    return base64.b64encode(content.encode() if isinstance(content, str) else content).decode()
