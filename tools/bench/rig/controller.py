"""The controller in a process of its own: how it is started and ended, what it logs, and what it costs."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import trio

from haptic_trio.dataplane.endpoint import EndpointUnreachableError
from haptic_trio.dataplane.local.master import MasterClient
from haptic_trio.dataplane.local.process import PROC, ProcessRecord, is_alive, read_record
from haptic_trio.errors import HapticError

START_LIMIT = 300.0
END_LIMIT = 30.0
QUIET = 0.05
"""Seconds without a log line after which the controller has nothing to do but checks."""
QUIET_LIMIT = 60.0
LOOK_INTERVAL = 0.005
RELOAD_LIMIT = 10.0
TICKS = os.sysconf("SC_CLK_TCK")
_SAMPLE = re.compile(r'^haptic_fragments_total\{outcome="rendered"\} ([0-9.e+]+)$', re.MULTILINE)


class ControllerEndedError(HapticError):
    """The controller has ended by itself, or does not do what is waited for; its last words are in the message."""


class Line(msgspec.Struct, frozen=True):
    """A line of the controller's log."""

    at: float
    """Seconds since the epoch, by the controller itself."""
    event: str
    fields: Mapping[str, Any]

    @property
    def correlation(self) -> str:
        """The cycle that it belongs to; empty for none."""
        return str(self.fields.get("correlation", ""))


class Usage(msgspec.Struct, frozen=True):
    """What a process has used."""

    rss_mib: float
    peak_mib: float
    cpu_s: float
    """User and system time of its own."""
    check_cpu_s: float
    """The same of its children that have ended: `haproxy -c`."""


class Log:
    """What the controller has said, in a file, so that it is read when nothing is measured."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[Line] = []
        self._position = 0

    def read(self) -> list[Line]:
        """Take in what is new, and return all lines."""
        with self.path.open("rb") as file:
            file.seek(self._position)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._position += len(whole)
        for row in whole.splitlines():
            # Other lines, such as a traceback, are among the last words.
            with contextlib.suppress(ValueError, KeyError):
                fields = msgspec.json.decode(row, type=dict[str, Any])
                at = datetime.fromisoformat(fields.pop("timestamp")).timestamp()
                self.lines.append(Line(at, fields.pop("event"), fields))
        return self.lines

    def size(self) -> int:
        """Return how much there is by now."""
        return self.path.stat().st_size

    def last_words(self) -> str:
        """Return the end of it."""
        return "\n".join(self.path.read_text(errors="replace").splitlines()[-30:])


class Controller:
    """A controller that runs, with one HAProxy."""

    def __init__(self, process: subprocess.Popen[bytes], state: Path, log: Log) -> None:
        self.log = log
        self._process = process
        self._state = state

    def wait_for(self, where: Callable[[Line], bool], *, since: int, what: str) -> Line:
        """Return the first such line of those after the first *since*; raises ControllerEndedError."""
        deadline = time.monotonic() + START_LIMIT
        while time.monotonic() < deadline:
            found = next((line for line in self.log.read()[since:] if where(line)), None)
            if found is not None:
                return found
            self.check_alive()
            time.sleep(LOOK_INTERVAL)
        raise ControllerEndedError(f"no {what} within {START_LIMIT:g} s; last words:\n{self.log.last_words()}")

    def check_alive(self) -> None:
        """Raise ControllerEndedError if it has ended."""
        if self._process.poll() is not None:
            raise ControllerEndedError(f"the controller has ended; its last words:\n{self.log.last_words()}")

    def settle(self, quiet: float = QUIET) -> None:
        """Return when nothing has been logged for *quiet* seconds."""
        deadline = time.monotonic() + QUIET_LIMIT
        size, quiet_since = -1, 0.0
        while (now := time.monotonic()) < deadline:
            if (fresh := self.log.size()) != size:
                size, quiet_since = fresh, now
            elif now - quiet_since >= quiet:
                return
            time.sleep(LOOK_INTERVAL)

    def usage(self) -> Usage:
        """Return what it has used so far."""
        proc = PROC / str(self._process.pid)
        fields = (proc / "stat").read_text().rpartition(")")[2].split()
        own, children = sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))
        memory = {
            name: int(rest.split()[0]) / 1024
            for name, _, rest in (row.partition(":") for row in (proc / "status").read_text().splitlines())
            if name in {"VmRSS", "VmHWM"}
        }
        return Usage(memory["VmRSS"], memory["VmHWM"], own / TICKS, children / TICKS)

    def count_fragments(self) -> float:
        """Return how many fragments it has rendered, from its metrics; costs the controller some milliseconds."""
        line = self.wait_for(lambda line: line.event == "health and metrics are served", since=0, what="listener")
        with urllib.request.urlopen(f"{line.fields['addresses'][0]}/metrics", timeout=30) as answer:
            found = _SAMPLE.search(answer.read().decode())
        return float(found[1]) if found else 0.0

    def haproxies(self) -> Iterator[ProcessRecord]:
        """Yield the records of its HAProxy masters that live."""
        for path in (self._state / "instances").glob("*/process.json"):
            record = read_record(path)
            if record is not None and is_alive(record):
                yield record

    def masters(self) -> list[MasterClient]:
        """Return clients of its HAProxy masters."""
        return [MasterClient(Path(each.sockets) / "master.sock", endpoint="bench") for each in self.haproxies()]

    def count_reloads(self) -> int:
        """Return how often its HAProxy was reloaded, as HAProxy counts it itself."""

        async def fetch() -> int:
            return sum([(await client.fetch_state()).reloads for client in self.masters()])

        deadline = time.monotonic() + RELOAD_LIMIT
        while True:
            try:
                return trio.run(fetch)
            except EndpointUnreachableError:
                # A reloading master opens its listener again.
                if time.monotonic() > deadline:
                    raise
                time.sleep(LOOK_INTERVAL)

    def cut_profile(self) -> None:
        """Write the flame graph of the samples so far, and reset the sampler."""
        self._process.send_signal(signal.SIGUSR1)

    def end(self) -> None:
        """End it and its HAProxy: softly, then by force."""
        self._process.terminate()
        try:
            self._process.wait(END_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for record in self.haproxies():
            # The workers end with their master.
            with contextlib.suppress(ProcessLookupError):
                os.kill(record.pid, signal.SIGTERM)


@contextmanager
def run_controller(
    arguments: Sequence[str], state: Path, haproxy: Path, *, level: str, flame: Path | None = None
) -> Iterator[Controller]:
    """Run `haptic-trio serve` with *arguments* and its HAProxy for the duration of the block.

    With *flame* its threads are sampled, and a flame graph is written there
    when it ends; see `cut_profile`.
    """
    start = ["-m", "haptic_trio"] if flame is None else ["-m", "tools.bench.figures.sampler", str(flame)]
    command = [
        *(sys.executable, *start, "serve", *arguments, "--state-dir", str(state), "--haproxy", str(haproxy)),
        *("--listen", "127.0.0.1:0", "--on-exit", "stop", "--log-format", "json", "--log-level", level),
    ]
    # What configures our user's own controller shall not configure this one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HAPTIC_")}
    state.mkdir(parents=True, exist_ok=True)
    log = Log(state / "controller.log")
    with log.path.open("wb") as output:
        # A session of its own: Ctrl-C is for this process, which then ends the other in order.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, start_new_session=True
        )
    controller = Controller(process, state, log)
    try:
        yield controller
    finally:
        controller.end()
