"""A client that sends at a constant rate, each request on a new connection, in a process of its own.

python -m tools.bench.rig.load PORT RATE HOST …    answers each byte of its standard input with a line of counts

None of its connections waits for another one, so that what is slow does not
hide what fails; and its time is neither the controller's nor the prober's.
"""

import contextlib
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from tools.bench.rig.traffic import ANSWER_LIMIT, LOOPBACK, read_answer

STDIN = 0


class Counts(msgspec.Struct, frozen=True):
    """What was sent and answered, and how much of it not with 200."""

    sent: int = 0
    errors: int = 0


class Background:
    """The client, seen from outside."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def counts(self) -> Counts:
        """Return the counts so far."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"?")
        self._process.stdin.flush()
        return msgspec.json.decode(self._process.stdout.readline(), type=Counts)


@contextmanager
def run_background(port: int, hosts: Sequence[str], rate: float) -> Iterator[Background]:
    """Send *rate* requests a second, to one of *hosts* after another, for the duration of the block."""
    command = [sys.executable, "-m", "tools.bench.rig.load", str(port), str(rate), *hosts]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            yield Background(process)
        finally:
            process.terminate()


class _Exchange:
    """One request."""

    def __init__(self, address: tuple[str, int], request: bytes) -> None:
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.since = time.monotonic()
        self._request = request
        self._answer = bytearray()
        with contextlib.suppress(BlockingIOError):
            self.socket.connect(address)

    def go_on(self) -> bool | None:
        """Do what can be done; return whether it was answered with 200 once that is known."""
        try:
            if self._request:
                self.socket.sendall(self._request)
                self._request = b""
                return None
            chunk = self.socket.recv(4096)
        except OSError:
            return False
        self._answer += chunk
        return None if chunk else read_answer(self._answer).status == 200

    @property
    def waits_for(self) -> int:
        """What its socket has to be ready for."""
        return select.EPOLLOUT if self._request else select.EPOLLIN


class _Client:
    def __init__(self, port: int, hosts: Sequence[str]) -> None:
        self._address = (LOOPBACK, port)
        self._requests = [f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode() for host in hosts]
        self._started = 0
        self._sent = 0
        self._errors = 0
        self._open: dict[int, _Exchange] = {}
        self._poll = select.epoll()
        self._poll.register(STDIN, select.EPOLLIN)

    def run(self, rate: float) -> None:
        """Send *rate* requests a second until standard input ends."""
        begin = time.monotonic()
        while self._serve(begin + self._started / rate):
            self._start()

    def _start(self) -> None:
        exchange = _Exchange(self._address, self._requests[self._started % len(self._requests)])
        self._started += 1
        self._open[exchange.socket.fileno()] = exchange
        self._poll.register(exchange.socket, exchange.waits_for)

    def _serve(self, until: float) -> bool:
        """Serve what is open until a moment of the monotonic clock; False when standard input has ended."""
        while True:
            left = until - time.monotonic()
            for descriptor, _events in self._poll.poll(max(0.0, left)):
                if descriptor != STDIN:
                    self._go_on(descriptor)
                elif not os.read(STDIN, 1):
                    return False
                else:
                    sys.stdout.write(msgspec.json.encode(Counts(self._sent, self._errors)).decode() + "\n")
                    sys.stdout.flush()
            if left <= 0:
                break
        limit = time.monotonic() - ANSWER_LIMIT
        for descriptor in [each for each, exchange in self._open.items() if exchange.since < limit]:
            self._end(descriptor, is_good=False)
        return True

    def _go_on(self, descriptor: int) -> None:
        exchange = self._open[descriptor]
        is_good = exchange.go_on()
        if is_good is None:
            self._poll.modify(descriptor, exchange.waits_for)
        else:
            self._end(descriptor, is_good=is_good)

    def _end(self, descriptor: int, *, is_good: bool) -> None:
        self._poll.unregister(descriptor)
        self._open.pop(descriptor).socket.close()
        self._sent += 1
        self._errors += not is_good


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        _Client(int(sys.argv[1]), sys.argv[3:]).run(float(sys.argv[2]))
