"""Routes of the in-process API server: the answer to each path."""

import secrets
from typing import Any

import msgspec

from haptic_trio.k8s.resource import Resource
from tests.support.api_server.faults import Faults
from tests.support.api_server.http import Answer, Request, Streamed
from tests.support.api_server.kinds import (
    describe_core,
    describe_group,
    describe_groups,
    describe_resources,
)
from tests.support.api_server.patch import Owners, apply, merge, note_update
from tests.support.api_server.state import Collection, Place, State, StatusError, Stored, not_found
from tests.support.api_server.watch import Filter, Watch, WatchSet, list_page

_CODECS = {"application/merge-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml"}


class Target(msgspec.Struct, kw_only=True):
    """What a path is about."""

    collection: Collection
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def place(self) -> Place:
        """Where the object is."""
        return (self.namespace, self.name)


class Routes:
    """The API over a state."""

    def __init__(self, state: State, faults: Faults, watches: WatchSet) -> None:
        self.state = state
        self.faults = faults
        self.watches = watches
        self.bookmark_interval = 60.0
        self._owners: dict[tuple[Any, Place], Owners] = {}

    async def answer(self, request: Request) -> Answer | Streamed:
        """Answer *request*; raises `StatusError`."""
        parts = [part for part in request.path.split("/") if part]
        if parts == ["readyz"]:
            await self.faults.before_probe()
            return Answer(body=b"ok")
        if parts[:1] not in (["api"], ["apis"]):
            return _json({"major": "1", "minor": "34", "gitVersion": "v1.34.0"}) if parts == ["version"] else _json({})
        depth = 2 if parts[0] == "api" else 3
        if len(parts) <= depth:
            await self.faults.before("")
            return _json(self._describe(parts))
        target = self._target("/".join(parts[1:depth]), parts[depth:])
        await self.faults.before(target.collection.info.type.plural, is_continued="continue" in request.query)
        if request.method == "GET":
            return self._read(target, request)
        return self._write(target, request)

    def _describe(self, parts: list[str]) -> dict[str, Any]:
        kinds = list(self.state.kinds())
        match parts:
            case ["api"]:
                return describe_core()
            case ["apis"]:
                return describe_groups(kinds)
            case ["apis", group]:
                found = describe_group(kinds, group)
            case _:
                found = describe_resources(kinds, "/".join(parts[1:]))
        if found is None:
            raise _no_path()
        return found

    def _target(self, api_version: str, rest: list[str]) -> Target:
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2 and rest[2] != "status":
            namespace, rest = rest[1], rest[2:]
        for resource_type, collection in self.state.collections.items():
            if resource_type.api_version == api_version and resource_type.plural == rest[0]:
                name, subresource = [*rest[1:], "", ""][:2]
                return Target(collection=collection, namespace=namespace, name=name, subresource=subresource)
        raise _no_path()

    def _read(self, target: Target, request: Request) -> Answer | Streamed:
        collection, query = target.collection, request.query
        if target.name:
            if target.name in self.faults.unreadable:
                raise StatusError(403, "Forbidden", f'{target.collection.info.qualified} "{target.name}" is forbidden')
            return Answer(body=self._stored(target).encoded)
        accepted = request.headers.get("accept", "") if self.faults.partial_metadata else ""
        wanted = Filter(collection.info, target.namespace, query, accepted)
        if query.get("watch") not in {"true", "1"}:
            return Answer(body=list_page(self.state, collection, wanted, query))
        watch = Watch(self.state, collection, wanted, query, self.faults, self.watches)
        return Streamed(chunks=watch.chunks(self.bookmark_interval))

    def _stored(self, target: Target) -> Stored:
        stored = target.collection.objects.get(target.place)
        if stored is None:
            raise not_found(target.collection.info, target.name)
        return stored

    def _write(self, target: Target, request: Request) -> Answer:
        content = msgspec.json.decode(request.body) if request.body else {}
        match request.method:
            case "POST":
                return Answer(status=201, body=self._create(target, content).encoded)
            case "PUT":
                return Answer(body=self._replace(target, content, request).encoded)
            case "PATCH":
                return Answer(body=self._patch(target, content, request).encoded)
            case "DELETE":
                return _json(self._delete(target, content))
        raise StatusError(405, "MethodNotAllowed", f"{request.method} is not allowed here")

    def _create(self, target: Target, content: Resource) -> Stored:
        info = target.collection.info
        metadata = dict(content.get("metadata") or {})
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = f"{metadata['generateName']}{secrets.token_hex(3)[:5]}"
        if not metadata.get("name"):
            raise StatusError(422, "Invalid", f'{info.qualified} "" is invalid: metadata.name: Required value')
        if metadata.get("resourceVersion"):
            raise StatusError(400, "BadRequest", "resourceVersion should not be set on objects to be created")
        if info.is_namespaced:
            metadata["namespace"] = target.namespace
        if (target.namespace if info.is_namespaced else "", metadata["name"]) in target.collection.objects:
            raise StatusError(409, "AlreadyExists", f'{info.qualified} "{metadata["name"]}" already exists')
        kept = {field: value for field, value in content.items() if field != "status" or not info.has_status}
        return self._store(target.collection, {**kept, "metadata": metadata}, None)

    def _replace(self, target: Target, content: Resource, request: Request) -> Stored:
        before = self._stored(target)
        metadata = content.get("metadata") or {}
        asked = metadata.get("resourceVersion")
        if metadata.get("name") != target.name:
            raise StatusError(400, "BadRequest", "the name of the object does not match the name on the URL")
        if asked and asked != before.resource["metadata"]["resourceVersion"]:
            raise StatusError(409, "Conflict", f'"{target.name}": the object has been modified; try again')
        stored = self._store(target.collection, self._as_allowed(target, before.resource, content), before)
        owners = self._owners.setdefault((target.collection.info.type, target.place), {})
        note_update(owners, before.resource, stored.resource, request.query.get("fieldManager", "update"))
        return stored

    def _patch(self, target: Target, patch: Resource, request: Request) -> Stored:
        codec = request.headers.get("content-type", "")
        if codec not in _CODECS:
            raise StatusError(415, "UnsupportedMediaType", f"{codec} is not supported")
        before = target.collection.objects.get(target.place)
        owners = self._owners.setdefault((target.collection.info.type, target.place), {})
        manager = request.query.get("fieldManager", "")
        if codec != "application/apply-patch+yaml":
            before = self._stored(target)
            wanted = merge(before.resource, patch)
            asked = (patch.get("metadata") or {}).get("resourceVersion")
            if asked and asked != before.resource["metadata"]["resourceVersion"]:
                raise StatusError(409, "Conflict", f'"{target.name}": the object has been modified; try again')
            stored = self._store(target.collection, self._as_allowed(target, before.resource, wanted), before)
            note_update(owners, before.resource, stored.resource, manager or "update")
            return stored
        if not manager:
            raise StatusError(422, "Invalid", "PatchOptions is invalid: fieldManager: Required value")
        if before is None and target.subresource:
            raise not_found(target.collection.info, target.name)
        current = before.resource if before is not None else None
        force = request.query.get("force") == "true"
        wanted = apply(current, patch, owners, manager, force=force)
        if current is None:
            return self._create(target, wanted)
        return self._store(target.collection, self._as_allowed(target, current, wanted), before)

    def _delete(self, target: Target, options: dict[str, Any]) -> dict[str, Any]:
        stored = self._stored(target)
        metadata = stored.resource["metadata"]
        for field, expected in (options.get("preconditions") or {}).items():
            if metadata[field] != expected:
                raise StatusError(409, "Conflict", f"the {field} in the precondition does not match")
        self.state.remove(target.collection, target.place)
        self._owners.pop((target.collection.info.type, target.place), None)
        return {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    @staticmethod
    def _as_allowed(target: Target, before: Resource, wanted: Resource) -> Resource:
        """Return *wanted* with what this path may not change as it was *before*."""
        if target.subresource == "status":
            return {**before, **({"status": wanted["status"]} if "status" in wanted else {})}
        if target.collection.info.has_status:
            wanted = {field: value for field, value in wanted.items() if field != "status"}
            return {**wanted, **({"status": before["status"]} if "status" in before else {})}
        return wanted

    def _store(self, collection: Collection, resource: Resource, before: Stored | None) -> Stored:
        if before is not None and _same(before.resource, resource):
            # A write that changes nothing makes no version and no event.
            return before
        return self.state.write(collection, resource)


def _same(left: Resource, right: Resource) -> bool:
    given = ("resourceVersion", "managedFields", "uid", "creationTimestamp", "generation")

    def plain(resource: Resource) -> Resource:
        metadata = {key: value for key, value in resource["metadata"].items() if key not in given}
        return {**resource, "metadata": metadata}

    return plain(left) == plain(right)


def _no_path() -> StatusError:
    return StatusError(404, "NotFound", "the server could not find the requested resource")


def _json(content: object) -> Answer:
    return Answer(body=msgspec.json.encode(content))
