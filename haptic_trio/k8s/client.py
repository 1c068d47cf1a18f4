"""Protocol of a cluster client, for an API server and for a directory of manifests."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

import msgspec

from haptic_trio.errors import HapticError, Problem
from haptic_trio.k8s.resource import Resource, ResourceRef, ResourceType

Report: TypeAlias = Callable[[str, tuple[Problem, ...]], None]
"""Receives a source (a file, a watch) and its problems each time that they change; no problems: all are solved.

Called on the event loop; must not block.
"""


Reduce: TypeAlias = Callable[[Resource], Resource]
"""Returns the part of an object to keep, with the same identity and every field that the reader uses."""


class NotFoundError(HapticError):
    """The object does not exist; trying again helps once it is created."""

    def __init__(self, ref: ResourceRef) -> None:
        self.ref = ref
        super().__init__(f"{ref} not found")


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Selection of objects of a type for a watch."""

    type: ResourceType
    namespaces: tuple[str, ...] = ()
    """Empty: all namespaces."""
    label_selector: str = ""
    """Kubernetes label selector syntax, such as `app=web,tier in (a, b)`."""
    field_selector: str = ""
    """Kubernetes field selector syntax: `metadata.name=x`, `metadata.namespace!=y`, `spec.foo=bar`, comma separated."""
    metadata_is_enough: bool = False
    """The reader uses nothing but apiVersion, kind and metadata; a cluster may leave out the rest, or not."""
    reduce: Reduce | None = None
    """Applied to each object as soon as it is decoded, to save memory; None keeps the whole object."""


class Listed(msgspec.Struct, frozen=True):
    """All selected objects; objects that are not in it have been deleted."""

    objects: tuple[Resource, ...]


class Upserted(msgspec.Struct, frozen=True):
    """The object is new or has changed."""

    object: Resource


class Deleted(msgspec.Struct, frozen=True):
    """The object is deleted; carries its last known state."""

    object: Resource


class Listing(msgspec.Struct, frozen=True):
    """Amount that has been read of all lists of a cluster since the start, whether they are complete or not."""

    done: int
    """Objects, or bytes of manifests; a larger number means progress."""
    total: int = 0
    """Bytes of all manifests; 0 for objects, whose number is unknown."""

    def __str__(self) -> str:
        if self.total:
            return f"read {self.done / 1e6:,.1f} of {self.total / 1e6:,.1f} MB of manifests"
        return f"listed {self.done:,} objects" if self.done else ""


WatchEvent: TypeAlias = Listed | Upserted | Deleted


class Client(Protocol):
    """A cluster. Every method may be called from several tasks at once."""

    def watch(self, selection: Selection) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """Follow the selected objects.

        The first event is always `Listed`; another `Listed` may come at any
        time and replaces everything. The iterator ends only with the
        cluster: the client reconnects after interruptions.
        """
        ...

    @property
    def listing(self) -> Listing:
        """Amount that has been listed so far."""
        ...

    async def get(self, resource_type: ResourceType, namespace: str, name: str) -> Resource:
        """Return one object, or raise `NotFoundError`."""
        ...
