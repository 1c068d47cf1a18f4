"""Processes that an experiment starts, kills, stops and limits, and what /proc reports of them."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import trio

from haptic_trio.dataplane.local.process import read_record, read_start_time
from tests.support.processes.launcher import wait_gone
from tests.support.scenarios.thousand import resident

START_LIMIT: Final = 120.0
"""Seconds in which a program listens, however busy the machine is."""
LISTENING: Final = "served addresses="
"""Part of the log line of a program that listens."""
END_LIMIT: Final = 60.0
"""Seconds that a program has to end after SIGTERM, however busy the machine is."""


class Limits(msgspec.Struct, frozen=True):
    """Limits of a program and of the HAProxy processes that it starts."""

    descriptors: int = 0
    megabytes: int = 0
    """Of address space."""

    def wrap(self, command: Sequence[str]) -> list[str]:
        """Return *command* with these limits."""
        limits = [f"ulimit -n {self.descriptors}"] if self.descriptors else []
        limits += [f"ulimit -v {self.megabytes * 1024}"] if self.megabytes else []
        return ["sh", "-c", "; ".join([*limits, 'exec "$@"']), "sh", *command] if limits else list(command)


class Program:
    """One `haptic-trio` command, started again and again."""

    def __init__(self, name: str, root: Path, arguments: Sequence[str], limits: Limits) -> None:
        self.name = name
        self.lives = 0
        self._command = limits.wrap([sys.executable, "-m", "haptic_trio", *arguments])
        self._log = root / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._announced = 0

    @property
    def pid(self) -> int:
        """Its process; 0 when none is alive."""
        return self._process.pid if self._process is not None and self._process.poll() is None else 0

    @property
    def output(self) -> str:
        """What it has written, in all its lives."""
        return self._log.read_text() if self._log.exists() else ""

    def start(self) -> None:
        """Start it; returns before it has done anything."""
        self._announced = self.output.count(LISTENING)
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        self.lives += 1

    async def listens(self) -> None:
        """Return once it listens; raises AssertionError if it has ended."""
        with trio.fail_after(START_LIMIT):
            while self.output.count(LISTENING) == self._announced:
                assert self.pid, f"{self.name} has ended"
                await trio.sleep(0.05)

    async def kill(self) -> None:
        """Kill it; HAProxy goes on."""
        await self.end(signal.SIGKILL)

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send it a signal, and return how it ended; SIGKILL if it does not end within `END_LIMIT`."""
        process = self._process
        if process is None:
            return 0
        process.send_signal(signal.SIGCONT)
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return await trio.to_thread.run_sync(partial(process.wait, END_LIMIT))
        process.kill()
        return await trio.to_thread.run_sync(process.wait)


class Instance(msgspec.Struct, frozen=True):
    """A living HAProxy: its directory, its master, its workers with the newest first."""

    directory: Path
    sockets: Path
    master: int
    workers: tuple[int, ...]

    @property
    def pids(self) -> tuple[int, ...]:
        """All its processes."""
        return (self.master, *self.workers)


def living_instances(directories: Iterable[Path]) -> list[Instance]:
    """Return the HAProxy processes whose records are in *directories*."""
    found = []
    for directory in directories:
        record = read_record(directory / "process.json")
        if record is not None and read_start_time(record.pid) == record.start_time:
            workers = tuple(sorted(children_of(record.pid), reverse=True))
            found.append(Instance(directory, Path(record.sockets), record.pid, workers))
    return found


def children_of(pid: int) -> list[int]:
    """Return the children of a process."""
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


async def gone(pids: Iterable[int]) -> None:
    """Return when none of *pids* is alive."""
    for pid in pids:
        await wait_gone(pid)


def send(number: signal.Signals, *pids: int) -> None:
    """Send a signal to each of *pids* that is alive."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def descriptors_of(pid: int) -> int:
    """Return how many descriptors a process has open."""
    with contextlib.suppress(OSError):
        return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - the kernel's listing
    return 0


def megabytes_of(pid: int) -> float:
    """Return the resident memory of a process; 0 after its end."""
    # A zombie has no memory.
    with contextlib.suppress(OSError, StopIteration):
        return resident(pid) / 1024
    return 0.0


async def count_tasks(state: Path) -> int:
    """Return the number of tasks of the controller with the state directory *state*; 0 if it cannot be asked."""
    command = [sys.executable, "-m", "haptic_trio", "debug", "tasks", "--output", "json", "--state-dir", str(state)]
    answer = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    if answer.returncode:
        # A removed state directory has no address of the console any more.
        return 0
    total: int = msgspec.json.decode(answer.stdout)["total"]
    return total
