"""The controller in a process of its own: how it is started and ended, what it logs, and what it costs."""

import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import trio

from haptic_trio.dataplane.master import MasterClient
from haptic_trio.dataplane.process import ProcessRecord, is_alive, read_record
from haptic_trio.errors import HapticError

END_LIMIT = 30.0
QUIET = 0.3
"""Seconds without a log line after which nothing is under way."""
QUIET_LIMIT = 300.0
TICKS = os.sysconf("SC_CLK_TCK")


class ControllerEndedError(HapticError):
    """The controller ended by itself; its last words are in the message."""


class StillBusyError(HapticError):
    """The controller did not come to rest; trying again helps on a quieter machine."""


class Line(msgspec.Struct, frozen=True):
    """A line of the controller's log."""

    at: float
    """Seconds since the epoch, by the controller itself."""
    event: str
    fields: dict[str, Any]

    @property
    def correlation(self) -> str:
        """The cycle that it belongs to; empty for none."""
        return str(self.fields.get("correlation", ""))


class Log:
    """What the controller has said, in order."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.words: deque[str] = deque(maxlen=30)
        self.ended = False
        self._news = trio.Event()
        self._heard = trio.current_time()

    def take(self, text: str) -> None:
        """Take in one line."""
        self._heard = trio.current_time()
        self.words.append(text)
        with suppress(ValueError):
            fields = json.loads(text)
            at = datetime.fromisoformat(fields.pop("timestamp")).timestamp()
            self.lines.append(Line(at, fields.pop("event"), fields))
        self._wake()

    def end(self) -> None:
        """Note that there will be no more."""
        self.ended = True
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = trio.Event()

    async def wait(self, where: Callable[[Line], bool], *, since: int) -> Line:
        """Return the first such line of those after the first *since*."""
        position = since
        while True:
            for line in self.lines[position:]:
                if where(line):
                    return line
            position = len(self.lines)
            if self.ended:
                raise ControllerEndedError("\n".join(["the controller has ended; its last words:", *self.words]))
            await self._news.wait()

    async def wait_quiet(self) -> None:
        """Return when every cycle that was triggered has ended, and nothing has been said for a while."""
        with trio.move_on_after(QUIET_LIMIT):
            while True:
                idle = trio.current_time() - self._heard
                if idle >= QUIET and not self._open_cycles():
                    return
                await trio.sleep(max(0.01, QUIET - idle))
        raise StillBusyError(f"cycles {', '.join(sorted(self._open_cycles()))} have not ended")

    def _open_cycles(self) -> set[str]:
        stages = [line.fields["iteration"] for line in self.lines if line.event == "stage reached"]
        # Cycles of an iteration that was closed need not end.
        prefix = f"{stages[-1]}-" if stages else "none"
        known = {
            line.correlation
            for line in self.lines
            if line.event == "reconciliation triggered" and line.correlation.startswith(prefix)
        }
        ended = {
            line.correlation
            for line in self.lines
            if line.event in {"reconciliation completed", "reconciliation failed"}
        }
        return known - ended


class Usage(msgspec.Struct, frozen=True):
    """What a process has used."""

    rss_mib: float
    cpu_s: float
    """User and system time, that of ended children (`haproxy -c`) included."""


class Controller:
    """A controller that runs."""

    def __init__(self, process: trio.Process, state: Path) -> None:
        self.log = Log()
        self._process = process
        self._state = state

    def usage(self) -> Usage:
        """Return what it has used so far."""
        proc = Path("/proc") / str(self._process.pid)
        fields = (proc / "stat").read_text().rpartition(")")[2].split()
        ticks = sum(map(int, fields[11:15]))
        status = (proc / "status").read_text().split("\n")
        resident = next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
        return Usage(resident / 1024, ticks / TICKS)

    def haproxies(self) -> Iterator[ProcessRecord]:
        """Yield the records of its HAProxy masters that live."""
        for path in (self._state / "instances").glob("*/process.json"):
            record = read_record(path)
            if record is not None and is_alive(record):
                yield record

    async def count_reloads(self) -> int:
        """Return how often its HAProxy processes were reloaded, as they count it themselves."""
        clients = [MasterClient(Path(record.sockets) / "master.sock", endpoint="bench") for record in self.haproxies()]
        return sum([(await client.fetch_state()).reloads for client in clients])

    async def listen(self) -> None:
        """Take in its log until it ends."""
        assert self._process.stderr is not None
        rest = b""
        async for chunk in self._process.stderr:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self.log.take(line.decode(errors="replace"))
        self.log.end()

    async def end(self) -> None:
        """End it and its HAProxy processes: softly, then by force."""
        self._process.terminate()
        with trio.move_on_after(END_LIMIT):
            await self._process.wait()
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        for record in self.haproxies():
            # The workers end with their master.
            with suppress(ProcessLookupError):
                os.kill(record.pid, signal.SIGTERM)


@asynccontextmanager
async def run_controller(manifests: Path, state: Path) -> AsyncIterator[Controller]:
    """Run a controller over *manifests*, and its HAProxy, for the duration of the block."""
    command = [
        *(sys.executable, "-m", "haptic_trio", "serve", "--manifests", str(manifests), "--state-dir", str(state)),
        *("--listen", "127.0.0.1:0", "--on-exit", "stop", "--log-format", "json", "--log-level", "debug"),
    ]
    # A session of its own: Ctrl-C is for this process, which then ends the other in order.
    process = await trio.lowlevel.open_process(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    controller = Controller(process, state)
    async with trio.open_nursery() as nursery:
        try:
            nursery.start_soon(controller.listen)
            yield controller
        finally:
            with trio.CancelScope(shield=True):
                await controller.end()
            nursery.cancel_scope.cancel()
