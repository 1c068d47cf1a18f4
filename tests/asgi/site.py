"""An application with one path of each sort, and connections to the server that serves it."""

import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from haptic_trio.asgi.server import serve_asgi
from haptic_trio.asgi.wire import Limits

LARGE = 64 << 20


class Site:
    """What has happened at the served application."""

    def __init__(self) -> None:
        self.port = 0
        self.received: list[str] = []
        """Messages on WebSockets."""
        self.passes = 0
        """Steps of another task of the process."""
        self.work = Counter[int]()
        """By `passes`: how many requests, parts of bodies and messages were handled."""

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/healthz", _health, methods=["GET", "POST"]),
                Route("/echo", _echo, methods=["POST"]),
                Route("/large", _large),
                Route("/bug", _bug),
                Route("/counted", self._count, methods=["GET", "POST"]),
                WebSocketRoute("/ws", self._talk),
                WebSocketRoute("/flood", _flood),
            ]
        )

    async def _talk(self, websocket: WebSocket) -> None:
        await websocket.accept()
        try:
            while True:
                text = await websocket.receive_text()
                self.received.append(text)
                self.note_work()
                await websocket.send_text(text)
        except (WebSocketDisconnect, KeyError):
            return

    def note_work(self) -> None:
        self.work[self.passes] += 1

    async def _count(self, request: Request) -> Response:
        self.note_work()
        async for _part in request.stream():
            self.note_work()
        return PlainTextResponse("counted")

    async def run_beside(self) -> None:
        """Be another task of the process, which can run at any time."""
        while True:
            self.passes += 1
            await trio.lowlevel.checkpoint()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[trio.SocketStream]:
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        try:
            yield stream
        finally:
            await trio.aclose_forcefully(stream)

    async def ask(self, data: bytes) -> bytes:
        """Send *data* and the end of it; return all that comes back."""
        async with self.connection() as stream:
            answer = b""
            try:
                await stream.send_all(data)
                await stream.send_eof()
                async for chunk in stream:
                    answer += chunk
            except trio.BrokenResourceError:
                # The server need not read it all.
                pass
            return answer

    async def is_healthy(self) -> bool:
        answer = await self.ask(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"\r\n\r\nhealthy")


async def _health(_request: Request) -> Response:
    return PlainTextResponse("healthy")


async def _echo(request: Request) -> Response:
    return Response(await request.body())


async def _flood(websocket: WebSocket) -> None:
    await websocket.accept()
    while True:
        await websocket.send_text("x")


async def _large(_request: Request) -> Response:
    return Response(b"x" * LARGE)


async def _bug(_request: Request) -> Response:
    raise ZeroDivisionError("a bug")


@asynccontextmanager
async def served(limits: Limits | None = None, context: ssl.SSLContext | None = None) -> AsyncIterator[Site]:
    """Serve the application."""
    site = Site()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            serve = partial(serve_asgi, site.app(), "127.0.0.1:0", limits=limits or Limits(), context=context)
            (address,) = await nursery.start(serve)
            site.port = int(address.rpartition(":")[2])
            yield site
            nursery.cancel_scope.cancel()
