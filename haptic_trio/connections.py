"""What the HTTP client uses, such that nothing is left to be collected when a request is cancelled on the way.

httpcore closes a connection whose TLS handshake fails, but not one whose
handshake is cancelled: the socket would stay open until it is collected. The
body of a request is an asynchronous generator of httpx's, which nobody closes
when it is cancelled while it is sent.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpcore
import httpx
import trio


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
