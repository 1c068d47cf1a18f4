"""Runtime operations of a plan, over a Data Plane API.

The API puts words into HAProxy's runtime commands as it gets them, and reads
replies by splitting them at blanks. So nothing is sent that could be read as
anything but one word, and what the API answers is compared with what was
asked for.
"""

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from haptic_trio.dataplane.dataplaneapi_client import ApiClient, ApiStatusError, quote_name
from haptic_trio.dataplane.endpoint import PatchRefusedError
from haptic_trio.haproxy.commands import UnsendableError
from haptic_trio.haproxy.maps import MapUse, find_map_use, parse_map_file
from haptic_trio.haproxy.model import Generation
from haptic_trio.haproxy.operations import (
    AddMapEntry,
    DeleteMapEntry,
    Operation,
    ReplaceMap,
    SetMapEntry,
    SetServerAddress,
    SetServerState,
    SetServerWeight,
)

MAX_REQUESTS: Final = 500
"""More operations than this take longer than a reload: each is a request of its own."""

ServerOperation: TypeAlias = SetServerAddress | SetServerWeight | SetServerState
MapOperation: TypeAlias = AddMapEntry | SetMapEntry | DeleteMapEntry | ReplaceMap

# A word of a runtime command that needs no escape.
_WORD: Final = re.compile(r"[!%()*+,\-./0-9:=?@A-Z\[\]^_`a-z~]+")
# What the API's contract lets stand in a path; `.` and `..` would be taken for steps in it.
_NOT_IN_PATH: Final = re.compile(r'[\r\n<>*;$#&{}"]|^\.\.?$')


class _Entry(msgspec.Struct):
    key: str = ""
    value: str = ""


class _Server(msgspec.Struct):
    address: str = ""
    port: int | None = None
    weight: int | None = None
    admin_state: str = ""


class Call(msgspec.Struct, frozen=True):
    """One request that carries out an operation."""

    method: str
    path: str
    json: object = None


class RuntimeApi:
    """The runtime side of one API."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    async def apply(self, operations: Iterable[Operation], generation: Generation) -> None:
        """Apply *operations*, which lead to *generation*, in order.

        Raises PatchRefusedError when one is refused or not done, with those
        before it applied, and when one cannot be said at all, with none
        applied. Raises EndpointError when the API does not answer.
        """
        try:
            steps = [(operation, make_call(operation)) for operation in adapt(operations, generation)]
        except UnsendableError as exc:
            raise PatchRefusedError(self._api.endpoint, str(exc)) from exc
        if len(steps) > MAX_REQUESTS:
            raise PatchRefusedError(self._api.endpoint, f"{len(steps)} operations are more than {MAX_REQUESTS}")
        for operation, call in steps:
            await self._carry_out(operation, call, generation)

    async def _carry_out(self, operation: Operation, call: Call, generation: Generation) -> None:
        try:
            answer = await self._api.send(call.method, call.path, json=call.json)
            match operation:
                case SetServerAddress() | SetServerWeight() | SetServerState():
                    done = is_server_as_told(self._api.decode(_Server, answer, call.path), operation)
                case ReplaceMap(path, entries):
                    unordered = find_map_use(generation, path) is MapUse.UNORDERED
                    done = _same_entries(await self._read_map(call.path), entries, unordered=unordered)
                case _:
                    done = True
        except ApiStatusError as exc:
            raise PatchRefusedError(self._api.endpoint, f"{_name(operation)}: {exc.status} {exc.words}") from exc
        if not done:
            raise PatchRefusedError(self._api.endpoint, f"{_name(operation)}: the API shows something else afterwards")

    async def _read_map(self, path: str) -> tuple[tuple[str, str], ...]:
        try:
            entries = await self._api.get_as(list[_Entry] | None, f"{path}/entries")  # type: ignore[arg-type]  # a union is no class
        except ApiStatusError as exc:
            # A map without entries is not found.
            if exc.status != 404:
                raise
            entries = None
        return tuple((entry.key, entry.value) for entry in entries or [])


def adapt(operations: Iterable[Operation], generation: Generation) -> Iterator[Operation]:
    """Yield *operations* so that the API can carry them out.

    Keys that no path can hold are changed by replacing their whole map, after
    all else.
    """
    steps = list(operations)
    whole = {step.map for step in steps if isinstance(step, SetMapEntry | DeleteMapEntry) and not _fits_path(step.key)}
    for step in steps:
        if not isinstance(step, MapOperation) or step.map not in whole:
            yield step
    for path in sorted(whole):
        yield ReplaceMap(path, parse_map_file(generation.files[path].content))


def make_call(operation: Operation) -> Call:
    """Return the request for *operation*; raises UnsendableError where there is none."""
    if isinstance(operation, ServerOperation):
        path = f"runtime/backends/{_segment(operation.backend)}/servers/{_segment(operation.server)}"
        return Call("PUT", path, _settings(operation))
    if isinstance(operation, MapOperation):
        return _make_map_call(operation, f"runtime/maps/{_segment(operation.map.rpartition('/')[2])}")
    raise UnsendableError(f"{type(operation).__name__} is not done over the Data Plane API")


def _make_map_call(operation: MapOperation, path: str) -> Call:
    match operation:
        case ReplaceMap(_, entries):
            # To replace a map by nothing is to clear it.
            return Call("PUT", path, [_entry(*entry) for entry in entries]) if entries else Call("DELETE", path)
        case AddMapEntry(_, key, value):
            return Call("POST", f"{path}/entries", _entry(key, value))
        case SetMapEntry(_, key, value):
            return Call("PUT", f"{path}/entries/{_segment(key)}", {"value": _word(value)})
        case DeleteMapEntry(_, key):
            return Call("DELETE", f"{path}/entries/{_segment(key)}")


def _settings(operation: ServerOperation) -> dict[str, str | int]:
    match operation:
        case SetServerAddress(_, _, address, port):
            return {"address": _word(address), "port": port}
        case SetServerWeight(_, _, weight):
            return {"weight": weight}
        case SetServerState(_, _, state):
            return {"admin_state": state}


def is_server_as_told(server: _Server, operation: ServerOperation) -> bool:
    """Whether the API shows *server* as *operation* was to make it."""
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


def _same_entries(read: tuple[tuple[str, str], ...], wanted: tuple[tuple[str, str], ...], *, unordered: bool) -> bool:
    return read == wanted or (unordered and sorted(read) == sorted(wanted))


def _entry(key: str, value: str) -> Mapping[str, str]:
    return {"key": _word(key), "value": _word(value)}


def _segment(word: str) -> str:
    if not _fits_path(word):
        raise UnsendableError(f"'{word}' cannot stand in the path of a request")
    return quote_name(_word(word))


def _fits_path(word: str) -> bool:
    return _NOT_IN_PATH.search(word) is None


def _word(word: str) -> str:
    if not _WORD.fullmatch(word):
        raise UnsendableError(f"'{word}' is no plain word of a runtime command")
    return word


def _name(operation: Operation) -> str:
    match operation:
        case SetServerAddress(backend, server) | SetServerWeight(backend, server) | SetServerState(backend, server):
            return f"server {backend}/{server}"
        case AddMapEntry(path, key) | SetMapEntry(path, key) | DeleteMapEntry(path, key):
            return f"map {path}, key {key}"
        case ReplaceMap(path):
            return f"map {path}"
        case _:
            return type(operation).__name__
