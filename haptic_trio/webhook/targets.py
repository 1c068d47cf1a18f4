"""Stores that an object under review would change."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from haptic_trio.config.model import Config, WatchedResource
from haptic_trio.k8s.resource import Resource, ResourceRef
from haptic_trio.k8s.selectors import FieldSelector, LabelSelector, parse_field_selector, parse_label_selector
from haptic_trio.webhook.review import Request

Replacements = dict[str, dict[ResourceRef, Resource | None]]


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One watched resource, with its selection of objects."""

    store: str
    api_version: str
    resources: str
    namespaces: tuple[str, ...]
    labels: LabelSelector
    fields: FieldSelector
    asks: bool
    """Whether the webhook reviews its objects."""

    def selects(self, resource: Resource, namespace: str) -> bool:
        """Whether *resource*, an object of the kind, is selected."""
        return (
            (not self.namespaces or namespace in self.namespaces)
            and self.labels.matches(resource)
            and self.fields.matches(resource)
        )


def targets_of(config: Config) -> tuple[Target, ...]:
    """Return the targets of all watched resources of *config*."""
    return tuple(_target(name, watched) for name, watched in config.watched_resources.items())


def find_replacements(request: Request, targets: Iterable[Target], now: datetime | None = None) -> Replacements | None:
    """Return the changes of *request* to stores; None if no watched resource requests a review.

    None as a replacement removes the object: it is deleted or no longer
    selected. *now* is the creation time of an object without one.
    """
    concerned = [
        target
        for target in targets
        if (target.api_version, target.resources) == (request.resource.api_version, request.resource.resource)
    ]
    watching = [target for target in concerned if _is_watched(target, request)]
    if not any(target.asks for target in watching):
        return None
    resource = _complete(request.object, request, now) if request.object and request.operation != "DELETE" else None
    ref = request.ref
    return {
        target.store: {ref: resource if resource and target.selects(resource, ref.namespace) else None}
        for target in watching
    }


def _target(name: str, watched: WatchedResource) -> Target:
    return Target(
        store=name,
        api_version=watched.api_version,
        resources=watched.resources,
        namespaces=watched.namespaces,
        labels=parse_label_selector(watched.label_selector),
        fields=parse_field_selector(watched.field_selector),
        asks=watched.enable_validation_webhook,
    )


def _is_watched(target: Target, request: Request) -> bool:
    states = (request.object, request.old_object)
    return any(state and target.selects(state, request.ref.namespace) for state in states)


def _complete(resource: dict[str, Any], request: Request, now: datetime | None) -> Resource:
    """Return *resource* with the metadata that it will have once it is stored."""
    metadata = resource.get("metadata") or {}
    ref = request.ref
    completed = {**metadata, "name": ref.name}
    if ref.namespace:
        completed["namespace"] = ref.namespace
    if not metadata.get("creationTimestamp"):
        completed["creationTimestamp"] = (now or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {**resource, "metadata": completed}
