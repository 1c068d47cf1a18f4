"""State of the in-process API server: objects, one version counter, and a log of changes for watches."""

import uuid
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

import msgspec
import trio

from haptic_trio.k8s.resource import Resource, ResourceType
from tests.support.api_server.kinds import KindInfo, default_kinds, kinds_of_definition

Place = tuple[str, str]
"""Namespace and name."""

_LOG_LENGTH = 100_000


class StatusError(Exception):
    """An answer other than success, as a Status object."""

    def __init__(self, code: int, reason: str, message: str, *, retry_after: int | None = None) -> None:
        self.code = code
        self.reason = reason
        self.retry_after = retry_after
        super().__init__(message)

    def status(self) -> dict[str, Any]:
        """Return the Status object."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "code": self.code,
        }


def not_found(info: KindInfo, name: str) -> StatusError:
    """Return the answer for an object that is not there."""
    return StatusError(404, "NotFound", f'{info.qualified} "{name}" not found')


class Stored:
    """An object as it is kept, with its JSON made when first asked for."""

    __slots__ = ("_encoded", "_item", "is_custom", "resource", "version")

    def __init__(self, resource: Resource, version: int, *, is_custom: bool) -> None:
        self.resource = resource
        self.version = version
        self.is_custom = is_custom
        self._encoded: bytes | None = None
        self._item: bytes | None = None

    @property
    def encoded(self) -> bytes:
        """The object on its own."""
        if self._encoded is None:
            self._encoded = msgspec.json.encode(self.resource)
        return self._encoded

    @property
    def partial(self) -> bytes:
        """Its metadata alone."""
        named = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
        return msgspec.json.encode({**named, "metadata": self.resource["metadata"]})

    @property
    def item(self) -> bytes:
        """The object in a list: the server leaves out what the list says, except for custom kinds."""
        if self.is_custom:
            return self.encoded
        if self._item is None:
            fields = {key: value for key, value in self.resource.items() if key not in {"kind", "apiVersion"}}
            self._item = msgspec.json.encode(fields)
        return self._item


class Entry(msgspec.Struct, frozen=True):
    """A change: an object before and after."""

    version: int
    old: Stored | None
    new: Stored | None


class Collection:
    """All objects of one kind."""

    def __init__(self, info: KindInfo) -> None:
        self.info = info
        self.objects: dict[Place, Stored] = {}
        self.log: list[Entry] = []
        self.compacted = 0
        """The newest version that can no longer be watched from."""
        self.changed = trio.Event()

    def places(self) -> list[Place]:
        """Return the places of all objects, in order."""
        return sorted(self.objects)

    def since(self, version: int) -> list[Entry]:
        """Return the changes after *version*."""
        return self.log[bisect_right(self.log, version, key=lambda entry: entry.version) :]

    def note(self, entry: Entry) -> None:
        """Append to the log and wake the watches."""
        self.log.append(entry)
        if len(self.log) > _LOG_LENGTH:
            self.compacted = self.log[_LOG_LENGTH // 2].version
            del self.log[: _LOG_LENGTH // 2 + 1]
        self.wake()

    def wake(self) -> None:
        """Wake the watches."""
        self.changed.set()
        self.changed = trio.Event()


class State:
    """Everything that outlives a restart of the server."""

    def __init__(self) -> None:
        self.version = 1
        self.collections: dict[ResourceType, Collection] = {}
        for info in default_kinds():
            self.serve(info)

    def kinds(self) -> Iterator[KindInfo]:
        """Yield every kind that is served."""
        return (collection.info for collection in self.collections.values())

    def serve(self, info: KindInfo) -> None:
        """Begin to serve a kind, without objects."""
        if info.type not in self.collections:
            collection = self.collections[info.type] = Collection(info)
            collection.compacted = self.version - 1

    def drop(self, resource_type: ResourceType) -> None:
        """Delete all objects of a kind, then serve it no longer."""
        collection = self.collections[resource_type]
        for place in collection.places():
            self.remove(collection, place)
        del self.collections[resource_type]
        collection.wake()

    def collection_of(self, resource: Resource) -> Collection:
        """Return where *resource* belongs."""
        for collection in self.collections.values():
            info = collection.info
            if info.type.api_version == resource["apiVersion"] and info.kind == resource["kind"]:
                return collection
        raise StatusError(404, "NotFound", f"no kind {resource['kind']} in {resource['apiVersion']}")

    def write(self, collection: Collection, resource: Resource) -> Stored:
        """Store *resource* as it is, but for the metadata that the server gives."""
        info = collection.info
        metadata = resource["metadata"]
        place = (metadata.get("namespace", "") if info.is_namespaced else "", metadata["name"])
        old = collection.objects.get(place)
        self.version += 1
        before = old.resource["metadata"] if old else {}
        metadata = {
            **metadata,
            "uid": before.get("uid") or str(uuid.uuid4()),
            "creationTimestamp": before.get("creationTimestamp")
            or metadata.get("creationTimestamp")
            or "2026-01-01T00:00:00Z",
            "generation": before.get("generation", 0) + (old is None or _desired(resource) != _desired(old.resource)),
            "resourceVersion": str(self.version),
            "managedFields": [{"manager": "tests", "operation": "Update", "fieldsV1": {"f:spec": {}}}],
        }
        if not info.is_namespaced:
            metadata.pop("namespace", None)
        new = Stored({**resource, "metadata": metadata}, self.version, is_custom=info.is_custom)
        collection.objects[place] = new
        if info.kind == "CustomResourceDefinition":
            for defined in kinds_of_definition(new.resource):
                self.serve(defined)
        collection.note(Entry(self.version, old, new))
        return new

    def remove(self, collection: Collection, place: Place) -> Stored:
        """Delete an object; return its last state, with the version of its deletion."""
        old = collection.objects.pop(place)
        self.version += 1
        metadata = {**old.resource["metadata"], "resourceVersion": str(self.version)}
        last = Stored({**old.resource, "metadata": metadata}, self.version, is_custom=old.is_custom)
        collection.note(Entry(self.version, last, None))
        if collection.info.kind == "CustomResourceDefinition":
            for defined in kinds_of_definition(old.resource):
                if defined.type in self.collections:
                    self.drop(defined.type)
        return last

    def compact(self) -> None:
        """Forget all changes: watches that are not up to date are expired."""
        # So that no list that was made before is new enough.
        self.version += 1
        for collection in self.collections.values():
            collection.compacted = self.version - 1
            collection.log.clear()


def _desired(resource: Resource) -> Resource:
    return {field: value for field, value in resource.items() if field not in {"metadata", "status"}}
