"""Live figures of an HAProxy process, its backends and servers, read from its runtime socket.

A read asks for the named backends alone, and its result has a bounded size.
"""

import csv
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol, runtime_checkable

import msgspec
import trio

MOST_BACKENDS: Final = 100
MOST_DETAILED: Final = 5
"""Of so many of the first backends, the figures have those of each server, too."""
MOST_SERVERS: Final = 100
_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{1,200}")
_BACKENDS, _SERVERS = 2, 4
"""Types of `show stat`."""
_TOTALS: Final = frozenset({"BACKEND", "FRONTEND"})
_UP: Final = ("UP", "no check")
_LONGEST: Final = 8_000
"""Characters of a request."""
_SHORT: Final = 100_000
"""Characters of replies that are parsed on the event loop; longer ones need a thread."""

Ask = Callable[[str], Awaitable[str]]
"""Sends a request to a runtime socket and returns the reply."""


class ProcessFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Live figures of the HAProxy of an instance."""

    instance: str
    version: str
    uptime: int
    """Seconds since the worker was started: by a start, or by the last reload."""
    connections: int
    rate: int
    """Sessions in the last second."""


class ServerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Live figures of a server."""

    instance: str
    name: str
    status: str
    """As HAProxy names it, such as `UP`, `DOWN`, `MAINT` or `no check`."""
    is_up: bool
    sessions: int
    rate: int


class BackendFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Live figures of a backend, over all instances that answer. Counters begin with the last reload."""

    name: str
    up: int
    """Servers that take requests; on the instance with the fewest of them."""
    sessions: int
    """Present requests."""
    queued: int
    rate: int
    """Requests in the last second."""
    errors: int
    """Failed connections to servers, and broken answers."""
    answers_5xx: int
    answers: int
    """Answers with any status."""
    response_ms: int = 0
    """Average time until a server answers, of the last 1,024 requests, on the slowest instance."""
    total_ms: int = 0
    """Average time of a whole request, likewise. HAProxy has no percentiles."""
    servers: tuple[ServerFigures, ...] = ()
    """Of the first 5 backends of the request."""


class InstanceFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Live figures of one instance: its process, and the backends of the request that exist."""

    process: ProcessFigures
    backends: tuple[BackendFigures, ...]


@runtime_checkable
class ReadsFigures(Protocol):
    """An endpoint that can read the figures of its HAProxy."""

    @property
    def name(self) -> str:
        """Name of the instance."""
        ...

    async def read_figures(self, backends: Sequence[str]) -> InstanceFigures:
        """Return the figures of the process and of *backends*, at most `MOST_BACKENDS`; raises EndpointError."""
        ...


async def ask_figures(ask: Ask, instance: str, backends: Sequence[str]) -> InstanceFigures:
    """Return the figures of *instance*, whose runtime socket *ask* reaches; names with odd characters are skipped."""
    replies = [(await ask(request)).strip() for request in _requests(backends)]
    text = "\n\n".join(replies)
    if len(text) < _SHORT:
        return parse_figures(instance, text)
    return await trio.to_thread.run_sync(parse_figures, instance, text)


def _requests(backends: Sequence[str]) -> Iterator[str]:
    """Yield the requests for *backends*, each short enough for a buffer of HAProxy."""
    names = [name for name in dict.fromkeys(backends) if _NAME.fullmatch(name)][:MOST_BACKENDS]
    line = "show info"
    for position, name in enumerate(names):
        kinds = _BACKENDS | (_SERVERS if position < MOST_DETAILED else 0)
        if len(line) > _LONGEST:
            yield f"{line}\n"
            line = "show info"
        line += f";show stat {name} {kinds} -1"
    yield f"{line}\n"


def parse_figures(instance: str, text: str) -> InstanceFigures:
    """Return the figures in *text*: a reply to `show info`, and replies to `show stat`."""
    info, *tables = text.split("\n\n")
    return InstanceFigures(
        process=_read_info(instance, info),
        backends=tuple(figures for table in tables for figures in _read_table(instance, table.strip())),
    )


def sum_backends(figures: Iterable[InstanceFigures]) -> tuple[BackendFigures, ...]:
    """Return the figures of the backends in *figures* over all instances."""
    found: dict[str, list[BackendFigures]] = {}
    for one in figures:
        for backend in one.backends:
            found.setdefault(backend.name, []).append(backend)
    return tuple(_sum(each) for each in found.values())


def _read_info(instance: str, text: str) -> ProcessFigures:
    fields = dict(line.partition(": ")[::2] for line in text.strip().splitlines())
    return ProcessFigures(
        instance=instance,
        version=fields.get("Version", ""),
        uptime=_number(fields.get("Uptime_sec")),
        connections=_number(fields.get("CurrConns")),
        rate=_number(fields.get("SessRate")),
    )


def _read_table(instance: str, text: str) -> Iterable[BackendFigures]:
    """Yield the figures of the backends in a table of `show stat`; none in the reply to an unknown name."""
    if not text.startswith("# pxname,"):
        return
    rows = list(csv.DictReader(text.removeprefix("# ").splitlines()))
    for row in rows:
        if row["svname"] != "BACKEND":
            continue
        servers = [one for one in rows if one["pxname"] == row["pxname"] and one["svname"] not in _TOTALS]
        yield BackendFigures(
            name=row["pxname"],
            up=_number(row.get("act")) + _number(row.get("bck")),
            sessions=_number(row.get("scur")),
            queued=_number(row.get("qcur")),
            rate=_number(row.get("rate")),
            errors=_number(row.get("econ")) + _number(row.get("eresp")),
            answers_5xx=_number(row.get("hrsp_5xx")),
            answers=sum(_number(row.get(f"hrsp_{kind}")) for kind in ("1xx", "2xx", "3xx", "4xx", "5xx", "other")),
            response_ms=_number(row.get("rtime")),
            total_ms=_number(row.get("ttime")),
            servers=tuple(
                ServerFigures(
                    instance=instance,
                    name=one["svname"],
                    status=one["status"],
                    is_up=one["status"].startswith(_UP),
                    sessions=_number(one.get("scur")),
                    rate=_number(one.get("rate")),
                )
                for one in servers[:MOST_SERVERS]
            ),
        )


def _sum(each: Sequence[BackendFigures]) -> BackendFigures:
    """Return the figures of one backend over all instances."""
    return BackendFigures(
        name=each[0].name,
        up=min(one.up for one in each),
        sessions=sum(one.sessions for one in each),
        queued=sum(one.queued for one in each),
        rate=sum(one.rate for one in each),
        errors=sum(one.errors for one in each),
        answers_5xx=sum(one.answers_5xx for one in each),
        answers=sum(one.answers for one in each),
        response_ms=max(one.response_ms for one in each),
        total_ms=max(one.total_ms for one in each),
        servers=tuple(server for one in each for server in one.servers),
    )


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() else 0
