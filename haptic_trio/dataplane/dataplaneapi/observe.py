"""Observed state of the process behind a Data Plane API, in the form of runtime socket replies.

`haptic_trio.haproxy.runtime.read_back` compares a process by commands of the
runtime socket. This module answers these commands from the API. Servers are
read from the statistics, with one request for all; a backend that differs
there is queried separately, because the statistics have the weight in effect
at the moment. State that the API does not show is not compared.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
import trio

from haptic_trio.dataplane.dataplaneapi.calls import PresentMaps, certificate_path
from haptic_trio.dataplane.dataplaneapi.client import ApiClient, ApiStatusError, quote_name
from haptic_trio.dataplane.dataplaneapi.paths import Paths
from haptic_trio.dataplane.dataplaneapi.runtime import RuntimeApi, RuntimeServer
from haptic_trio.dataplane.dataplaneapi.storage import StoredFile
from haptic_trio.dataplane.endpoint import EndpointError
from haptic_trio.haproxy.config.maps import Entry, parse_map_file
from haptic_trio.haproxy.model import FileKind, Generation
from haptic_trio.haproxy.plan.capabilities import Capabilities
from haptic_trio.haproxy.plan.commands import UnsendableError, escape_word
from haptic_trio.haproxy.plan.store_commands import file_word
from haptic_trio.haproxy.runtime.differences import Kind
from haptic_trio.haproxy.runtime.read_back import Differences, ReadBack

PARALLEL_READS: Final = 8
"""Certificates that are read concurrently."""

_UNKNOWN: Final = "?"
"""An answer that is not compared."""
_COLUMNS: Final = "be_name srv_name srv_addr srv_port srv_uweight srv_iweight srv_admin_state srv_op_state"
_STATES: Final = {"ready": 0x00, "maint": 0x01, "drain": 0x08}
_STATUSES: Final = {"MAINT": 0x01, "DRAIN": 0x08}


class _Figures(msgspec.Struct):
    addr: str | None = None
    weight: int | None = None
    status: str | None = None


class _Row(msgspec.Struct):
    name: str = ""
    backend_name: str = ""
    stats: _Figures = msgspec.field(default_factory=_Figures)


class _Statistics(msgspec.Struct):
    stats: list[_Row] = []


class _ListEntry(msgspec.Struct):
    file: str = ""
    line_number: int = 0
    ssl_bind_config: str = ""
    sni_filter: list[str] = []


class _Certificate(msgspec.Struct):
    sha1_finger_print: str = ""


class _State(msgspec.Struct):
    """A server, in the columns of `show servers state`."""

    address: str
    port: str
    weight: int
    state: int
    is_explained: bool
    """The status names the reason for the maintenance, so it was not set at runtime."""


class ObservedProcess(msgspec.Struct, frozen=True):
    """Differences and maps of an observed process."""

    differences: Differences
    maps: PresentMaps
    """Entries of the maps that were read."""


async def observe_process(
    api: ApiClient, runtime: RuntimeApi, generation: Generation, capabilities: Capabilities, paths: Paths
) -> ObservedProcess:
    """Compare the process with *generation*; raises UnreadableReplyError, and EndpointError as `ApiClient` does."""
    api_reader = _ApiReader(api, runtime, generation, paths)
    # With thousands of servers each of these would block the event loop.
    expected = await trio.to_thread.run_sync(ReadBack, generation, capabilities)
    await api_reader.read_servers()
    answers = {question: await api_reader.answer(question) for question in expected.questions}
    differences = await trio.to_thread.run_sync(expected.compare, tuple(answers.values()))
    if suspects := {one.what.split()[1].partition("/")[0] for one in differences.findings if one.kind is Kind.SERVER}:
        await api_reader.read_backends(suspects)
        answers["show servers state"] = api_reader.show_servers()
        differences = await trio.to_thread.run_sync(expected.compare, tuple(answers.values()))
    findings = tuple(one for one in differences.findings if not one.what.startswith(tuple(api_reader.ignored)))
    return ObservedProcess(msgspec.structs.replace(differences, findings=findings), api_reader.maps)


class _ApiReader:
    """Answers runtime commands from the API; call `read_servers` first."""

    def __init__(self, api: ApiClient, runtime: RuntimeApi, generation: Generation, paths: Paths) -> None:
        self._api = api
        self._runtime = runtime
        self._generation = generation
        self._paths = paths
        self._servers: dict[str, dict[str, _State]] = {}
        self.maps: dict[str, tuple[Entry, ...]] = {}
        self.ignored: set[str] = {
            # The statistics do not contain these.
            f"backend {section.name} removed"
            for section in generation.config.sections
            if any(line.keyword == "disabled" for line in section.directives)
        }
        """Prefixes of findings that are ignored."""
        self._maps = {f"show map {escape_word(file.path)}": file.path for file in generation.files_of(FileKind.MAP)}
        self._lists = _questions(generation, FileKind.CRT_LIST, "show ssl crt-list -n")
        self._certificates = _questions(generation, FileKind.CERT, "show ssl cert")
        self._loaded_maps: frozenset[str] | None = None
        self._loaded_certificates: frozenset[str] | None = None

    async def read_servers(self) -> None:
        for row in await self._statistics("server"):
            address, _, port = (row.stats.addr or "").rpartition(":")
            status = row.stats.status or ""
            self._servers.setdefault(row.backend_name, {})[row.name] = _State(
                address.strip("[]") or _UNKNOWN,
                port if port.isdecimal() else "0",
                row.stats.weight if row.stats.weight is not None else -1,
                _STATUSES.get(status, 0),
                "(" in status,
            )

    async def read_backends(self, names: Iterable[str]) -> None:
        """Read the servers of the backends *names*, one request each."""
        for backend in sorted(names):
            path = f"runtime/backends/{quote_name(backend)}/servers"
            known = self._servers.get(backend, {})
            found: dict[str, _State] = {}
            for server in await self._api.get_as(list[RuntimeServer], path):
                before = known.get(server.name)
                explained = before is not None and before.is_explained
                state = 0 if explained else _STATES.get(server.admin_state, 0)
                weight = server.uweight if server.uweight is not None else server.weight
                if weight is None:
                    # An API without this field cannot set it either.
                    self.ignored.add(f"server {backend}/{server.name} changed")
                found[server.name] = _State(server.address, str(server.port or 0), weight or 0, state, explained)
            self._servers[backend] = found

    async def answer(self, question: str) -> str:
        """Return the answer of the runtime socket, as far as the API shows it."""
        if question == "show servers state":
            return self.show_servers()
        if question == "show backend":
            return "\n".join(["# name", *(row.name for row in await self._statistics("backend"))])
        if question in self._maps:
            return await self._show_map(self._maps[question])
        if question.startswith("show acl "):
            # ACLs are only changed by a reload over this API.
            return _UNKNOWN
        if question in self._lists:
            return await self._show_list(self._lists[question])
        return await self._show_certificates(
            [self._certificates[one] for one in question.split(";") if one in self._certificates]
        )

    def show_servers(self) -> str:
        lines = [
            f"{backend} {name} {one.address} {one.port} {one.weight} {one.weight} {one.state} 2"
            for backend, servers in self._servers.items()
            for name, one in servers.items()
        ]
        return "\n".join(["1", f"# {_COLUMNS}", *lines])

    async def _statistics(self, kind: str) -> list[_Row]:
        answer = await self._api.get("stats/native", {"type": kind})
        found = await trio.to_thread.run_sync(self._api.decode, _Statistics, answer, "stats/native")
        return found.stats

    async def _show_map(self, path: str) -> str:
        expected = parse_map_file(self._generation.files[path].content)
        # The API splits lines at blanks, and cannot read entries without a value.
        if any(not value or len(f"{key} {value}".split()) != 2 or key[0] == "#" for key, value in expected):
            return _UNKNOWN
        try:
            entries = await self._runtime.read_map(self._paths.of(path))
        except UnsendableError:
            return _UNKNOWN
        if entries is None:
            if not await self._is_loaded(path):
                return "Unknown map"
            entries = ()
        self.maps[path] = entries
        return "".join(f"0x0 {key} {value}\n" for key, value in entries)

    async def _is_loaded(self, path: str) -> bool:
        """Whether the process has the map *path*: the API does not find an empty map by its name."""
        if self._loaded_maps is None:
            try:
                found = await self._api.get_as(list[StoredFile] | None, "runtime/maps")  # type: ignore[arg-type]  # a union is not a class
            except ApiStatusError as exc:
                if exc.status != 404:
                    raise
                found = None
            self._loaded_maps = frozenset(one.file for one in found or ())
        return self._paths.of(path) in self._loaded_maps

    async def _show_list(self, path: str) -> str:
        try:
            entries = await self._api.get_as(
                list[_ListEntry], "runtime/ssl_crt_lists/entries", {"name": self._paths.of(path)}
            )
        except ApiStatusError:
            return _UNKNOWN
        lines = [f"# {path}"]
        for entry in entries:
            options = [f"[{entry.ssl_bind_config}]"] if entry.ssl_bind_config else []
            words = [f"{self._paths.take(entry.file)}:{entry.line_number}", *options, *entry.sni_filter]
            lines.append(" ".join(words))
        return "\n".join(lines)

    async def _show_certificates(self, paths: Sequence[str]) -> str:
        if self._loaded_certificates is None:
            self._loaded_certificates = await read_certificates(self._api) or frozenset()
        if not self._loaded_certificates:
            self.ignored.update(f"certificate {path} " for path in paths)
            return ""
        marks: dict[str, str] = {}
        failures: list[EndpointError] = []
        limiter = trio.CapacityLimiter(PARALLEL_READS)

        async def read(path: str) -> None:
            try:
                async with limiter:
                    marks[path] = await self._read_mark(path)
            except EndpointError as exc:
                # Only the first is raised, and not as an exception group.
                failures.append(exc)
                nursery.cancel_scope.cancel(reason="a certificate could not be read")

        async with trio.open_nursery() as nursery:
            for path in paths:
                if self._paths.of(path) in self._loaded_certificates:
                    nursery.start_soon(read, path)
        if failures:
            raise failures[0]
        self.ignored.update(f"certificate {path} " for path, mark in marks.items() if not mark)
        return "\n".join(
            [f"Filename: {path}\nSHA1 FingerPrint: {mark.upper()}" for path, mark in marks.items() if mark]
        )

    async def _read_mark(self, path: str) -> str:
        """Return the fingerprint of the certificate *path* in the process; empty if the API does not show it."""
        try:
            return (await self._api.get_as(_Certificate, certificate_path(self._paths.of(path)))).sha1_finger_print
        except (ApiStatusError, UnsendableError):
            return ""


async def read_certificates(api: ApiClient) -> frozenset[str] | None:
    """Return the paths of the certificates in the process; None if the API does not show them, as before 3.2."""
    try:
        found = await api.get_as(list[StoredFile] | None, "runtime/ssl_certs")  # type: ignore[arg-type]  # a union is not a class
    except ApiStatusError:
        return None
    return frozenset(one.storage_name for one in found or ())


def _questions(generation: Generation, kind: FileKind, command: str) -> Mapping[str, str]:
    """Return the paths of the files of *kind* by the commands that show them."""
    found = {}
    for file in generation.files_of(kind):
        try:
            found[f"{command} {file_word(file.path)}"] = file.path
        except UnsendableError:
            continue
    return found
