"""Clients that never rest, and hold whatever HAProxy answers against what was wanted at that time."""

import contextlib
import os
import random
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import trio

from tests.support.scenarios.wanted import MOVING, STABLE, Certificate, Wanted, host, serial_of

CLIENT_INTERVAL: Final = 0.004
"""Seconds between two requests of a client: the processors are for those who are tested."""
LINGERING: Final = 0.1
"""Seconds in which a former worker may still answer what it has accepted."""

_CONTEXT: Final = ssl.create_default_context()
_CONTEXT.check_hostname = False
_CONTEXT.verify_mode = ssl.CERT_NONE


class Answer(msgspec.Struct, frozen=True):
    """What came back for one request on a connection of its own."""

    status: int
    body: str
    text: str
    mark: str
    certificate: bytes = b""
    """As TLS shows it; empty without TLS."""

    @property
    def serial(self) -> int:
        """The serial number of the certificate; 0 without TLS."""
        return serial_of(self.certificate) if self.certificate else 0


async def ask(
    open_stream: Callable[[], Awaitable[trio.SocketStream]], name: str, *, tls: bool, server_name: str = STABLE
) -> Answer:
    """Send one request for the host *name*; raises OSError or BrokenResourceError when there is no whole answer."""
    async with AsyncExitStack() as stack:
        stream: trio.abc.Stream = await stack.enter_async_context(await open_stream())
        certificate = b""
        if tls:
            secure = trio.SSLStream(stream, _CONTEXT, server_hostname=server_name, https_compatible=True)
            stream = await stack.enter_async_context(secure)
            await secure.do_handshake()
            certificate = secure.getpeercert(binary_form=True)
        await stream.send_all(f"GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join([chunk async for chunk in stream])
    head, end, body = answer.decode().partition("\r\n\r\n")
    if not end:
        raise trio.BrokenResourceError("no whole answer")
    first, *lines = head.split("\r\n")
    headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in lines)}
    return Answer(int(first.split()[1]), body, headers.get("x-text", ""), headers.get("x-mark", ""), certificate)


@asynccontextmanager
async def answering(body: str) -> AsyncIterator[int]:
    """Answer every request with *body*, over connections that are kept, until HAProxy is gone; yields the port."""
    async with trio.open_nursery() as nursery:
        yield await start_answering(nursery, body)
        nursery.cancel_scope.cancel()


async def start_answering(nursery: trio.Nursery, body: str) -> int:
    """Answer every request with *body* in *nursery*; return the port."""
    answer = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            with contextlib.suppress(trio.BrokenResourceError):
                while await stream.receive_some():
                    await stream.send_all(answer)

    listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
    port: int = listeners[0].socket.getsockname()[1]
    return port


class Window:
    """The configurations that may be seen now: the last one that everything had come to, and those wanted since."""

    def __init__(self, first: Wanted) -> None:
        self._wanted = [first]
        self._reached: list[tuple[int, float]] = [(0, 0.0)]
        self._outages = 0
        self._last_outage = -1.0

    @property
    def newest(self) -> Wanted:
        """The one that is wanted now."""
        return self._wanted[-1]

    @property
    def open(self) -> Sequence[Wanted]:
        """All of them."""
        return self._wanted[self._reached[-1][0] :]

    @property
    def all(self) -> Sequence[Wanted]:
        """Those, and what was wanted before."""
        return self._wanted

    def want(self, wanted: Wanted) -> None:
        """Have *wanted* from now on; to be said before anybody can know."""
        self._wanted.append(wanted)

    def reach(self) -> None:
        """Everything has come to what is wanted."""
        self._reached.append((len(self._wanted) - 1, trio.current_time()))

    def begin_outage(self) -> None:
        """From now on an HAProxy may be dead."""
        self._outages += 1

    def end_outage(self) -> None:
        """It is up again, and what it had accepted is lost by now."""
        self._outages -= 1
        self._last_outage = trio.current_time()

    def had_outage(self, since: float) -> bool:
        """Whether a request that was sent at *since* may have met a dead HAProxy."""
        return self._outages > 0 or since <= self._last_outage + LINGERING

    def since(self, time: float) -> Sequence[Wanted]:
        """Return what may be seen by a request that was sent at *time* and is answered now."""
        first = next(number for number, reached in reversed(self._reached) if reached <= time - LINGERING or not number)
        return self._wanted[first:]


