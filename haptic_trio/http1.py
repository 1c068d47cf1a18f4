"""HTTP/1.1 exchanges over a Trio stream, and an httpx transport that closes cancelled connections.

httpcore closes a connection whose TLS handshake fails, but not one whose
handshake is cancelled: the socket would stay open until it is collected.
`ClosingBackend` closes it. httpx yields the body of a request from an
asynchronous generator, which nothing closes when the request is cancelled
while it is sent; `HttpTransport` replaces the generator by a plain iterator.
"""

import math
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import h11
import httpcore
import httpx
import trio

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
_CHUNK: Final = 65_536
_HEAD_BYTES: Final = 65_536
_UNPAUSED: Final = 16
"""Parts of a response that are handled in one step of the event loop."""
_DEFAULT_LIMITS: Final = httpx.Limits(max_connections=100, max_keepalive_connections=20)
HTTPCORE_ERRORS: Final = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.UnsupportedProtocol,
)
"""The base classes of the errors of httpcore; httpx has an error of the same name for each of their subclasses."""


class Exchange:
    """HTTP/1.1 client over *stream*, one request at a time; the caller closes the stream.

    Methods raise what *stream* raises, `h11.ProtocolError` for a response
    that is not HTTP, and `trio.TooSlowError` once no data has moved for
    `silence` seconds. After an error or a cancellation the connection cannot
    be used again.
    """

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.silence = math.inf
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)
        self._unpaused = 0
        """Parts of responses since other tasks could run."""

    async def send(self, method: str, target: str | bytes, headers: Headers, body: bytes = b"") -> None:
        """Send a whole request; *headers* include `host` and the length of *body*."""
        head = h11.Request(method=method, target=target, headers=list(headers))
        events = (head, h11.Data(body), h11.EndOfMessage()) if body else (head, h11.EndOfMessage())
        data = b"".join(self._http.send(event) or b"" for event in events)
        with trio.fail_after(self.silence):
            await self._stream.send_all(data)

    async def receive_head(self) -> tuple[int, Headers]:
        """Return the status of the response and its headers, their names in lower case.

        Raises `h11.RemoteProtocolError` if the server closes the connection without a response.
        """
        while not isinstance(event := await self._receive(), h11.Response):
            if not isinstance(event, h11.InformationalResponse):
                raise h11.RemoteProtocolError("the server closed the connection without a response")
        return event.status_code, list(event.headers)

    async def receive_some(self) -> bytes:
        """Return the next part of the response body; empty at its end."""
        event = await self._receive()
        return bytes(event.data) if isinstance(event, h11.Data) else b""

    def renew(self) -> bool:
        """Prepare for another request, after the end of a response; False if the server allows no other."""
        is_done = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        if is_done:
            self._http.start_next_cycle()
        return is_done

    async def _receive(self) -> Any:
        # One read may bring thousands of chunks or informational responses.
        self._unpaused += 1
        if self._unpaused >= _UNPAUSED:
            await trio.lowlevel.checkpoint()
            self._unpaused = 0
        while (event := self._http.next_event()) is h11.NEED_DATA:
            with trio.fail_after(self.silence):
                self._http.receive_data(bytes(await self._stream.receive_some(_CHUNK)))
            self._unpaused = 0
        return event


class HttpTransport(httpx.AsyncBaseTransport):
    """HTTP/1.1 for an `httpx.AsyncClient`, whose cancelled requests close their connections at once.

    httpx's own transport takes no network backend (it offers neither an
    argument nor its pool), so this one uses httpcore's public pools itself,
    and raises the errors of httpx.
    """

    def __init__(
        self,
        *,
        verify: ssl.SSLContext | bool = True,
        limits: httpx.Limits = _DEFAULT_LIMITS,
        proxy: str | None = None,
        socket_options: Iterable[tuple[int, int, int]] | None = None,
        network_backend: httpcore.AsyncNetworkBackend | None = None,
    ) -> None:
        """Proxies are `http`, `https` and `socks5` URLs, with a user and password if needed; ValueError for others.

        No proxy, certificate or credential of the environment is used.
        """
        context = verify if isinstance(verify, ssl.SSLContext) else httpx.create_ssl_context(verify, trust_env=False)
        options: dict[str, Any] = {
            "ssl_context": context,
            "max_connections": limits.max_connections,
            "max_keepalive_connections": limits.max_keepalive_connections,
            "keepalive_expiry": limits.keepalive_expiry,
            "network_backend": ClosingBackend() if network_backend is None else network_backend,
        }
        self._pool = _make_pool(proxy, socket_options, options)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """See `httpx.AsyncBaseTransport`."""
        stream = _Body(request.stream) if isinstance(request.stream, httpx.ByteStream) else request.stream
        assert isinstance(stream, httpx.AsyncByteStream)
        with _httpx_errors():
            response = await self._pool.handle_async_request(
                httpcore.Request(
                    method=request.method,
                    url=_url(request.url),
                    headers=request.headers.raw,
                    content=stream,
                    extensions=request.extensions,
                )
            )
        return httpx.Response(
            response.status,
            headers=response.headers,
            stream=_ResponseBody(response),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        with _httpx_errors():
            await self._pool.aclose()


def _make_pool(
    proxy: str | None, socket_options: Iterable[tuple[int, int, int]] | None, options: dict[str, Any]
) -> httpcore.AsyncConnectionPool:
    if proxy is None:
        return httpcore.AsyncConnectionPool(socket_options=socket_options, **options)
    # Splits credentials off, and rejects schemes other than http, https and socks5.
    parsed = httpx.Proxy(proxy)
    url = _url(parsed.url)
    if parsed.url.scheme in {"socks5", "socks5h"}:
        return httpcore.AsyncSOCKSProxy(url, proxy_auth=parsed.raw_auth, **options)
    return httpcore.AsyncHTTPProxy(
        url,
        proxy_auth=parsed.raw_auth,
        proxy_headers=parsed.headers.raw,
        socket_options=socket_options,
        **options,
    )


def _url(url: httpx.URL) -> httpcore.URL:
    return httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)


@contextmanager
def _httpx_errors() -> Iterator[None]:
    """Raise errors of httpcore as the errors of httpx that have the same names."""
    try:
        yield
    except HTTPCORE_ERRORS as error:
        raise getattr(httpx, type(error).__name__)(str(error)) from error


class _ResponseBody(httpx.AsyncByteStream):
    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    def __aiter__(self) -> AsyncIterator[bytes]:
        # No generator: it would not be closed where the reader stops early.
        stream = self._response.stream
        assert isinstance(stream, AsyncIterable)
        return _ResponseChunks(aiter(stream))

    async def aclose(self) -> None:
        with _httpx_errors():
            await self._response.aclose()


class _ResponseChunks(AsyncIterator[bytes]):
    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks

    async def __anext__(self) -> bytes:
        with _httpx_errors():
            return await anext(self._chunks)


class _Body(httpx.AsyncByteStream):
    """The body of a request that is in memory."""

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
    """httpcore's own backend for Trio; a stream whose TLS handshake is cancelled is closed."""

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
                    scope.cancel(reason="the TLS handshake was cancelled or failed")
                    await self._stream.aclose()
        # Through a proxy, the connection may have a second handshake.
        return _ClosingStream(secure)
