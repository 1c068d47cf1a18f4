"""HTTP/1.1 exchanges over a Trio stream, and an httpx transport that closes cancelled connections.

httpcore closes a connection whose TLS handshake fails, but not one whose
handshake is cancelled: the socket would stay open until it is collected. The
body of a request is an asynchronous generator of httpx's, which nobody closes
when it is cancelled while it is sent.
"""

import math
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final, TypeAlias

import h11
import httpcore
import httpx
import trio

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
_CHUNK: Final = 65_536
_HEAD_BYTES: Final = 65_536


class Exchange:
    """HTTP/1.1 over *stream*, which stays the caller's: one request at a time, its answer as it comes.

    Raises what *stream* raises, `h11.ProtocolError` for what is none, and
    `trio.TooSlowError` once nothing has moved for `silence` seconds. After
    any of that, or a cancellation, the connection is of no use.
    """

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.silence = math.inf
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)

    async def send(self, method: str, target: str | bytes, headers: Headers, body: bytes = b"") -> None:
        """Send a whole request; *headers* have what it needs, `host` and the length of *body* included."""
        head = h11.Request(method=method, target=target, headers=list(headers))
        events = (head, h11.Data(body), h11.EndOfMessage()) if body else (head, h11.EndOfMessage())
        data = b"".join(self._http.send(event) or b"" for event in events)
        with trio.fail_after(self.silence):
            # A server that answers before it has read everything will say why.
            await self._stream.send_all(data)

    async def receive_head(self) -> tuple[int, Headers]:
        """Return the status of the answer and its headers, their names in lower case."""
        while not isinstance(event := await self._receive(), h11.Response):
            if not isinstance(event, h11.InformationalResponse):
                raise h11.RemoteProtocolError("the server closed the connection without an answer")
        return event.status_code, list(event.headers)

    async def receive_some(self) -> bytes:
        """Return what comes next of the answer's body; empty at its end."""
        event = await self._receive()
        return bytes(event.data) if isinstance(event, h11.Data) else b""

    def renew(self) -> bool:
        """Be ready for another request, after the end of an answer; False where the server allows for no other."""
        is_done = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        if is_done:
            self._http.start_next_cycle()
        return is_done

    async def _receive(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            with trio.fail_after(self.silence):
                self._http.receive_data(bytes(await self._stream.receive_some(_CHUNK)))
        return event


def open_transport(**options: Any) -> httpx.AsyncHTTPTransport:
    """Return httpx's own transport, made with *options*, which leaves nothing behind on cancellation."""
    transport = _Transport(**options)
    # httpx offers no argument for it.
    transport._pool._network_backend = ClosingBackend()  # noqa: SLF001
    return transport


class _Transport(httpx.AsyncHTTPTransport):
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if isinstance(request.stream, httpx.ByteStream):
            request.stream = _Body(request.stream)
        return await super().handle_async_request(request)


class _Body(httpx.AsyncByteStream):
    """The body of a request, which is there as a whole."""

    def __init__(self, chunks: httpx.ByteStream) -> None:
        self._chunks = chunks

    def __aiter__(self) -> AsyncIterator[bytes]:
        return _Chunks(iter(self._chunks))


class _Chunks(AsyncIterator[bytes]):
    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks

    async def __anext__(self) -> bytes:
        try:
            return next(self._chunks)
        except StopIteration:
            raise StopAsyncIteration from None


class ClosingBackend(httpcore.AsyncNetworkBackend):
    """httpcore's own backend for Trio, with `_ClosingStream`s."""

    def __init__(self) -> None:
        self._backend = httpcore.TrioBackend()

    async def connect_tcp(self, *args: Any, **kwargs: Any) -> httpcore.AsyncNetworkStream:
        """See `httpcore.AsyncNetworkBackend.connect_tcp`."""
        return _ClosingStream(await self._backend.connect_tcp(*args, **kwargs))

    async def sleep(self, seconds: float) -> None:
        """See `httpcore.AsyncNetworkBackend.sleep`."""
        await self._backend.sleep(seconds)


class _ClosingStream(httpcore.AsyncNetworkStream):
    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream

    async def read(self, *args: Any, **kwargs: Any) -> bytes:
        return await self._stream.read(*args, **kwargs)

    async def write(self, *args: Any, **kwargs: Any) -> None:
        await self._stream.write(*args, **kwargs)

    async def aclose(self) -> None:
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    async def start_tls(self, *args: Any, **kwargs: Any) -> httpcore.AsyncNetworkStream:
        secure: httpcore.AsyncNetworkStream | None = None
        try:
            secure = await self._stream.start_tls(*args, **kwargs)
        finally:
            if secure is None:
                # Closes at once, cancelled or not.
                with trio.CancelScope() as scope:
                    scope.cancel(reason="nobody will use the connection")
                    await self._stream.aclose()
        # A proxy's connection may get a second handshake.
        return _ClosingStream(secure)
