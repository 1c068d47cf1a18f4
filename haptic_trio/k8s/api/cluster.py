"""Cluster client for a Kubernetes API server: watches, reads, and writes at a low rate."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
import trio

from haptic_trio.errors import INVALID_JSON, Problem
from haptic_trio.k8s.api.auth import Load
from haptic_trio.k8s.api.connection import JSON, Connection, MakeClient, make_client
from haptic_trio.k8s.api.decode import decode_object
from haptic_trio.k8s.api.discovery import Discovery, ServedKind
from haptic_trio.k8s.api.watch_counts import WatchCounts
from haptic_trio.k8s.api.watching import KindWatch, Pace, Streaming
from haptic_trio.k8s.client import Listing, NotFoundError, Report, Selection, WatchEvent
from haptic_trio.k8s.errors import AbsentKindError, MissingError, ServerFailedError
from haptic_trio.k8s.resource import Resource, ResourceRef, ResourceType
from haptic_trio.k8s.watch_feed import Feed, NamespaceMerge


class ApiCluster:
    """A `Client` over an API server, with what writing needs beside it.

    Watches never end and never fail: problems go to *report*
    under the name of the watch, and again without problems when it is over.
    Every other method raises `ApiError`, whose subclasses say whether trying
    again helps. To be used while `run` runs.
    """

    def __init__(
        self,
        load: Load,
        *,
        report: Report,
        pace: Pace = Pace(),  # noqa: B008  immutable
        stream_lists: bool = True,
        make_client: MakeClient = make_client,
    ) -> None:
        """*load* is called at the start and whenever the credentials have changed or were rejected."""
        self.counts = WatchCounts()
        self._connection = Connection(load, make_client=make_client)
        self._discovery = Discovery(self._connection)
        self._streaming = Streaming(is_possible=stream_lists)
        self._report = report
        self._pace = pace
        self._feeds: set[Feed] = set()
        self._opened = trio.Event()
        self._ended = False

    @property
    def requests(self) -> int:
        """Number of requests sent to the API server."""
        return self._connection.requests

    @property
    def listing(self) -> Listing:
        """See `Client.listing`."""
        return Listing(self.counts.listed)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the connection until cancelled; to be called once.

        started() means that there are credentials, not that the server
        answers. Raises `CredentialsError`. Ends all watches when it ends.
        """
        try:
            await self._connection.open()
            self._opened.set()
            task_status.started()
            await self._connection.outage.run(self._probe)
        finally:
            self._ended = True
            self._opened.set()
            for feed in self._feeds:
                feed.close()
            with trio.move_on_after(1, shield=True):
                await self._connection.aclose()

    async def wait_recovered(self) -> None:
        """Return when the next outage of the API server has ended."""
        await self._connection.outage.wait_over()

    @asynccontextmanager
    async def watch(self, selection: Selection) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """See `Client.watch`; the iterator is a `Drainable`. Raises `SelectorError`."""
        await self._opened.wait()
        feed = Feed()
        namespaces = tuple(dict.fromkeys(selection.namespaces)) or ("",)
        merge = NamespaceMerge(namespaces)
        problems: dict[str, tuple[Problem, ...]] = {}
        source = f"API server, {selection.type}"

        async def publish(namespace: str, events: list[WatchEvent]) -> None:
            await feed.put(merge.take(namespace, events) if len(namespaces) > 1 else events)

        def report(namespace: str, found: tuple[Problem, ...]) -> None:
            problems[namespace] = found
            self._report(source, tuple(problem for each in problems.values() for problem in each))

        watches = [
            KindWatch(
                self._connection,
                self._discovery,
                self._streaming,
                selection,
                namespace,
                publish=partial(publish, namespace),
                report=partial(report, namespace),
                pace=self._pace,
                counts=self.counts,
            )
            for namespace in namespaces
        ]
        if self._ended:
            feed.close()
        self._feeds.add(feed)
        try:
            async with trio.open_nursery() as nursery:
                for each in watches if not self._ended else ():
                    nursery.start_soon(each.run)
                yield feed
                nursery.cancel_scope.cancel(reason="the reader of the watch has left")
        finally:
            self._feeds.discard(feed)
            if any(problems.values()):
                self._report(source, ())

    async def get(self, resource_type: ResourceType, namespace: str, name: str) -> Resource:
        """See `Client.get`; raises `NotFoundError` also for a kind that is not served."""
        await self._opened.wait()
        ref = ResourceRef(resource_type.plural, namespace, name)
        try:
            served = await self._discovery.find(resource_type)
        except AbsentKindError as error:
            raise NotFoundError(ref) from error
        return await self._send("GET", served, ref)

    async def create(self, resource: Resource) -> Resource:
        """Create *resource* and return it as it is stored.

        Raises `AlreadyExistsError`. `metadata.generateName` works.
        """
        served, ref = await self._locate(resource)
        return await self._send("POST", served, ref, resource, path=served.path(ref.namespace))

    async def replace(self, resource: Resource, *, subresource: str = "") -> Resource:
        """Replace the stored object and return the new one.

        With a resourceVersion in *resource* only that version is replaced,
        else `ConflictError` is raised. *subresource* may be `status`.
        Raises `NotFoundError`.
        """
        served, ref = await self._locate(resource)
        return await self._send("PUT", served, ref, resource, path=served.path(ref.namespace, ref.name, subresource))

    async def apply(
        self, resource: Resource, *, field_manager: str, force: bool = False, subresource: str = ""
    ) -> Resource:
        """Set and own the fields of *resource* by server-side apply; return the stored object.

        Creates an object that is not there. Raises `ConflictError` when
        another manager owns a field and *force* is not set.
        """
        served, ref = await self._locate(resource)
        params = {"fieldManager": field_manager, "force": "true" if force else "false"}
        return await self._send(
            "PATCH",
            served,
            ref,
            resource,
            path=served.path(ref.namespace, ref.name, subresource),
            params=params,
            # JSON is YAML.
            content_type="application/apply-patch+yaml",
        )

    async def patch_status(
        self, resource_type: ResourceType, namespace: str, name: str, status: Mapping[str, Any]
    ) -> Resource:
        """Merge *status* into the object's status and return the stored object; raises `NotFoundError`."""
        served = await self._served(resource_type)
        return await self._send(
            "PATCH",
            served,
            ResourceRef(resource_type.plural, namespace, name),
            {"status": status},
            path=served.path(namespace, name, "status"),
            content_type="application/merge-patch+json",
        )

    async def delete(
        self, resource_type: ResourceType, namespace: str, name: str, *, uid: str = "", version: str = ""
    ) -> None:
        """Delete one object; given *uid* or *version*, only that one, else `ConflictError`. Raises `NotFoundError`."""
        served = await self._served(resource_type)
        preconditions = {"uid": uid, "resourceVersion": version}
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid or version:
            options["preconditions"] = {field: value for field, value in preconditions.items() if value}
        await self._request("DELETE", served, ResourceRef(resource_type.plural, namespace, name), options)

    async def _locate(self, resource: Resource) -> tuple[ServedKind, ResourceRef]:
        await self._opened.wait()
        served = await self._discovery.find_kind(resource["apiVersion"], resource["kind"])
        metadata = resource["metadata"]
        return served, ResourceRef(served.type.plural, metadata.get("namespace", ""), metadata.get("name", ""))

    async def _served(self, resource_type: ResourceType) -> ServedKind:
        await self._opened.wait()
        return await self._discovery.find(resource_type)

    async def _send(
        self,
        method: str,
        served: ServedKind,
        ref: ResourceRef,
        content: object = None,
        *,
        path: str = "",
        params: Mapping[str, str] | None = None,
        content_type: str = JSON,
    ) -> Resource:
        body = await self._request(method, served, ref, content, path=path, params=params, content_type=content_type)
        try:
            return decode_object(body, served)
        except INVALID_JSON as error:
            raise ServerFailedError(f"{method} {ref}", f"the answer is not an object: {error}") from error

    async def _probe(self) -> None:
        await self._connection.request("GET", "/readyz", what="probe the API server", accept="text/plain")

    async def _request(
        self,
        method: str,
        served: ServedKind,
        ref: ResourceRef,
        content: object = None,
        *,
        path: str = "",
        params: Mapping[str, str] | None = None,
        content_type: str = JSON,
    ) -> bytes:
        try:
            return await self._connection.request(
                method,
                path or served.path(ref.namespace, ref.name),
                what=f"{method} {ref}",
                params=params,
                content=None if content is None else msgspec.json.encode(content),
                content_type=content_type,
            )
        except MissingError as error:
            # Either the object or its kind; the next response shows which.
            self._discovery.forget(served.type.api_version)
            raise NotFoundError(ref) from error
