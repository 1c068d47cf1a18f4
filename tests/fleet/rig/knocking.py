"""A client that opens so many connections a second, whatever becomes of them, in a process of its own.

python -m tests.fleet.rig.knocking PORT RATE   prints a line once the first answer has come; asked to end by the end of
its standard input, it prints what it has met, as JSON.
"""

import errno
import json
import select
import selectors
import socket
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import trio

REQUEST = b"GET / HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n"
PATIENCE = 10.0
"""Seconds that an answer may take."""
LISTED = 20


class Report(msgspec.Struct, frozen=True):
    """What a client has met."""

    opened: int
    answered: int
    seconds: float
    slowest: float
    refused: int
    """Connections that were refused, or reset before anything was answered to the handshake."""
    lost: int
    """Connections that were accepted, and ended without an answer."""
    faults: list[str]

    @property
    def rate(self) -> float:
        """Connections opened each second."""
        return self.opened / self.seconds if self.seconds else 0.0


class Knocker:
    """Opens connections at a steady rate; one that is late opens those it owes at once."""

    def __init__(self, port: int, rate: float) -> None:
        self._address = ("127.0.0.1", port)
        self._interval = 1.0 / rate
        self._selector = selectors.DefaultSelector()
        self._began: dict[socket.socket, float] = {}
        self._answers: dict[socket.socket, bytes] = {}
        self._oldest: deque[tuple[float, socket.socket]] = deque()
        self.counts = Counter[str]()
        self.faults: list[str] = []
        self.slowest = 0.0

    def run(self) -> Report:
        """Knock until standard input ends."""
        start = due = time.monotonic()
        reported = False
        while not select.select([sys.stdin], [], [], 0)[0]:
            now = time.monotonic()
            while due <= now:
                self._open(now)
                due += self._interval
            self._handle(max(0.0, due - time.monotonic()))
            if self.counts["answered"] and not reported:
                reported = True
                print("answered", flush=True)  # noqa: T201
        end = time.monotonic()
        while self._began and time.monotonic() < end + PATIENCE:
            self._handle(0.1)
        return Report(
            opened=self.counts["opened"],
            answered=self.counts["answered"],
            seconds=end - start,
            slowest=self.slowest,
            refused=self.counts["refused"],
            lost=self.counts["lost"] + len(self._began),
            faults=self.faults,
        )

    def _open(self, now: float) -> None:
        stream = socket.socket()
        stream.setblocking(False)
        self.counts["opened"] += 1
        code = stream.connect_ex(self._address)
        if code not in {0, errno.EINPROGRESS}:
            self._end(stream, "refused", errno.errorcode.get(code, str(code)))
            return
        self._began[stream] = now
        self._oldest.append((now, stream))
        self._selector.register(stream, selectors.EVENT_WRITE)

    def _handle(self, wait: float) -> None:
        for key, _events in self._selector.select(wait):
            stream = key.fileobj
            assert isinstance(stream, socket.socket)
            try:
                self._advance(stream)
            except OSError as exc:
                was_accepted = stream in self._answers
                self._end(stream, "lost" if was_accepted else "refused", repr(exc))
        while self._oldest and self._oldest[0][0] < time.monotonic() - PATIENCE:
            _, stream = self._oldest.popleft()
            if stream in self._began:
                self._end(stream, "lost", "no answer in time")

    def _advance(self, stream: socket.socket) -> None:
        if stream not in self._answers:
            code = stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._end(stream, "refused", errno.errorcode.get(code, str(code)))
                return
            stream.send(REQUEST)
            self._answers[stream] = b""
            self._selector.modify(stream, selectors.EVENT_READ)
            return
        chunk = stream.recv(65536)
        if chunk:
            self._answers[stream] += chunk
        elif self._answers[stream].startswith(b"HTTP/1.1 200 "):
            self.slowest = max(self.slowest, time.monotonic() - self._began[stream])
            self._end(stream, "answered")
        else:
            self._end(stream, "lost", repr(self._answers[stream][:60]))

    def _end(self, stream: socket.socket, how: str, why: str = "") -> None:
        self.counts[how] += 1
        if why and len(self.faults) < LISTED:
            self.faults.append(f"{time.monotonic():.3f} {how}: {why}")
        if self._began.pop(stream, None) is not None:
            self._selector.unregister(stream)
        self._answers.pop(stream, None)
        stream.close()


class Knocking:
    """A knocker at work."""

    report: Report | None = None
    """What it has met; there at the end."""


@asynccontextmanager
async def knocking(port: int, rate: float = 500.0) -> AsyncIterator[Knocking]:
    """Knock at *port* for as long as the block lasts, from the first answer on; the report is there afterwards."""
    knocking = Knocking()
    command = [sys.executable, "-m", "tests.fleet.rig.knocking", str(port), str(rate)]
    process = await trio.lowlevel.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with trio.fail_after(20):
            await process.stdout.receive_some()
        yield knocking
        await process.stdin.aclose()
        output = b""
        with trio.fail_after(PATIENCE + 5):
            while chunk := await process.stdout.receive_some():
                output += chunk
        knocking.report = msgspec.json.decode(output, type=Report)
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            await process.stdin.aclose()
            await process.stdout.aclose()


if __name__ == "__main__":
    found = Knocker(int(sys.argv[1]), float(sys.argv[2])).run()
    print(json.dumps(msgspec.to_builtins(found)), flush=True)  # noqa: T201
