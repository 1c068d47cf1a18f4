"""Builders of what the tests of the cluster create, as small as a test wants to see it."""

from typing import Any

from haptic_trio.k8s.resource import Resource

PORT = 8080


def echo_container(**more: Any) -> dict[str, Any]:
    """Return a container of the echo backend, which is probed often."""
    probe = {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 1, "failureThreshold": 1}
    ports = [{"name": "http", "containerPort": PORT}]
    return {"name": "echo", "image": "registry.test/echo:1", "ports": ports, "readinessProbe": probe, **more}


def pod(name: str, *containers: dict[str, Any], labels: dict[str, str] | None = None, **spec: Any) -> Resource:
    """Return a Pod; with no *containers* it has one of the echo backend."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {"app": name}},
        "spec": {"containers": list(containers) or [echo_container()], "terminationGracePeriodSeconds": 2, **spec},
    }


def deployment(name: str, replicas: int, *containers: dict[str, Any], **spec: Any) -> Resource:
    """Return a Deployment whose Pods have the label `app` with *name*."""
    template = pod(name, *containers, **spec)
    body = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": template["spec"]},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": body}


def service(name: str, **spec: Any) -> Resource:
    """Return a Service in front of the Pods with the label `app` of that name."""
    ports = [{"name": "http", "port": 80, "targetPort": "http"}]
    body = {"selector": {"app": name}, "ports": ports, **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": body}


def secret(name: str, **data: str) -> Resource:
    """Return a Secret."""
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}
