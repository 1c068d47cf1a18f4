"""HTTP/1.1 for the in-process API server: one task for each connection, answers whole or as a stream of chunks."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

import h11
import msgspec
import trio


class Request(msgspec.Struct, kw_only=True):
    """What the client asks."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    user: str = ""
    """Common name of the client certificate; empty without."""


class Answer(msgspec.Struct, kw_only=True):
    """A whole answer."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = {}


class Streamed(msgspec.Struct, kw_only=True):
    """An answer in chunks; the connection is cut without an end when they stop by `CutError`."""

    chunks: AsyncGenerator[bytes, None]


class CutError(Exception):
    """Close this connection at once."""


Handler: TypeAlias = Callable[[Request], Awaitable[Answer | Streamed]]

_GONE = (trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError, CutError)


async def serve_connection(stream: trio.SSLStream[trio.SocketStream], handler: Handler) -> None:
    """Answer the requests of one client until it leaves."""
    connection = h11.Connection(h11.SERVER)
    try:
        async with stream:
            await stream.do_handshake()
            user = _common_name(stream)
            while (request := await _receive(stream, connection)) is not None:
                request.user = user
                answer = await handler(request)
                if isinstance(answer, Answer):
                    await _send(stream, connection, answer)
                else:
                    await _send_stream(stream, connection, answer)
                if connection.our_state is h11.MUST_CLOSE:
                    return
                connection.start_next_cycle()
    except* _GONE:
        # Aborted by either side; there is no receiver for an error.
        pass


def _common_name(stream: trio.SSLStream[trio.SocketStream]) -> str:
    certificate = stream.getpeercert() or {}
    return next((value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"), "")


async def _receive(stream: trio.SSLStream[trio.SocketStream], connection: h11.Connection) -> Request | None:
    head: h11.Request | None = None
    body = bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(bytes(await stream.receive_some(65536)))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            target = urlsplit(head.target.decode())
            return Request(
                method=head.method.decode(),
                path=unquote(target.path),
                query=dict(parse_qsl(target.query, keep_blank_values=True)),
                headers={name.decode(): value.decode() for name, value in head.headers},
                body=bytes(body),
            )
        else:
            return None


async def _send(stream: trio.SSLStream[trio.SocketStream], connection: h11.Connection, answer: Answer) -> None:
    headers = {"content-type": "application/json", "content-length": str(len(answer.body)), **answer.headers}
    head = connection.send(h11.Response(status_code=answer.status, headers=list(headers.items())))
    body = connection.send(h11.Data(data=answer.body))
    end = connection.send(h11.EndOfMessage())
    await stream.send_all((head or b"") + (body or b"") + (end or b""))


async def _send_stream(stream: trio.SSLStream[trio.SocketStream], connection: h11.Connection, answer: Streamed) -> None:
    head = h11.Response(
        status_code=200, headers=[("content-type", "application/json"), ("transfer-encoding", "chunked")]
    )
    await stream.send_all(connection.send(head) or b"")
    async with trio.open_nursery() as nursery:

        async def notice_departure() -> None:
            # A client sends nothing on while it is answered.
            await stream.receive_some(1)
            nursery.cancel_scope.cancel(reason="the client has left")

        nursery.start_soon(notice_departure)
        async with aclosing(answer.chunks) as chunks:
            async for chunk in chunks:
                await stream.send_all(connection.send(h11.Data(data=chunk)) or b"")
        await stream.send_all(connection.send(h11.EndOfMessage()) or b"")
        nursery.cancel_scope.cancel(reason="the stream is at its end")
    if connection.our_state is not h11.DONE:
        raise CutError
