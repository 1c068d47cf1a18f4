"""Builders of small resources and manifests."""

from typing import Any

from haptic_trio.k8s.resource import Resource, ResourceRef, ResourceType

SERVICES = ResourceType("v1", "services")
INGRESSES = ResourceType("networking.k8s.io/v1", "ingresses")


def service(name: str, namespace: str = "default", version: str = "1", **fields: Any) -> Resource:
    """Return a Service; *fields* are added at the top level."""
    metadata = {"name": name, "namespace": namespace, "resourceVersion": version}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, **fields}


def service_ref(name: str, namespace: str = "default") -> ResourceRef:
    """Return the reference of `service(name, namespace)`."""
    return ResourceRef("Service", namespace, name)


def service_manifest(name: str, port: int = 80, extra: str = "") -> str:
    """Return the YAML of a Service."""
    return f"apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n{extra}spec:\n  ports:\n  - port: {port}\n"
