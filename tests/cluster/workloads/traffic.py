"""Clients of the load balancer that never rest: every answer that is late, cut off, or not 200 is a failure."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import msgspec
import trio

ANSWER_LIMIT: Final = 20.0
"""Seconds after which an answer is not waited for any more; a machine that is busy with other things answers late."""
INTERVAL: Final = 0.01
"""Seconds between two requests of a client: the processors are for those who are tested."""

_CONTEXT: Final = ssl.create_default_context()
_CONTEXT.check_hostname = False
_CONTEXT.verify_mode = ssl.CERT_NONE

Open = Callable[[], Awaitable[trio.SocketStream]]
"""Connects; raises OSError."""


class BadAnswerError(Exception):
    """There was no whole answer; the text says what there was instead."""


class CutOffError(BadAnswerError):
    """An answer had begun, and did not end."""


class Answer(msgspec.Struct, frozen=True):
    """What came back for one request."""

    status: int
    headers: dict[str, str]
    """By lower-case name."""
    body: bytes
    certificate: bytes = b""
    """As TLS shows it; empty without TLS."""


async def send_request(open_stream: Open, host: str, *, tls: bool = False) -> Answer:
    """Send one request on a connection of its own; raises BadAnswerError."""
    try:
        with trio.fail_after(ANSWER_LIMIT):
            async with AsyncExitStack() as stack:
                stream: trio.abc.Stream = await stack.enter_async_context(await open_stream())
                certificate = b""
                if tls:
                    secure = trio.SSLStream(stream, _CONTEXT, server_hostname=host, https_compatible=True)
                    stream = await stack.enter_async_context(secure)
                    await secure.do_handshake()
                    certificate = secure.getpeercert(binary_form=True)
                return msgspec.structs.replace(
                    await _exchange(stream, host, "Connection: close\r\n"), certificate=certificate
                )
    except (OSError, trio.BrokenResourceError, trio.TooSlowError) as exc:
        raise BadAnswerError(f"{type(exc).__name__}: {exc} {exc.__cause__ or ''}".strip()) from exc


async def _exchange(stream: trio.abc.Stream, host: str, headers: str = "") -> Answer:
    await stream.send_all(f"GET / HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n".encode())
    received = b""
    while b"\r\n\r\n" not in received:
        received += await _receive(stream, received)
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    found = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    while len(body) < int(found.get("content-length", 0)):
        body += await _receive(stream, received)
    return Answer(int(first.split()[1]), found, body)


async def _receive(stream: trio.abc.Stream, received: bytes) -> bytes:
    chunk = await stream.receive_some(65536)
    if not chunk:
        raise (CutOffError if received else BadAnswerError)(f"the connection ended after {received[:80]!r}")
    return bytes(chunk)


class Traffic:
    """What the clients of some hosts have seen."""

    def __init__(self, connect: Callable[[bool], Open], *hosts: str, tls_host: str = "") -> None:
        """*connect* gives what connects, with TLS to come or without; *tls_host* gets a client over TLS as well."""
        self.hosts = list(hosts)
        """Each is asked for in turn; a test may add and remove some."""
        self.answered = 0
        self.failures: list[tuple[float, str, str]] = []
        """Trio's time of the request, the host, and what was wrong."""
        self.kept_answered = 0
        self.kept_lost = 0
        """Ends of kept connections that a request met; it was right on the next one."""
        self._connect = connect
        self._tls_host = tls_host

    async def run(self) -> None:
        """Ask until cancelled: on new connections, on one that is kept, and over TLS where that is wanted."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_fresh)
            nursery.start_soon(self._run_kept)
            if self._tls_host:
                nursery.start_soon(self._run_secure)

    async def _run_fresh(self) -> None:
        turn = 0
        while True:
            turn += 1
            await self._ask(self.hosts[turn % len(self.hosts)], tls=False)
            await trio.sleep(INTERVAL)

    async def _run_secure(self) -> None:
        while True:
            await self._ask(self._tls_host, tls=True)
            await trio.sleep(2 * INTERVAL)

    async def _ask(self, host: str, *, tls: bool) -> None:
        began = trio.current_time()
        try:
            answer = await send_request(self._connect(tls), host, tls=tls)
        except BadAnswerError as exc:
            self.failures.append((began, host, str(exc)))
        else:
            self._judge(began, host, answer)

    def _judge(self, began: float, host: str, answer: Answer) -> None:
        if answer.status == 200:
            self.answered += 1
        else:
            self.failures.append((began, host, f"{answer.status} {answer.body[:60]!r}"))

    async def _run_kept(self) -> None:
        """Send requests over one connection for as long as it lasts, and then over the next."""
        host = self.hosts[0]
        while True:
            began, count = trio.current_time(), 0
            try:
                with trio.fail_after(ANSWER_LIMIT):
                    stream = await self._connect(False)()
                async with stream:
                    while not await self._ask_kept(stream, host):
                        count += 1
                        self.kept_answered += 1
                        await trio.sleep(2 * INTERVAL)
            except (OSError, trio.BrokenResourceError, trio.TooSlowError, BadAnswerError) as exc:
                # An idle connection may be closed at any time; an answer may not be cut off.
                if count and not isinstance(exc, CutOffError):
                    self.kept_lost += 1
                else:
                    self.failures.append((began, host, f"on a connection that was kept for {count}: {exc!r}"))

    async def _ask_kept(self, stream: trio.SocketStream, host: str) -> bool:
        """Return whether the connection ends with this answer."""
        began = trio.current_time()
        with trio.fail_after(ANSWER_LIMIT):
            answer = await _exchange(stream, host)
        if answer.status != 200:
            self._judge(began, host, answer)
        return answer.headers.get("connection", "").lower() == "close"


@asynccontextmanager
async def flowing(traffic: Traffic) -> AsyncIterator[Traffic]:
    """Run *traffic* for the block; afterwards, AssertionError if any request has failed."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(traffic.run)
        yield traffic
        nursery.cancel_scope.cancel(reason="the test is over")
    assert traffic.failures == [], traffic.failures[:10]
    assert traffic.answered > 0
