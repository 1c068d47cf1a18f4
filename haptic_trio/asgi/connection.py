"""HTTP/1.1 connection of one client: its requests, one after the other, as calls of an ASGI application."""

from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

import h11
import msgspec
import trio
from starlette.types import ASGIApp, Message, Scope

from haptic_trio.asgi.application import call_application
from haptic_trio.asgi.websocket import WebSocketSession
from haptic_trio.asgi.wire import DisconnectedError, Limits, Wire

_HEAD_BYTES: Final = 16_384
_UNREAD_BODY: Final = 65_536
"""Bytes of a request body that are read although the application did not, so that the connection can be used again."""
_UNREAD_SECONDS: Final = 1.0
_BODYLESS: Final = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
_FAILED: Final = h11.Response(
    status_code=int(HTTPStatus.INTERNAL_SERVER_ERROR), headers=[("content-length", "0"), ("connection", "close")]
)


class Peers(msgspec.Struct, frozen=True, kw_only=True):
    """Both ends of a connection, as ASGI has them."""

    scheme: str
    client: tuple[str, int] | None = None
    server: tuple[str, int | None] | None = None


class Connection:
    """Serves the requests of one client to *app*."""

    def __init__(self, app: ASGIApp, wire: Wire, peers: Peers, limits: Limits) -> None:
        self._app = app
        self._wire = wire
        self._peers = peers
        self._limits = limits
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)

    async def next_request(self) -> h11.Request | None:
        """Return the next request, or None at the end of the connection or after an invalid request."""
        with trio.move_on_after(self._limits.idle):
            try:
                event = await self._next_event()
            except h11.RemoteProtocolError as exc:
                await self._reject(exc.error_status_hint)
                return None
            if isinstance(event, h11.Request):
                return event
        return None

    async def serve(self, request: h11.Request) -> bool:
        """Serve *request*; return whether another one can follow. Raises `DisconnectedError` and what *app* raises."""
        headers = [(bytes(name), bytes(value)) for name, value in request.headers]
        scope = self._scope(request, headers)
        if _asks_for_websocket(request, headers):
            session = WebSocketSession(self._app, self._wire, message_bytes=self._limits.message_bytes)
            await session.run(scope, bytes(request.target), received=self._http.trailing_data[0])
            return False
        exchange = _Exchange(self, is_head=request.method == b"HEAD")
        await call_application(self._app, scope, exchange.receive, exchange.send, end=self._end_answer)
        return await self._can_continue()

    async def send(self, *events: Any) -> None:
        """Send h11 events; raises `DisconnectedError`."""
        try:
            data = b"".join(self._http.send(event) or b"" for event in events)
        except h11.LocalProtocolError:
            if self._http.their_state is h11.ERROR:
                # The client broke off the body of its request.
                raise DisconnectedError from None
            raise
        await self._wire.send(data)

    async def _end_answer(self) -> None:
        """Answer with 500 if the application has not begun an answer."""
        if self._http.our_state is h11.SEND_RESPONSE:
            await self.send(_FAILED, h11.EndOfMessage())

    async def next_body_event(self) -> Any:
        """Return the next part of the body, its end, or None if the client broke off."""
        try:
            event = await self._next_event()
        except h11.RemoteProtocolError:
            return None
        return event if isinstance(event, h11.Data | h11.EndOfMessage) else None

    async def wait_closed(self) -> None:
        """Return when the client has closed the connection."""
        # What belongs to a next request is kept, and not followed by more.
        if data := await self._wire.read():
            self._http.receive_data(data)
            await trio.sleep_forever()

    async def _next_event(self) -> Any:
        await self._wire.turns.take()
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                await self.send(h11.InformationalResponse(status_code=int(HTTPStatus.CONTINUE), headers=[]))
            self._http.receive_data(await self._wire.read())
            await self._wire.turns.take()
        return event

    async def _reject(self, status: int) -> None:
        if self._http.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            headers = [("content-length", "0"), ("connection", "close")]
            await self.send(h11.Response(status_code=status, headers=headers), h11.EndOfMessage())
            await self._wire.linger()

    async def _can_continue(self) -> bool:
        left = _UNREAD_BODY
        with trio.move_on_after(_UNREAD_SECONDS):
            while self._http.their_state is h11.SEND_BODY and left > 0:
                event = await self.next_body_event()
                if event is None:
                    break
                left -= len(event.data) if isinstance(event, h11.Data) else 0
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            return True
        if self._http.their_state is h11.SEND_BODY and self._http.our_state in {h11.DONE, h11.MUST_CLOSE}:
            await self._wire.linger()
        return False

    def _scope(self, request: h11.Request, headers: list[tuple[bytes, bytes]]) -> Scope:
        path, _, query = bytes(request.target).partition(b"?")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": request.http_version.decode("ascii"),
            "method": request.method.decode("ascii").upper(),
            "scheme": self._peers.scheme,
            "path": unquote(path.decode("ascii")),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": headers,
            "client": self._peers.client,
            "server": self._peers.server,
            "extensions": {},
        }


class _Exchange:
    """One request and its answer, as the two functions of ASGI."""

    def __init__(self, connection: Connection, *, is_head: bool) -> None:
        self._connection = connection
        self._is_bodyless = is_head
        self._is_received = False

    async def receive(self) -> Message:
        if self._is_received:
            await self._connection.wait_closed()
            return {"type": "http.disconnect"}
        event = await self._connection.next_body_event()
        if isinstance(event, h11.Data):
            return {"type": "http.request", "body": bytes(event.data), "more_body": True}
        self._is_received = True
        return {"type": "http.disconnect"} if event is None else {"type": "http.request", "body": b""}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", ()), (b"date", formatdate(usegmt=True).encode("ascii"))]
            self._is_bodyless = self._is_bodyless or message["status"] in _BODYLESS
            await self._connection.send(h11.Response(status_code=int(message["status"]), headers=headers))
            return
        assert message["type"] == "http.response.body", message["type"]
        body = b"" if self._is_bodyless else message.get("body", b"")
        events: list[Any] = [h11.Data(data=body)] if body else []
        if not message.get("more_body", False):
            events.append(h11.EndOfMessage())
        await self._connection.send(*events)


def _asks_for_websocket(request: h11.Request, headers: list[tuple[bytes, bytes]]) -> bool:
    return (
        request.method == b"GET"
        and _has_token(headers, b"connection", b"upgrade")
        and _has_token(headers, b"upgrade", b"websocket")
    )


def _has_token(headers: list[tuple[bytes, bytes]], name: bytes, token: bytes) -> bool:
    return any(part.strip().lower() == token for field, value in headers if field == name for part in value.split(b","))
