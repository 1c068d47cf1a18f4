"""Desired status of objects: its sources, and the comparison with the observed status. No I/O.

A status is written by server-side apply with a field manager of our own, so
what others have written there stays, except in lists that the API takes as
one value. For those the source must return the entries of others, too, and
say so by `is_shared`: then only the very version is replaced that it was
computed from.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from haptic_trio.k8s.resource import Resource, ResourceRef, version_of

FIELD_MANAGER: Final = "haptic-trio"

Status = Mapping[str, Any]


class StatusKey(msgspec.Struct, frozen=True, order=True):
    """One object whose status is looked after."""

    source: str
    """Name of the `StatusSource`."""
    ref: ResourceRef


class StatusSource(Protocol):
    """Library code that says what the status of the objects of one kind should be; pure, fast, called on the loop."""

    @property
    def name(self) -> str:
        """Unique among the sources."""
        ...

    @property
    def store(self) -> str:
        """The store that holds the objects."""
        ...

    @property
    def inputs(self) -> Sequence[str]:
        """Other stores that the wishes depend on: when one of them changes, every object is looked at again."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether `wanted` returns what is others', too."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether it is known yet what is wanted; until then nothing is compared."""
        ...

    def wanted(self, resource: Resource) -> Status | None:
        """Return the status fields that should be there, those of ours alone unless `is_shared`.

        None: the object is none of ours.
        """
        ...

    def related(self) -> Collection[ResourceRef]:
        """Return the objects that are to be looked at again when others of `store` change."""
        ...

    def is_left_over(self, resource: Resource) -> bool:
        """Whether the status of an object that is none of ours may hold what we have written when it was."""
        ...


def is_fulfilled(present: Any, wanted: Any) -> bool:
    """Whether *present* holds all of *wanted*.

    Fields that are not wanted may be there; lists are equal or, where the
    items are conditions (they have a `type`), hold the wanted ones.
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
            return all(is_fulfilled(by_type.get(item["type"]), item) for item in wanted)
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
    """Return what is applied so that *resource* has *status*; None takes back all of ours.

    With *exact* the server refuses it for any other version of the object.
    It is refused in any case for another object of the same name.
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
