"""`haptic-trio debug` over a running demo, in a terminal of 80 columns, as a person uses it."""

import os
import re
import signal
import subprocess
import sys
from codecs import getincrementaldecoder
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from fcntl import ioctl
from pathlib import Path
from struct import pack
from termios import TIOCSWINSZ

import pytest
import trio

pytestmark = pytest.mark.haproxy

COLUMNS, LINES = 80, 24
LIMIT = 60.0
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
RUN = (sys.executable, "-m", "haptic_trio")


class Terminal:
    """The user's end of a terminal."""

    def __init__(self, end: int) -> None:
        self.shown = ""
        self.end = end
        self._decoder = getincrementaldecoder("utf-8")()

    async def wait_for(self, *words: str) -> None:
        """Return once all *words* have been drawn."""
        with trio.fail_after(LIMIT):
            while not all(word in self.drawn for word in words):
                await self._read()

    async def read_all_of(self, process: trio.Process) -> None:
        """Read on, so that *process* never waits for us, until it ends."""
        with trio.fail_after(LIMIT):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read_on)
                await process.wait()
                nursery.cancel_scope.cancel()
            with trio.move_on_after(0):
                await self._read_on()

    async def _read_on(self) -> None:
        while True:
            await self._read()

    async def _read(self) -> None:
        with suppress(BlockingIOError):
            self.shown += self._decoder.decode(os.read(self.end, 1 << 16))
            return
        await trio.lowlevel.wait_readable(self.end)

    @property
    def drawn(self) -> str:
        """What has been drawn so far, as text."""
        return CONTROL.sub("", self.shown)


@contextmanager
def open_terminal() -> Iterator[tuple[Terminal, int]]:
    """Open a terminal; yield the user's end, and the file descriptor for the program."""
    own, theirs = os.openpty()
    os.set_blocking(own, False)
    try:
        ioctl(theirs, TIOCSWINSZ, pack("HHHH", LINES, COLUMNS, 0, 0))
        yield Terminal(own), theirs
    finally:
        os.close(own)
        os.close(theirs)


@asynccontextmanager
async def running_demo(folder: Path, haproxy: Path) -> AsyncIterator[None]:
    """Run the demo until the block ends."""
    process = await trio.lowlevel.open_process(
        [*RUN, "demo", "--dir", str(folder), "--haproxy", str(haproxy)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        with trio.fail_after(LIMIT):
            guide = ""
            while "Ctrl-C" not in guide:
                guide += (await process.stdout.receive_some()).decode()
        yield
    finally:
        process.send_signal(signal.SIGINT)
        with trio.move_on_after(LIMIT, shield=True):
            await process.wait()
            await process.stdout.aclose()
    assert process.returncode == 0


async def test_debug_works_against_the_demo_in_80_columns(tmp_path: Path, haproxy_binary: Path) -> None:
    where = ["--state-dir", str(tmp_path / "state")]
    async with running_demo(tmp_path, haproxy_binary):
        with open_terminal() as (terminal, end):
            environment = {**os.environ, "TERM": "xterm-256color"}
            environment.pop("COLUMNS", None)
            live = await trio.lowlevel.open_process(
                [*RUN, "debug", *where], stdin=end, stdout=end, stderr=end, env=environment
            )
            await terminal.wait_for("Ready", "leader, 1 instance", "demo.localhost/")
            os.write(terminal.end, b"5")
            # What a new instance began with may be what is deployed first; then the outcome is `unchanged`.
            await terminal.wait_for("Reconciliations", "reconciliation completed")

            # This terminal is in charge of no program, so the signal of Ctrl-C is sent by hand.
            live.send_signal(signal.SIGINT)
            with trio.fail_after(LIMIT):
                assert await live.wait() == 0

        for verb, expected in (
            ("tasks", "pipeline.debounce"),
            ("channels", "changes"),
            ("stores", "ingresses"),
            ("config", "frontend"),
            ("events", "reconciliation completed"),
            ("explain demo.localhost", "Ingress"),
        ):
            with open_terminal() as (terminal, end):
                shown = await trio.lowlevel.open_process(
                    [*RUN, "debug", *verb.split(), *where], stdin=end, stdout=end, stderr=end
                )
                await terminal.read_all_of(shown)
                assert shown.returncode == 0, terminal.shown
                assert expected in terminal.shown

        look = await trio.run_process([*RUN, "debug", *where], capture_stdout=True)
        assert b"iteration 1" in look.stdout

        # A reader that has enough, such as `head`, is no failure, and gets no words about it.
        for verb in ("config", "events"):
            cut = await trio.lowlevel.open_process(
                [*RUN, "debug", verb, *where], stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            assert cut.stdout is not None
            assert cut.stderr is not None
            await cut.stdout.aclose()
            with trio.fail_after(LIMIT):
                async with cut.stderr:
                    assert b"".join([chunk async for chunk in cut.stderr]) == b""
                assert await cut.wait() == 0
