"""Echo server behind every server line of a test."""

import socket
import ssl
from collections.abc import Mapping
from typing import Final

import h11
import msgspec
import trio

from haptic_trio.config.assertions import Answer
from haptic_trio.validation_tests.live.certificates import server_context
from haptic_trio.validation_tests.live.isolation import Server

_HANDSHAKE: Final = 0x16
_PROXY_V1: Final = b"PROXY "
_PROXY_V2: Final = b"\r\n\r\n\0\r\nQUIT\n"
_MOST: Final = 65_536
_ENDS: Final = (trio.BrokenResourceError, trio.ClosedResourceError, h11.ProtocolError, ssl.SSLError, OSError)


class Arrival(msgspec.Struct, frozen=True):
    """A request that reached a server."""

    server: Server
    method: str
    path: str
    headers: dict[str, list[str]]
    """Headers by lower-case name."""


class Echo:
    """One listener for all servers: the source address of a connection identifies the server."""

    def __init__(self, servers: Mapping[str, Server]) -> None:
        """*servers* are keyed by the source address of connections to them."""
        self._servers = servers
        self.answer = Answer()
        self.arrivals: list[Arrival] = []

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer the requests of one connection until it ends."""
        async with stream:
            try:
                server = self._servers.get(stream.socket.getpeername()[0])
                if server is not None:
                    await self._converse(await _enter(stream), server)
            except _ENDS:
                return

    async def _converse(self, stream: trio.abc.Stream, server: Server) -> None:
        connection = h11.Connection(h11.SERVER)
        while True:
            event = await next_event(connection, stream)
            if isinstance(event, h11.Request):
                self.arrivals.append(_arrival(server, event))
            elif isinstance(event, h11.EndOfMessage):
                await self._answer(connection, stream)
                if connection.our_state is not h11.DONE:
                    return
                connection.start_next_cycle()
            elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
                return

    async def _answer(self, connection: h11.Connection, stream: trio.abc.Stream) -> None:
        answer = self.answer
        body = answer.body.encode()
        headers = [*answer.headers.items(), ("Content-Length", str(len(body)))]
        head = connection.send(h11.Response(status_code=answer.status, headers=headers))
        content = connection.send(h11.Data(data=body)) if body else b""
        end = connection.send(h11.EndOfMessage())
        await stream.send_all((head or b"") + (content or b"") + (end or b""))


async def next_event(connection: h11.Connection, stream: trio.abc.Stream) -> h11.Event | type[h11.PAUSED]:
    """Return the next event of *connection*, reading from *stream* as needed."""
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Event) or event is h11.PAUSED:
            return event
        connection.receive_data(bytes(await stream.receive_some(_MOST)))


async def _enter(stream: trio.SocketStream) -> trio.abc.Stream:
    """Skip a PROXY header, and use TLS if the client does."""
    first = await _peek(stream, len(_PROXY_V2))
    if first.startswith(_PROXY_V1):
        while await stream.receive_some(1) not in {b"\n", b""}:
            pass
        first = await _peek(stream, 1)
    elif first == _PROXY_V2:
        head = await _read_exactly(stream, 16)
        await _read_exactly(stream, int.from_bytes(head[14:16], "big"))
        first = await _peek(stream, 1)
    if first[:1] != bytes([_HANDSHAKE]):
        return stream
    # The context is created before the first connection.
    return trio.SSLStream(stream, server_context(), server_side=True, https_compatible=True)


async def _peek(stream: trio.SocketStream, count: int) -> bytes:
    return await stream.socket.recv(count, socket.MSG_PEEK)


async def _read_exactly(stream: trio.SocketStream, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := await stream.receive_some(count - len(data))):
        data += more
    return data


def _arrival(server: Server, request: h11.Request) -> Arrival:
    headers: dict[str, list[str]] = {}
    for name, value in request.headers:
        headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return Arrival(server, request.method.decode("latin-1"), request.target.decode("latin-1"), headers)
