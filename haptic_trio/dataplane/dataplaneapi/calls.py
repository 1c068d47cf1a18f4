"""Mapping from runtime operations to requests of a Data Plane API.

The API inserts strings into HAProxy's runtime commands without escaping. So
only strings are sent that are one plain word of such a command.

The API's request to replace a whole map only adds to the map if the entries
fit one command, so it is not used: a map is changed entry by entry, or by a
reload.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from haptic_trio.dataplane.dataplaneapi.client import quote_name
from haptic_trio.dataplane.dataplaneapi.paths import Paths
from haptic_trio.dataplane.dataplaneapi.servers import server_fields
from haptic_trio.haproxy.config.certificates import parse_crt_list
from haptic_trio.haproxy.config.maps import Entry, MapUse, find_map_use
from haptic_trio.haproxy.model import Generation
from haptic_trio.haproxy.plan.commands import UnsendableError
from haptic_trio.haproxy.plan.operations import (
    AddCrtListEntry,
    AddMapEntry,
    AddServer,
    DeleteCertificate,
    DeleteCrtListEntry,
    DeleteMapEntry,
    DeleteServer,
    Operation,
    ReplaceMap,
    SetMapEntry,
    SetServerAddress,
    SetServerState,
    SetServerWeight,
    StoreCertificate,
)

ServerOperation: TypeAlias = SetServerAddress | SetServerWeight | SetServerState
MapOperation: TypeAlias = AddMapEntry | SetMapEntry | DeleteMapEntry
CertificateOperation: TypeAlias = StoreCertificate | DeleteCertificate | AddCrtListEntry | DeleteCrtListEntry
PresentMaps: TypeAlias = Mapping[str, tuple[Entry, ...]]
"""The entries in the process, by the path of the map."""

# A word of a runtime command that needs no escape.
_WORD: Final = re.compile(r"[!%()*+,\-./0-9:=?@A-Z\[\]^_`a-z|~]+")
# Characters that the API's contract forbids in a path; `.` and `..` would be path steps.
_NOT_IN_PATH: Final = re.compile(r'[\r\n<>*;$#&{}"]|^\.\.?$')
_LISTS: Final = "runtime/ssl_crt_lists/entries"


class Call(msgspec.Struct, frozen=True):
    """One request that carries out an operation."""

    method: str
    path: str
    json: object = None
    params: Mapping[str, str] | None = None
    upload: tuple[str, bytes] | None = None

    def __repr__(self) -> str:
        # An upload contains a private key.
        return f"Call({self.method} {self.path} {self.json} {self.params})"


def adapt(operations: Iterable[Operation], generation: Generation, present: PresentMaps) -> list[Operation]:
    """Return *operations* with maps changed entry by entry, as the API requires.

    Raises UnsendableError for a map that cannot be changed this way.
    """
    steps: list[Operation] = []
    known = dict(present)
    for step in operations:
        if isinstance(step, ReplaceMap):
            steps += _change_map(step, known.get(step.map), find_map_use(generation, step.map))
            # A plan may replace a map twice: removed entries go when all other maps have their new ones.
            known[step.map] = step.entries
        else:
            steps.append(step)
    return steps


def _change_map(step: ReplaceMap, present: tuple[Entry, ...] | None, use: MapUse) -> list[Operation]:
    before, after = dict(present or ()), dict(step.entries)
    is_simple = present is not None and len(before) == len(present) and len(after) == len(step.entries)
    if use is not MapUse.UNORDERED or not is_simple:
        raise UnsendableError(f"map {step.map} cannot be changed entry by entry: it has ordered or repeated keys")
    # Removed ones last, as in every plan: what falls to a shorter path has its rules by then.
    return [
        *(AddMapEntry(step.map, key, value) for key, value in after.items() if key not in before),
        *(SetMapEntry(step.map, key, value) for key, value in after.items() if before.get(key, value) != value),
        *(DeleteMapEntry(step.map, key) for key in before if key not in after),
    ]


def make_call(operation: Operation, paths: Paths) -> Call:
    """Return the request for *operation*; raises UnsendableError if the API has none."""
    if isinstance(operation, ServerOperation):
        return Call("PUT", _server_path(operation.backend, operation.server), _settings(operation))
    if isinstance(operation, MapOperation):
        return _make_map_call(operation, paths)
    if isinstance(operation, CertificateOperation):
        return _make_certificate_call(operation, paths)
    if isinstance(operation, DeleteServer):
        return Call("DELETE", _server_path(operation.backend, operation.server))
    if isinstance(operation, AddServer):
        fields = {name: _checked(value) for name, value in server_fields(operation, paths).items()}
        return Call("POST", f"runtime/backends/{_segment(operation.backend)}/servers", fields)
    raise UnsendableError(f"the Data Plane API has no request for {type(operation).__name__}")


def _make_map_call(operation: MapOperation, paths: Paths) -> Call:
    path = f"{map_path(paths.of(operation.map))}/entries"
    match operation:
        case AddMapEntry(_, key, value):
            return Call("POST", path, {"key": _word(key), "value": _word(value)})
        case SetMapEntry(_, key, value):
            return Call("PUT", f"{path}/{_segment(key)}", {"value": _word(value)})
        case DeleteMapEntry(_, key):
            return Call("DELETE", f"{path}/{_segment(key)}")


def _make_certificate_call(operation: CertificateOperation, paths: Paths) -> Call:
    match operation:
        case StoreCertificate(path, content, is_new):
            if is_new:
                # The API would use the last part of the path as its name.
                raise UnsendableError(f"certificate {path} cannot be added over the Data Plane API")
            return Call("PUT", certificate_path(paths.of(path)), upload=(path.rpartition("/")[2], content))
        case DeleteCertificate(path):
            return Call("DELETE", certificate_path(paths.of(path)))
        case DeleteCrtListEntry(crt_list, certificate):
            names = {"name": _path_word(paths.of(crt_list)), "cert_file": _path_word(paths.of(certificate))}
            return Call("DELETE", _LISTS, params=names)
        case AddCrtListEntry(crt_list, line):
            entries = parse_crt_list(line.encode())
            if entries is None or len(entries) != 1:
                raise UnsendableError(f"a line of {crt_list} cannot be parsed")
            [entry] = entries
            fields: dict[str, object] = {"file": _path_word(paths.of(entry.certificate))}
            if entry.options:
                fields["ssl_bind_config"] = paths.send(entry.options)
            if entry.filters:
                fields["sni_filter"] = list(entry.filters)
            return Call("POST", _LISTS, fields, {"name": _path_word(paths.of(crt_list))})


def certificate_path(path: str) -> str:
    """Return the request path of the certificate with *path* in the process; raises UnsendableError."""
    return f"runtime/ssl_certs/{_segment(path)}"


def _settings(operation: ServerOperation) -> dict[str, str | int]:
    match operation:
        case SetServerAddress(_, _, address, port):
            return {"address": _word(address), "port": port}
        case SetServerWeight(_, _, weight):
            return {"weight": weight}
        case SetServerState(_, _, state):
            return {"admin_state": state}


def _server_path(backend: str, server: str) -> str:
    return f"runtime/backends/{_segment(backend)}/servers/{_segment(server)}"


def map_path(path: str) -> str:
    """Return the request path of the map with *path* in the process; raises UnsendableError."""
    return f"runtime/maps/{_segment(path.rpartition('/')[2])}"


def _segment(word: str) -> str:
    return quote_name(_path_word(word))


def _path_word(word: str) -> str:
    if _NOT_IN_PATH.search(word) is not None:
        raise UnsendableError("a value has characters that are not allowed in a request path")
    return _word(word)


def _checked(value: str | int) -> str | int:
    return _word(value) if isinstance(value, str) else value


def _word(word: str) -> str:
    if not _WORD.fullmatch(word):
        raise UnsendableError("a value is not a plain word of a runtime command")
    return word


def name_operation(operation: Operation) -> str:
    """Return the subject of *operation* for messages."""
    match operation:
        case SetServerAddress(backend, server) | SetServerWeight(backend, server) | SetServerState(backend, server):
            return f"server {backend}/{server}"
        case AddServer(backend, server) | DeleteServer(backend, server):
            return f"server {backend}/{server}"
        case AddMapEntry(path) | SetMapEntry(path) | DeleteMapEntry(path):
            return f"map {path}"
        case StoreCertificate(path) | DeleteCertificate(path):
            return f"certificate {path}"
        case AddCrtListEntry(path) | DeleteCrtListEntry(path):
            return f"crt-list {path}"
        case _:
            return type(operation).__name__
