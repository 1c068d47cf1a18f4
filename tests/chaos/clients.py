"""Clients that never repeat a request, and compare each answer with what was wanted at that time."""

import contextlib
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec
import trio

from tests.chaos.desired import App, Desired

PAUSE: Final = 0.01
"""Seconds between two requests of a client: the processors are for the programs under test."""
PATIENCE: Final = 60.0
"""Seconds for which a client waits for an answer: longer than any process is stopped."""
KEPT: Final = 20
"""Requests on a connection that is kept."""

Span = tuple[float, float]
"""Two times."""

_CONTEXT: Final = ssl.create_default_context()
_CONTEXT.check_hostname = False
_CONTEXT.verify_mode = ssl.CERT_NONE
_BROKEN: Final = (OSError, trio.BrokenResourceError, trio.TooSlowError, ValueError, IndexError)


class Loss(msgspec.Struct, frozen=True):
    """A request without the wanted status."""

    began: float
    ended: float
    text: str
    cut: bool
    """The connection was accepted, and ended without an answer."""

    def is_within(self, spans: Sequence[Span]) -> bool:
        """Whether the request was under way in one of *spans*."""
        return any(begin <= self.ended and self.began <= end for begin, end in spans)


class Clients:
    """Several clients, and their counts."""

    def __init__(self, desired: Desired, http: int, https: int) -> None:
        self.requests = 0
        self.closed = 0
        """Kept connections that were closed at the moment of the next request, which every client must expect."""
        self.lost: list[Loss] = []
        self.wrong: list[str] = []
        self._desired = desired
        self._http = http
        self._https = https
        self._number = 0
        self._answered = trio.Event()

    async def run(self) -> None:
        """Send requests until cancelled."""
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(self._send_each_on_its_own, self._http)
            nursery.start_soon(self._send_each_on_its_own, self._https)
            nursery.start_soon(self._keep_connections)

    async def some(self, number: int) -> None:
        """Return after *number* more requests."""
        goal = self.requests + number
        with trio.fail_after(PATIENCE):
            while self.requests < goal:
                await self._answered.wait()

    async def _send_each_on_its_own(self, port: int) -> None:
        while True:
            await self._converse(port, 1)
            await trio.sleep(PAUSE)

    async def _keep_connections(self) -> None:
        while True:
            await self._converse(self._http, KEPT)

    async def _converse(self, port: int, requests: int) -> None:
        app = self._next_app()
        began = trio.current_time()
        stream: trio.abc.Stream | None = None
        try:
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            if port == self._https:
                stream = await self._shake_hands(stream, app)
            for number in range(requests):
                if number:
                    # The first one began with the connection: a busy client may send it after that was cut.
                    began = trio.current_time()
                if not await self._request(stream, app, is_last=number == requests - 1, is_first=not number):
                    return
                if requests > 1:
                    await trio.sleep(PAUSE)
                    app = self._next_app()
        except _BROKEN as exc:
            self.requests += 1
            self.lost.append(Loss(began, trio.current_time(), f"{app.host}: {exc!r}", stream is not None))
        finally:
            if stream is not None:
                with trio.CancelScope(shield=True):
                    await trio.aclose_forcefully(stream)

    def _next_app(self) -> App:
        self._number += 1
        return self._desired.apps[self._number % len(self._desired.apps)]

    async def _shake_hands(self, stream: trio.abc.Stream, app: App) -> trio.abc.Stream:
        secure = trio.SSLStream(stream, _CONTEXT, server_hostname=app.host, https_compatible=True)
        expect = self._expectation(lambda: app.certificates)
        with trio.fail_after(PATIENCE):
            await secure.do_handshake()
        serial = app.serial_of(secure.getpeercert(binary_form=True))
        if serial not in expect():
            self.wrong.append(f"{app.host}: certificate {serial}, wanted {expect()}")
        return secure

    async def _request(self, stream: trio.abc.Stream, app: App, *, is_last: bool, is_first: bool) -> bool:
        """Send one request; return whether the connection may be used again."""
        began = trio.current_time()
        expect = self._expectation(lambda: app.servers)
        head = f"GET / HTTP/1.1\r\nHost: {app.host}\r\n{'Connection: close' if is_last else 'Accept: */*'}\r\n\r\n"
        answer = b""
        try:
            with trio.fail_after(PATIENCE):
                await stream.send_all(head.encode())
                while not _is_whole(answer):
                    chunk = await stream.receive_some()
                    if not chunk:
                        raise trio.BrokenResourceError(f"{len(answer)} bytes, then the end")
                    answer += chunk
        except _BROKEN:
            if not is_first and not answer:
                self.closed += 1
                return False
            raise
        self.requests += 1
        self._answered.set()
        self._answered = trio.Event()
        first, _, body = answer.decode().partition("\r\n\r\n")
        status = int(first.split()[1])
        name, _, number = body.partition("/")
        if status != 200:
            self.lost.append(Loss(began, trio.current_time(), f"{app.host}: status {status}", cut=False))
        elif name != app.name or int(number) not in expect():
            self.wrong.append(f"{app.host}: answer {body}, wanted {app.name}/{expect()}")
        return not is_last and b"connection: close" not in first.lower().encode()

    def _expectation(self, read: Callable[[], frozenset[int]]) -> Callable[[], frozenset[int]]:
        """Return what an answer may come from, once it is there: what is allowed then, or was at the beginning."""
        return partial(_either, read(), read)

    def lost_without_reason(self, cuts: Sequence[Span], dark: Sequence[Span]) -> list[Loss]:
        """Return the losses that are neither of *dark*, when nothing served, nor cut connections within *cuts*."""
        return [loss for loss in self.lost if not (loss.is_within(dark) or (loss.cut and loss.is_within(cuts)))]


def _either(before: frozenset[int], read: Callable[[], frozenset[int]]) -> frozenset[int]:
    return before | read()


def _is_whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end:
        return False
    with contextlib.suppress(StopIteration):
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        return len(body) >= int(length.partition(b":")[2])
    # HAProxy's own errors end with the connection; the tests' backends say how long they are.
    return bool(head)
