"""Desired status of objects: its sources, and the comparison with the observed status. No I/O.

A status is written by server-side apply with the field manager `haptic-trio`,
so fields of other managers stay, except in atomic lists. For those the source
must include the entries of other controllers and set `is_shared`: then only
the version is replaced from which the status was computed.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from haptic_trio.k8s.resource import Resource, ResourceRef, version_of

FIELD_MANAGER: Final = "haptic-trio"

OCCASIONAL_CONDITIONS: Final = frozenset({"InsecureFrontendValidationMode", "OverlappingTLSConfig", "PartiallyInvalid"})
"""Types of conditions that are written only while they are true: one that is no longer desired has to be removed."""

Status = Mapping[str, Any]


class StatusKey(msgspec.Struct, frozen=True, order=True):
    """An object whose status is managed, and the source of it."""

    source: str
    """Name of the `StatusSource`."""
    ref: ResourceRef


class StatusSource(Protocol):
    """Computes the desired status of objects of one kind. Pure and fast: called on the event loop."""

    @property
    def name(self) -> str:
        """Name, unique among the sources."""
        ...

    @property
    def store(self) -> str:
        """Store that holds the objects."""
        ...

    @property
    def inputs(self) -> Sequence[str]:
        """Other stores that the desired status depends on: when one changes, every object is compared again."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether `wanted` includes entries of other controllers."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether the desired status is known yet; until then nothing is compared."""
        ...

    def wanted(self, resource: Resource) -> Status | None:
        """Return the desired status fields that haptic-trio owns; with `is_shared`, also those of others.

        None: haptic-trio does not manage the object.
        """
        ...

    def related(self) -> Collection[ResourceRef]:
        """Return the objects to compare again when other objects of `store` change."""
        ...

    def is_left_over(self, resource: Resource) -> bool:
        """Whether the status of an object that is no longer managed may still have fields of haptic-trio."""
        ...


def is_fulfilled(present: Any, wanted: Any) -> bool:
    """Whether *present* holds all of *wanted*.

    *present* may have more fields. Lists must be equal; lists of conditions
    (items with a `type`) may have more conditions, but no occasional ones.
    """
    if isinstance(wanted, Mapping):
        if not isinstance(present, Mapping):
            # An absent mapping is an empty one.
            return present is None and all(is_fulfilled(None, value) for value in wanted.values())
        return all(is_fulfilled(present.get(field), value) for field, value in wanted.items())
    if isinstance(wanted, list | tuple):
        found = present if isinstance(present, list | tuple) else ()
        if wanted and all(_is_condition(item) for item in wanted):
            by_type = {item.get("type"): item for item in found if isinstance(item, Mapping)}
            left = (by_type.keys() & OCCASIONAL_CONDITIONS) - {item["type"] for item in wanted}
            return not left and all(is_fulfilled(by_type.get(item["type"]), item) for item in wanted)
        return len(found) == len(wanted) and all(map(is_fulfilled, found, wanted))
    return bool(present == wanted)


def merge_conditions(present: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]], now: str) -> list[Any]:
    """Return *wanted* with `lastTransitionTime`: that of the present one of the same type and status, else *now*."""
    by_type = {condition.get("type"): condition for condition in present}
    merged = []
    for condition in wanted:
        before = by_type.get(condition["type"], {})
        is_same = before.get("status") == condition["status"] and before.get("lastTransitionTime")
        merged.append({**condition, "lastTransitionTime": before["lastTransitionTime"] if is_same else now})
    return merged


def application_of(resource: Resource, status: Status | None, *, exact: bool) -> Resource:
    """Return the object to apply so that *resource* has *status*; None removes all owned fields.

    With *exact*, the server rejects it for any other version of the object. It
    always rejects it for another object of the same name.
    """
    metadata = resource["metadata"]
    named = {field: metadata[field] for field in ("name", "namespace", "uid") if metadata.get(field)}
    version = {"resourceVersion": version_of(resource)} if exact else {}
    application: Resource = {
        "apiVersion": resource["apiVersion"],
        "kind": resource["kind"],
        "metadata": {**named, **version},
    }
    return application if status is None else {**application, "status": dict(status)}


def _is_condition(item: object) -> bool:
    return isinstance(item, Mapping) and isinstance(item.get("type"), str) and "status" in item
