"""Starts `haptic-trio` as processes of their own, quickly: forked from one that has imported everything already.

Starting Python and importing everything takes a second of processor time, most
of what a test that restarts hundreds of them would take.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import trio

from haptic_trio.dataplane.local.process import read_start_time
from tests.support.processes.forking import Order
from tests.support.processes.steps import StepFile

_ROOT = Path(__file__).parents[3]
END_LIMIT = 15.0
"""Seconds that a process may take to end after SIGTERM."""


class Program:
    """One `haptic-trio` command, started again and again; *name* is for its files below *root*."""

    def __init__(self, launcher: "Launcher", root: Path, name: str, arguments: Sequence[str]) -> None:
        self.name = name
        self.steps = StepFile(root / f"{name}.steps")
        self.pid = 0
        self.lives = 0
        self._launcher = launcher
        self._output = root / f"{name}.log"
        self._order = Order(list(arguments), str(self._output), str(root / f"{name}.steps"))

    @property
    def output(self) -> str:
        """What it has written, in all its lives."""
        return self._output.read_text() if self._output.exists() else ""

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self.pid != 0 and read_start_time(self.pid) is not None

    async def start(self) -> None:
        """Start it; returns before it has done anything."""
        self.pid = await self._launcher.launch(self._order)
        self.lives += 1

    def kill(self) -> None:
        """Kill it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    async def wait_gone(self) -> None:
        """Return when it is dead."""
        await wait_gone(self.pid)

    async def end(self) -> None:
        """Ask it to end, and make sure that it does."""
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
            with trio.move_on_after(END_LIMIT, shield=True):
                await self.wait_gone()
        self.kill()


class Launcher:
    """The process that forks; made by `launcher`."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._one_at_a_time = trio.Lock()

    async def launch(self, order: Order) -> int:
        """Start a process and return its pid."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        async with self._one_at_a_time:
            await self._process.stdin.send_all(msgspec.json.encode(order) + b"\n")
            answer = b""
            while not answer.endswith(b"\n"):
                answer += await self._process.stdout.receive_some()
        return int(answer)


@asynccontextmanager
async def launcher() -> AsyncIterator[Launcher]:
    """Run a launcher; what it has started is the caller's to end."""
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "tests.support.processes.forking"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=_ROOT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Launcher(process)
    finally:
        with trio.CancelScope(shield=True):
            await process.stdin.aclose()
            await process.stdout.aclose()
            process.kill()
            await process.wait()


async def wait_gone(pid: int) -> None:
    """Return when the process *pid* is dead; it need not be a child."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            await trio.lowlevel.wait_readable(descriptor)
        finally:
            os.close(descriptor)