def find_fault(answer: Answer, name: str, window: Sequence[Wanted], certificates: Sequence[Certificate]) -> str:
    """Return what is wrong with *answer* for the host *name*; empty if it is of the configurations in *window*."""
    if answer.text not in {str(one.text) for one in window}:
        return f"haproxy.cfg is that of {answer.text}"
    if answer.mark not in {str(one.mark) for one in window}:
        return f"the map is that of {answer.mark}"
    if answer.serial and answer.serial not in {certificates[one.certificate].serial for one in window}:
        return f"the certificate is {answer.serial}"
    expected = _expected(name, window)
    if (answer.status, answer.body if answer.status == 200 else "") not in expected:
        return f"{name} is answered with {answer.status} {answer.body[:60]!r}, not with {sorted(expected)}"
    return ""


def _expected(name: str, window: Sequence[Wanted]) -> set[tuple[int, str]]:
    if name == STABLE:
        return {(200, str(number)) for one in window for number in one.servers}
    if name == MOVING:
        return {(200, str(one.route)) for one in window}
    number = int(name.partition(".")[0][1:])
    return {(200, str(number % 4)) if number in one.hosts else (404, "") for one in window}


class Witness:
    """Sends requests to one port in clear and one with TLS, and notes what must not be."""

    def __init__(self, window: Window, certificates: Sequence[Certificate], port: int, https: int) -> None:
        self.answers = 0
        self.faults: list[str] = []
        self.failures: list[str] = []
        """Requests without an answer while every HAProxy was alive."""
        self.lost = Counter[str]()
        """Requests without an answer while one was dead."""
        self._window = window
        self._certificates = certificates
        self._open = {
            False: partial(trio.open_tcp_stream, "127.0.0.1", port),
            True: partial(trio.open_tcp_stream, "127.0.0.1", https),
        }

    async def run(self, rng: random.Random, *, tls: bool) -> None:
        """Send one request after another until cancelled."""
        while True:
            await self._send(rng, tls=tls)
            await trio.sleep(CLIENT_INTERVAL)

    async def _send(self, rng: random.Random, *, tls: bool) -> None:
        hosts = {number for one in self._window.open for number in one.hosts}
        name = rng.choice([STABLE, STABLE, MOVING, *map(host, sorted(hosts))])
        began = trio.current_time()
        try:
            answer = await ask(self._open[tls], name, tls=tls)
        except (OSError, trio.BrokenResourceError) as exc:
            cause = f"{type(exc).__name__}: {exc} {exc.__cause__ or ''}"
            if self._window.had_outage(began):
                self.lost[type(exc).__name__] += 1
            else:
                self.failures.append(f"{began:.3f} {name}: {cause}")
            return
        self.answers += 1
        fault = find_fault(answer, name, self._window.since(began), self._certificates)
        if fault:
            self.faults.append(f"{began:.3f} to {trio.current_time():.3f}: {fault}")


async def shows(directory: Path, wanted: Wanted, certificates: Sequence[Certificate]) -> bool:
    """Whether the HAProxy in *directory* answers as *wanted*, in every respect."""

    plain = partial(_open_unix, directory / "observe.sock")
    secure = partial(_open_unix, directory / "observe-tls.sock")
    try:
        # A round for each server, and one more.
        names = [STABLE] * (len(wanted.servers) + 1) + [MOVING, *map(host, wanted.hosts)]
        answers = [(name, await ask(plain, name, tls=False)) for name in names]
        answers.append((STABLE, await ask(secure, STABLE, tls=True)))
    except (OSError, trio.BrokenResourceError):
        return False
    bodies = {answer.body for name, answer in answers if name == STABLE}
    return bodies == set(map(str, wanted.servers)) and not any(
        find_fault(answer, name, [wanted], certificates) for name, answer in answers
    )


async def _open_unix(path: Path) -> trio.SocketStream:
    # A path may be longer than the address of a socket.
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        return await trio.open_unix_socket(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)
