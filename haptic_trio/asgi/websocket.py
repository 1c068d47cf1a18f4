"""WebSocket session of one client, as a call of an ASGI application.

No extension is negotiated: a compressed message of a few kilobytes could
expand to any size before its length is known.
"""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final

import trio
import wsproto
import wsproto.events as ws
from starlette.types import ASGIApp, Message, Scope
from wsproto.connection import ConnectionState
from wsproto.utilities import ProtocolError

from haptic_trio.asgi.application import call_application
from haptic_trio.asgi.wire import DisconnectedError, Wire

_TOO_BIG: Final = 1009
_FAILED: Final = 1011
_ABNORMAL: Final = 1006


class WebSocketSession:
    """One session; messages of more than *message_bytes* end it."""

    def __init__(self, app: ASGIApp, wire: Wire, *, message_bytes: int) -> None:
        self._app = app
        self._wire = wire
        self._message_bytes = message_bytes
        self._protocol = wsproto.WSConnection(wsproto.ConnectionType.SERVER)
        self._events: Iterator[ws.Event] = iter(())
        self._parts: list[Any] = []
        self._size = 0
        self._early = b""
        """Bytes that the client sent before the session was accepted."""
        self._is_announced = False
        self._is_accepted = False
        self._is_rejected = False
        self._closed_by: Message | None = None
        """The end of the session as the application receives it; None while it is open."""

    async def run(self, scope: Scope, target: bytes, *, received: bytes) -> None:
        """Serve the session with the handshake *scope* until it ends; *received* are bytes after the handshake."""
        self._early = received
        if not await self._begin(scope, target):
            return
        session = {**scope, "type": "websocket", "subprotocols": [], "extensions": {"websocket.http.response": {}}}
        await call_application(self._app, session, self._receive, self._send, end=self._end)
        await self._wire.linger()

    async def _begin(self, scope: Scope, target: bytes) -> bool:
        try:
            self._protocol.initiate_upgrade_connection(scope["headers"], target)
        except (ProtocolError, ValueError):
            # ValueError: header fields that are not ASCII.
            await self._wire.send(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            await self._wire.linger()
            return False
        return True

    def _take(self, data: bytes) -> None:
        try:
            if data:
                self._protocol.receive_data(data)
        except ProtocolError:
            self._closed_by = _disconnect(_ABNORMAL)
        # Read one by one: what follows an event may change what can be sent.
        self._events = self._protocol.events()

    async def _end(self) -> None:
        if self._closed_by is not None or self._is_rejected:
            return
        if self._is_accepted:
            await self._send_event(ws.CloseConnection(code=_FAILED))
        else:
            status = int(HTTPStatus.INTERNAL_SERVER_ERROR)
            await self._send_event(ws.RejectConnection(status_code=status, headers=[(b"connection", b"close")]))

    async def _receive(self) -> Message:
        if not self._is_announced:
            self._is_announced = True
            return {"type": "websocket.connect"}
        while self._closed_by is None:
            if (event := await self._next_event()) is None:
                await self._read()
            elif (message := await self._take_event(event)) is not None:
                return message
        return self._closed_by

    async def _next_event(self) -> ws.Event | None:
        await self._wire.turns.take()
        try:
            # The application may have closed the session meanwhile.
            return next(self._events, None) if self._closed_by is None else None
        except ProtocolError:
            self._closed_by = _disconnect(_ABNORMAL)
            return None

    async def _read(self) -> None:
        # Reading an invalid event has closed the session; and the application may close it while this waits for data.
        data = b"" if self._closed_by is not None else await self._wire.read()
        if self._closed_by is None:
            if data:
                self._take(data)
            else:
                self._closed_by = _disconnect(_ABNORMAL)

    async def _take_event(self, event: ws.Event) -> Message | None:
        """Return what *event* means to the application, if anything."""
        if isinstance(event, ws.CloseConnection):
            if self._protocol.state is ConnectionState.REMOTE_CLOSING:
                await self._send_event(event.response())
            self._closed_by = _disconnect(event.code)
        elif isinstance(event, ws.Ping):
            await self._send_event(event.response())
        elif isinstance(event, ws.Message):
            return await self._take_part(event)
        return self._closed_by

    async def _take_part(self, event: ws.Message[Any]) -> Message | None:
        # Empty parts would take memory without an end.
        if event.data:
            self._parts.append(event.data)
        self._size += len(event.data)
        if self._size > self._message_bytes:
            await self._send_event(ws.CloseConnection(code=_TOO_BIG))
            self._closed_by = _disconnect(_TOO_BIG)
            return self._closed_by
        if not event.message_finished:
            return None
        parts, self._parts, self._size = self._parts, [], 0
        if isinstance(event, ws.TextMessage):
            return {"type": "websocket.receive", "text": "".join(parts)}
        return {"type": "websocket.receive", "bytes": b"".join(parts)}

    async def _send(self, message: Message) -> None:
        match message["type"]:
            case "websocket.accept":
                self._is_accepted = True
                await self._send_event(ws.AcceptConnection(extra_headers=list(message.get("headers", ()))))
                self._take(self._early)
            case "websocket.send" if message.get("text") is not None:
                await self._send_event(ws.TextMessage(data=message["text"]))
            case "websocket.send":
                await self._send_event(ws.BytesMessage(data=message["bytes"]))
            case "websocket.close" if self._is_accepted:
                code = message.get("code", 1000)
                await self._send_event(ws.CloseConnection(code=code, reason=message.get("reason") or None))
                self._closed_by = self._closed_by or _disconnect(code)
            case "websocket.close":
                await self._reject(HTTPStatus.FORBIDDEN, [])
                await self._send_event(ws.RejectData(data=b""))
            case "websocket.http.response.start":
                await self._reject(message["status"], list(message.get("headers", ())))
            case "websocket.http.response.body":
                await self._send_event(
                    ws.RejectData(data=message.get("body", b""), body_finished=not message.get("more_body", False))
                )
            case other:
                raise AssertionError(other)

    async def _reject(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._is_rejected = True
        await self._send_event(ws.RejectConnection(status_code=int(status), headers=headers, has_body=True))

    async def _send_event(self, event: ws.Event) -> None:
        """Send *event*, unless the session has ended."""
        if self._closed_by is not None:
            # An application that sends in a loop must not keep other tasks from running.
            await trio.lowlevel.checkpoint()
            return
        try:
            await self._wire.send(self._protocol.send(event))
        except (DisconnectedError, ProtocolError):
            # ProtocolError: the client has closed the session, which is among the events that are not read yet.
            self._closed_by = _disconnect(_ABNORMAL)


def _disconnect(code: int) -> Message:
    return {"type": "websocket.disconnect", "code": int(code)}
