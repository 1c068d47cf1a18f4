"""HTTP transport for an API server, with separate connections for short answers.

A write of a status or a lease is one small request and response, up to a
hundred times a second when many objects change. httpx's transport would use
more CPU for it than all other work for such an object. Streamed responses,
such as watches, still use httpx's transport.
"""

import ssl
import time
from collections.abc import Sequence
from typing import Any, Final

import h11
import httpx
import trio

from haptic_trio.http1 import Exchange

GOES_ON: Final = "haptic_goes_on"
"""The extension of a request with a streamed response."""
_IDLE_LIMIT: Final = 60.0
"""Seconds after which an idle connection is closed."""


class _Connection:
    """One connection, for one request at a time."""

    def __init__(self, stream: trio.abc.Stream, socket: trio.SocketStream) -> None:
        self.idle_since = 0.0
        self._socket = socket
        self._exchange = Exchange(stream)

    @property
    def is_usable(self) -> bool:
        """Whether another request may be sent: the server has neither closed the connection nor sent data."""
        return not self._socket.socket.is_readable()

    async def exchange(self, request: httpx.Request, limit: float) -> tuple[httpx.Response, bool]:
        """Return the whole response, and whether the connection can be used again.

        Raises `httpx.TransportError`, also after *limit* seconds without data.
        """
        http, body = self._exchange, await request.aread()
        http.silence = limit
        try:
            await http.send(request.method, request.url.raw_path, request.headers.raw, body)
            status, headers = await http.receive_head()
            content = bytearray()
            while data := await http.receive_some():
                content += data
            return httpx.Response(status, headers=list(headers), content=bytes(content)), http.renew()
        except trio.TooSlowError as error:
            raise httpx.ReadTimeout(f"no data within {limit:g} s") from error
        except h11.ProtocolError as error:
            raise httpx.RemoteProtocolError(str(error)) from error
        except trio.BrokenResourceError as error:
            raise httpx.ReadError(str(error.__cause__ or error)) from error
        except trio.ClosedResourceError as error:
            raise httpx.ReadError("the client is closed") from error

    async def aclose(self) -> None:
        """Close the connection at once, without a TLS shutdown, cancelled or not."""
        await trio.aclose_forcefully(self._socket)


class ApiTransport(httpx.AsyncBaseTransport):
    """Sends requests to one server: by *streams* if marked `GOES_ON`, else over its own HTTP/1.1 connections."""

    def __init__(
        self,
        streams: httpx.AsyncBaseTransport,
        context: ssl.SSLContext,
        socket_options: Sequence[tuple[int, int, int]] = (),
    ) -> None:
        self._streams = streams
        self._context = context
        self._socket_options = socket_options
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self._is_closed = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """See `httpx.AsyncBaseTransport`."""
        if request.extensions.get(GOES_ON):
            return await self._streams.handle_async_request(request)
        limits: dict[str, float | None] = request.extensions.get("timeout", {})
        connection = await self._take() or await self._open(request, limits.get("connect") or _IDLE_LIMIT)
        self._busy.add(connection)
        is_reusable = False
        try:
            response, is_reusable = await connection.exchange(request, limits.get("read") or _IDLE_LIMIT)
        finally:
            self._busy.discard(connection)
            if is_reusable and not self._is_closed:
                connection.idle_since = time.monotonic()
                self._idle.append(connection)
            else:
                await connection.aclose()
        return response

    async def aclose(self) -> None:
        """Close all connections, those in use as well."""
        self._is_closed = True
        for connection in (*self._idle, *self._busy):
            await connection.aclose()
        self._idle.clear()
        await self._streams.aclose()

    async def _take(self) -> _Connection | None:
        """Return the most recently used connection that is usable; close connections that were idle too long."""
        while self._idle and time.monotonic() > self._idle[0].idle_since + _IDLE_LIMIT:
            await self._idle.pop(0).aclose()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
            await connection.aclose()
        return None

    async def _open(self, request: httpx.Request, limit: float) -> _Connection:
        host, is_secure = request.url.host, request.url.scheme == "https"
        name: Any = request.extensions.get("sni_hostname") or host
        socket: trio.SocketStream | None = None
        connection: _Connection | None = None
        try:
            with trio.fail_after(limit):
                socket = await trio.open_tcp_stream(host, request.url.port or (443 if is_secure else 80))
                for option in self._socket_options:
                    socket.setsockopt(*option)
                stream: trio.abc.Stream = socket
                if is_secure:
                    secure = trio.SSLStream(socket, self._context, server_hostname=name, https_compatible=True)
                    await secure.do_handshake()
                    stream = secure
            connection = _Connection(stream, socket)
        except trio.TooSlowError as error:
            raise httpx.ConnectTimeout(f"no connection within {limit:g} s") from error
        except trio.BrokenResourceError as error:
            raise httpx.ConnectError(str(error.__cause__ or error)) from error
        except OSError as error:
            raise httpx.ConnectError(str(error)) from error
        finally:
            if connection is None and socket is not None:
                await trio.aclose_forcefully(socket)
        return connection
