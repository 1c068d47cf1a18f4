"""Runtime operations of a plan, over a Data Plane API.

The API parses HAProxy's replies by splitting them at blanks, so its answers
are compared with the operation.
"""

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

import msgspec
import trio

from haptic_trio.dataplane.dataplaneapi.calls import (
    Call,
    PresentMaps,
    ServerOperation,
    adapt,
    make_call,
    map_path,
    name_operation,
)
from haptic_trio.dataplane.dataplaneapi.client import ApiClient, ApiStatusError
from haptic_trio.dataplane.dataplaneapi.paths import Paths
from haptic_trio.dataplane.endpoint import PatchRejectedError
from haptic_trio.haproxy.config.maps import Entry
from haptic_trio.haproxy.model import Generation
from haptic_trio.haproxy.plan.commands import UnsendableError
from haptic_trio.haproxy.plan.operations import (
    DeleteServer,
    Operation,
    SetMapEntry,
    SetServerAddress,
    SetServerState,
    SetServerWeight,
)

MAX_REQUESTS: Final = 500
"""Limit of operations: each is one request, and more of them take longer than a reload."""
REMOVAL_ATTEMPTS: Final = 10
"""Attempts to delete a server that is in use; then it stays in maintenance."""
REMOVAL_INTERVAL: Final = 0.05
"""Seconds between two attempts."""

_IN_USE: Final = re.compile(r"\bstill\b")


class MapEntry(msgspec.Struct):
    """An entry of a map as the API shows it."""

    key: str = ""
    value: str = ""


class RuntimeServer(msgspec.Struct):
    """A server as the API shows it."""

    name: str = ""
    address: str = ""
    port: int | None = None
    weight: int | None = None
    uweight: int | None = None
    admin_state: str = ""


class RuntimeApi:
    """The runtime side of one API."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def prepare(
        self, operations: Iterable[Operation], generation: Generation, *, present: PresentMaps, paths: Paths
    ) -> list[tuple[Operation, Call]]:
        """Return the requests of `apply`; raises PatchRejectedError if an operation has none."""
        try:
            steps = [(one, make_call(one, paths)) for one in adapt(operations, generation, present)]
        except UnsendableError as exc:
            raise PatchRejectedError(self._api.endpoint, str(exc)) from exc
        if len(steps) > MAX_REQUESTS:
            raise PatchRejectedError(self._api.endpoint, f"{len(steps)} operations are more than {MAX_REQUESTS}")
        return steps

    async def apply(
        self, operations: Iterable[Operation], generation: Generation, *, present: PresentMaps, paths: Paths
    ) -> None:
        """Apply *operations*, which lead to *generation*, in order.

        *present* has the maps that are replaced completely. A deleted server
        that is in use stays in maintenance. Raises PatchRejectedError if an
        operation is rejected or has no effect (those before it are applied),
        or if one has no request (none is applied). Raises EndpointError if
        the API does not answer.
        """
        for operation, call in self.prepare(operations, generation, present=present, paths=paths):
            await self._execute(operation, call, paths)

    async def delete_unused(self, removal: DeleteServer) -> None:
        """Try once to delete a server that is in maintenance; ignores a rejection."""
        try:
            await self._api.send("DELETE", make_call(removal, Paths({})).path)
        except (ApiStatusError, UnsendableError):
            return

    async def read_map(self, path: str) -> tuple[Entry, ...] | None:
        """Return the entries of the map with *path* in the process; None if the API does not find it."""
        try:
            entries = await self._api.get_as(list[MapEntry] | None, f"{map_path(path)}/entries")  # type: ignore[arg-type]  # a union is not a class
        except ApiStatusError as exc:
            if exc.status != 404:
                raise
            return None
        return tuple((entry.key, entry.value) for entry in entries or [])

    async def _execute(self, operation: Operation, call: Call, paths: Paths) -> None:
        try:
            if isinstance(operation, DeleteServer):
                await self._delete(call)
                return
            answer = await self._api.send(
                call.method, call.path, params=call.params, json=call.json, upload=call.upload
            )
        except ApiStatusError as exc:
            rejection = exc
        else:
            if isinstance(operation, ServerOperation):
                self._require_effect(self._api.decode(RuntimeServer, answer, call.path), operation)
            return
        if not await self._is_set(operation, rejection, paths):
            message = f"{name_operation(operation)}: {rejection.status} {rejection.reason}"
            raise PatchRejectedError(self._api.endpoint, message) from rejection

    def _require_effect(self, server: RuntimeServer, operation: ServerOperation) -> None:
        if not has_taken_effect(server, operation):
            message = f"{name_operation(operation)}: the API shows another state after the change"
            raise PatchRejectedError(self._api.endpoint, message)

    async def _delete(self, call: Call) -> None:
        # The API puts the server into maintenance first, so it gets no new connections.
        for _attempt in range(REMOVAL_ATTEMPTS):
            try:
                await self._api.send(call.method, call.path)
            except ApiStatusError as exc:
                if exc.status == 404:
                    return
                if not _IN_USE.search(exc.words):
                    raise
            else:
                return
            await trio.sleep(REMOVAL_INTERVAL)

    async def _is_set(self, operation: Operation, rejection: ApiStatusError, paths: Paths) -> bool:
        """Whether an entry has its value despite *rejection*: the API reads it back, and does not find every key."""
        if not isinstance(operation, SetMapEntry) or rejection.status != 404:
            return False
        return (operation.key, operation.value) in (await self.read_map(paths.of(operation.map)) or ())


def has_taken_effect(server: RuntimeServer, operation: ServerOperation) -> bool:
    """Whether the API shows *server* in the state that *operation* sets."""
    match operation:
        case SetServerAddress(_, _, address, port):
            return server.port == port and _same_address(server.address, address)
        case SetServerWeight(_, _, weight):
            return server.weight == weight
        case SetServerState(_, _, state):
            return server.admin_state == state


def _same_address(one: str, other: str) -> bool:
    try:
        return ipaddress.ip_address(one) == ipaddress.ip_address(other)
    except ValueError:
        return one == other
