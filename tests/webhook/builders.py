"""Reviews, as small as a test wants to see them."""

from typing import Any

import msgspec

from haptic_trio.errors import Problem
from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline.review.dry_run import Fault
from haptic_trio.templating.values.subjects import Subject
from haptic_trio.webhook.review import Request, decode_review

INGRESSES = {"group": "networking.k8s.io", "version": "v1", "resource": "ingresses"}


def review_of(resource: Resource | None, *, old: Resource | None = None, dry_run: bool = False) -> dict[str, Any]:
    """Return the review of a change to an Ingress `web`; one without *resource* is a deletion."""
    operation = "DELETE" if resource is None else "UPDATE" if old is not None else "CREATE"
    request = {
        "uid": "u-1",
        "kind": {"group": "networking.k8s.io", "version": "v1", "kind": "Ingress"},
        "resource": INGRESSES,
        "name": "web",
        "namespace": "default",
        "operation": operation,
        "object": resource,
        "oldObject": old,
        "dryRun": dry_run,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def body_of(review: Any) -> bytes:
    """Return *review* as it is sent."""
    return msgspec.json.encode(review)


def request_of(resource: Resource | None, *, old: Resource | None = None, dry_run: bool = False) -> Request:
    """Return the request of `review_of`."""
    return decode_review(body_of(review_of(resource, old=old, dry_run=dry_run)))


def web(**metadata: Any) -> Resource:
    """Return an Ingress `web`."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": "web", "namespace": "default", **metadata},
        "spec": {},
    }


def fault(
    message: str,
    kind: str = "Ingress",
    name: str = "web",
    *,
    namespace: str = "default",
    phase: str = "render",
    known: bool = False,
    line: int = 0,
) -> Fault:
    """Return a fault of an object."""
    subject = Subject(kind, namespace, name) if kind else None
    return Fault(phase=phase, problem=Problem(message=message, line=line), subject=subject, is_known=known)
