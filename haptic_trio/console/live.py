"""Live figures of HAProxy: processes, backends and servers, from the runtime sockets of the instances of this machine.

Each read asks for the named backends alone. It is done for viewers that
follow the figures, and otherwise never.
"""

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import trio

from haptic_trio.console.protocol import BackendFigures, LiveView, ProcessFigures, ServerFigures
from haptic_trio.dataplane.endpoint import EndpointError
from haptic_trio.dataplane.local.instance import LocalAgent

MOST_BACKENDS: Final = 100
MOST_DETAILED: Final = 5
"""Of so many of the first backends, the figures have those of each server, too."""
MOST_SERVERS: Final = 100
READ_LIMIT: Final = 2.0
"""Seconds that an instance has to answer: the viewer waits for nothing else meanwhile."""
_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{1,200}")
_BACKENDS, _SERVERS = 2, 4
"""Types of `show stat`."""
_TOTALS: Final = frozenset({"BACKEND", "FRONTEND"})
_UP: Final = ("UP", "no check")
_LONGEST: Final = 8_000
"""Characters of a request."""


class Live:
    """Reads the figures of the instances that *agents* returns."""

    def __init__(self, agents: Callable[[], Iterable[LocalAgent]]) -> None:
        self._agents = agents

    async def read(self, backends: Sequence[str]) -> LiveView:
        """Return the figures of all processes that answer, and of those of *backends* that exist."""
        requests = list(_requests(backends))
        agents = list(self._agents())
        answers: dict[str, str] = {}

        async def ask(agent: LocalAgent) -> None:
            # One that is starting, reloading or gone does not answer: the next read has it.
            with trio.move_on_after(READ_LIMIT), suppress(EndpointError):
                replies = []
                for one in requests:
                    reply = await agent.runtime.ask(one)
                    replies.append(reply.strip())
                answers[agent.name] = "\n\n".join(replies)

        async with trio.open_nursery() as nursery:
            for agent in agents:
                nursery.start_soon(ask, agent)
        return read_figures({agent.name: answers[agent.name] for agent in agents if agent.name in answers})


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


def read_figures(answers: Mapping[str, str]) -> LiveView:
    """Return the figures in *answers*, by instance: replies to `show info` and `show stat`."""
    processes = []
    found: dict[str, list[BackendFigures]] = {}
    for instance, answer in answers.items():
        info, *tables = answer.split("\n\n")
        processes.append(_read_info(instance, info))
        for table in tables:
            for figures in _read_table(instance, table.strip()):
                found.setdefault(figures.name, []).append(figures)
    return LiveView(processes=tuple(processes), backends=tuple(_sum(each) for each in found.values()))


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
        servers = [
            one for one in rows if one["pxname"] == row["pxname"] and one["svname"] not in {"BACKEND", "FRONTEND"}
        ]
        yield BackendFigures(
            name=row["pxname"],
            up=_number(row.get("act")) + _number(row.get("bck")),
            sessions=_number(row.get("scur")),
            queued=_number(row.get("qcur")),
            rate=_number(row.get("rate")),
            errors=_number(row.get("econ")) + _number(row.get("eresp")),
            answers_5xx=_number(row.get("hrsp_5xx")),
            answers=sum(_number(row.get(f"hrsp_{kind}")) for kind in ("1xx", "2xx", "3xx", "4xx", "5xx", "other")),
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
        servers=tuple(server for one in each for server in one.servers),
    )


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() else 0
