"""Protocol of a cluster client, for an API server and for a directory of manifests."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

import msgspec

from haptic_trio.errors import HapticError, Problem
from haptic_trio.k8s.resource import Resource, ResourceRef, ResourceType

Report: TypeAlias = Callable[[str, tuple[Problem, ...]], None]
"""Told a source (a file, a watch) and its problems whenever these are other than before; none: all are solved.

Called on the event loop; must not block.
"""


Reduce: TypeAlias = Callable[[Resource], Resource]
"""Returns what to keep of an object: something with the same identity, and no less than its reader will use."""


class NotFoundError(HapticError):
    """The object is not there; trying again helps once somebody has created it."""

    def __init__(self, ref: ResourceRef) -> None:
        self.ref = ref
        super().__init__(f"{ref} not found")


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which objects of a type to watch."""

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
    """Applied to each object as soon as it is there, so that no more is ever held; None keeps it as it is."""


class Listed(msgspec.Struct, frozen=True):
    """Everything that is selected now; what is not in it has been deleted."""

    objects: tuple[Resource, ...]


class Upserted(msgspec.Struct, frozen=True):
    """The object is new or has changed."""

    object: Resource


class Deleted(msgspec.Struct, frozen=True):
    """The object is gone; carries its last known state."""

    object: Resource


WatchEvent: TypeAlias = Listed | Upserted | Deleted


class Client(Protocol):
    """A cluster. Every method may be called from several tasks at once."""

    def watch(self, selection: Selection) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """Follow the selected objects.

        The first event is always `Listed`; another `Listed` may come at any
        time and replaces everything. The iterator ends only with the
        cluster; interruptions are bridged within.
        """
        ...

    async def get(self, resource_type: ResourceType, namespace: str, name: str) -> Resource:
        """Return one object, or raise `NotFoundError`."""
        ...
