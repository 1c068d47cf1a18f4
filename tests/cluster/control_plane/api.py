"""As much of a Kubernetes client as the cluster's own parts need; apart from the client under test, on purpose."""

import json
from collections.abc import Callable
from typing import Final

import httpx
import msgspec
import trio

from haptic_trio.k8s.resource import Resource

RETRY_INTERVAL: Final = 0.2
"""Seconds between two attempts at an API server that does not answer."""
JSON: Final = "application/json"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"
_PAGE: Final = 500


class ApiError(Exception):
    """The API server rejected; trying again helps for 409, 429 and 5xx only."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason


class Api:
    """Requests to the API server with one identity; they raise ApiError, or httpx.TransportError."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def get(self, path: str, **parameters: str | int) -> Resource:
        """Return what is at *path*."""
        return await self.request("GET", path, None, JSON, **parameters)

    async def create(self, path: str, resource: Resource) -> Resource:
        """Create *resource* in the collection at *path*."""
        return await self.request("POST", path, resource)

    async def patch(self, path: str, change: Resource, kind: str = MERGE, **parameters: str | int) -> Resource:
        """Change what is at *path*."""
        return await self.request("PATCH", path, change, kind, **parameters)

    async def delete(self, path: str, *, grace: int | None = None, uid: str | None = None) -> None:
        """Delete what is at *path*, which may be absent; *grace* in seconds."""
        options: Resource = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        try:
            await self.request("DELETE", path, options)
        except ApiError as exc:
            # 409: another object has that name by now.
            if exc.status not in {404, 409}:
                raise

    async def list(self, path: str, **parameters: str | int) -> tuple[list[Resource], str]:
        """Return all objects of the collection at *path*, and the version of the list."""
        items: list[Resource] = []
        token = ""
        while True:
            more = {"continue": token} if token else {}
            page = await self.get(path, **{"limit": _PAGE, **more, **parameters})
            items += page["items"]
            if not (token := page["metadata"].get("continue", "")):
                return items, page["metadata"]["resourceVersion"]

    async def request(
        self, method: str, path: str, body: Resource | None, kind: str = JSON, **parameters: str | int
    ) -> Resource:
        """Send a request with a *body* of that kind; return the decoded answer, or nothing for one that is no JSON."""
        sent = None if body is None else json.dumps(body)
        headers = {} if body is None else {"content-type": kind}
        response = await self.client.request(method, path, params=parameters, content=sent, headers=headers)
        decoded = _decode(response)
        if response.is_error:
            raise ApiError(response.status_code, decoded.get("reason", ""), decoded.get("message", response.text))
        return decoded


def _decode(response: httpx.Response) -> Resource:
    try:
        decoded = response.json()
    except ValueError:
        return {}
    return decoded if isinstance(decoded, dict) else {}


OnChange = Callable[[Resource | None, Resource | None], None]
"""Receives the object before and after; None stands for a missing object."""


class Mirror:
    """The objects of a collection, followed for as long as *follow* runs."""

    def __init__(self, api: Api, path: str, on_change: OnChange) -> None:
        self.objects: dict[tuple[str, str], Resource] = {}
        """By namespace and name."""
        self._api = api
        self._path = path
        self._on_change = on_change

    async def follow(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """List, then watch, for ever; an API server that is away is waited for. Started after the first list."""
        started = False
        while True:
            try:
                items, version = await self._api.list(self._path)
                self._replace(items)
                if not started:
                    started = True
                    task_status.started()
                await self._watch(version)
            except (httpx.TransportError, ApiError, msgspec.DecodeError):
                pass
            await trio.sleep(RETRY_INTERVAL)

    def _replace(self, items: list[Resource]) -> None:
        listed = {_key(item) for item in items}
        for key in [key for key in self.objects if key not in listed]:
            self._on_change(self.objects.pop(key), None)
        for item in items:
            self._put(item)

    def _put(self, item: Resource) -> None:
        before = self.objects.get(_key(item))
        if before is None or before["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"]:
            self.objects[_key(item)] = item
            self._on_change(before, item)

    async def _watch(self, version: str) -> None:
        parameters = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true"}
        limits = httpx.Timeout(10, read=None)
        async with self._api.client.stream("GET", self._path, params=parameters, timeout=limits) as response:
            if response.is_error:
                await response.aread()
                raise ApiError(response.status_code, "", response.text)
            async for line in response.aiter_lines():
                event = msgspec.json.decode(line)
                if event["type"] in {"ADDED", "MODIFIED"}:
                    self._put(event["object"])
                elif event["type"] == "DELETED":
                    self.objects.pop(_key(event["object"]), None)
                    self._on_change(event["object"], None)
                # After an ERROR, such as 410, the server ends the stream, and everything is listed again.


def _key(item: Resource) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]
