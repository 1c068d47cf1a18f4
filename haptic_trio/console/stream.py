"""Session with one client (viewer) over a websocket.

    viewer   {"hello": 1, "token": "…"}                                  within `HELLO_LIMIT` seconds
    console  {"kind": "welcome", "protocol": 1, "version": "…", "now": {"clock": …, "unix": …}}
    viewer   {"ask": "tasks", "id": 1}                                   one answer
    console  {"kind": "answer", "id": 1, "topic": "tasks", "value": …}
    console  {"kind": "rejected", "id": 1, "message": "…"}               or an error
    viewer   {"follow": ["state", "events"], "interval": 1, "since": 0}  subscription
    console  {"kind": "state", "value": …}                               when it changed
    console  {"kind": "events", "value": […], "missed": 0}               new events
    console  {"kind": "now", "value": {"clock": …, "unix": …}}           at least every `ALIVE` seconds

The protocol is read-only.
"""

import hmac
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
import trio
from starlette.websockets import WebSocket, WebSocketDisconnect

from haptic_trio import __version__
from haptic_trio.console.hosts import is_same_origin
from haptic_trio.console.protocol import PROTOCOL, RoutePage
from haptic_trio.console.tasks import read_tasks
from haptic_trio.console.watched import Watched
from haptic_trio.errors import INVALID_JSON, HapticError
from haptic_trio.explain.requests import RequestQuestion

HELLO_LIMIT = 5.0
SEND_LIMIT = 30.0
"""Seconds that a send may take, so that a stalled viewer does not occupy a slot."""
ALIVE = 10.0
MOST_VIEWERS = 8
SHORTEST_INTERVAL = 0.2
LIVE_INTERVAL = 2.0
"""Seconds between two reads of live figures for one viewer, except for another request."""
UNAUTHORIZED, BUSY = 1008, 1013
"""Close codes of the websocket."""
NOT_ALLOWED = "not allowed"
"""Close reason for `UNAUTHORIZED`."""


class Hello(msgspec.Struct, frozen=True):
    """The first message of a viewer."""

    hello: int
    token: str


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request or subscription of a viewer."""

    ask: str = ""
    id: int = 0
    follow: tuple[str, ...] | None = None
    interval: float = 1.0
    since: int = 0
    """Only events after this number."""
    path: str = "haproxy.cfg"
    offset: int = 0
    limit: int = 200
    search: str = ""
    context: int = 0
    """Of a search in all files: number of lines before and after each line, at most 5."""
    state: str = ""
    """Of the routes: only those with this state."""
    backends: tuple[str, ...] = ()
    """For live figures, at most 100."""
    number: int = 0
    """Of the generation whose difference is wanted; 0: the newest."""
    target: str = ""
    method: str = "GET"
    """Of a request that is to be matched, like the headers."""
    headers: tuple[tuple[str, str], ...] = ()


class ViewerStalledError(HapticError):
    """A viewer does not receive messages; it may reconnect."""


class UnknownTopicError(HapticError):
    """The topic does not exist; permanent."""


class Viewers:
    """All viewers of one process."""

    def __init__(self, watched: Watched, token: str) -> None:
        self._watched = watched
        self._token = token.encode()
        self.count = 0

    async def serve(self, socket: WebSocket) -> None:
        """Serve the viewer at *socket* until it disconnects, or until cancelled."""
        await socket.accept()
        if not is_same_origin(socket) or not await self._is_allowed(socket):
            await socket.close(UNAUTHORIZED, NOT_ALLOWED)
            return
        if self.count >= MOST_VIEWERS:
            await socket.close(BUSY, "too many viewers")
            return
        self.count += 1
        try:
            await _Viewer(socket, self._watched).run()
        except* ViewerStalledError:
            # The viewer does not receive messages, so no close reason is sent.
            pass
        finally:
            self.count -= 1
            if not self.count:
                self._watched.forget()

    async def _is_allowed(self, socket: WebSocket) -> bool:
        text = ""
        with trio.move_on_after(HELLO_LIMIT):
            try:
                text = await socket.receive_text()
            except (WebSocketDisconnect, KeyError):
                return False
        try:
            hello = msgspec.json.decode(text, type=Hello)
        except INVALID_JSON:
            return False
        return hello.hello == PROTOCOL and hmac.compare_digest(hello.token.encode(), self._token)


class _Viewer:
    def __init__(self, socket: WebSocket, watched: Watched) -> None:
        self._socket = socket
        self._watched = watched
        self._request = Request()
        self._sent: dict[str, bytes] = {}
        self._seen = 0
        self._changed = trio.Event()
        self._sending = trio.Lock()
        self._last_sent = 0.0
        self._next_live = 0.0

    async def run(self) -> None:
        await self._send(
            {"kind": "welcome", "protocol": PROTOCOL, "version": __version__, "now": self._watched.moment()}
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow)
            while True:
                try:
                    request = msgspec.json.decode(await self._socket.receive_text(), type=Request)
                except (WebSocketDisconnect, KeyError, *INVALID_JSON):
                    break
                if request.follow is not None:
                    self._request, self._seen, self._sent = request, request.since, {}
                    self._next_live = 0.0
                    self._changed.set()
                else:
                    await self._answer(request)
            nursery.cancel_scope.cancel(reason="the viewer disconnected")

    async def _answer(self, request: Request) -> None:
        try:
            value = await self._value(request)
        except HapticError as exc:
            await self._send({"kind": "rejected", "id": request.id, "message": str(exc)})
        else:
            await self._send({"kind": "answer", "id": request.id, "topic": request.ask, "value": value})

    async def _value(self, request: Request) -> Any:
        watched = self._watched
        configuration = watched.configuration
        match request.ask:
            case "state" | "tasks" | "channels" | "stores" | "generations" as topic:
                return self._read(topic)
            case "events":
                return watched.recorder.events(request.since)
            case "diff":
                return watched.history.diff(request.number)
            case "config":
                ask: Callable[[], Awaitable[Any]] = partial(
                    configuration.page,
                    path=request.path,
                    offset=request.offset,
                    limit=request.limit,
                    search=request.search,
                )
            case "search":
                ask = partial(
                    configuration.search,
                    request.search,
                    context=request.context,
                    offset=request.offset,
                    limit=request.limit,
                )
            case "routes":
                ask = partial(self._routes, request)
            case "certificates":
                ask = partial(watched.certificates.page, offset=request.offset, limit=request.limit)
            case "live":
                ask = partial(watched.live.read, request.backends)
            case "match":
                question = RequestQuestion(target=request.target, method=request.method, headers=request.headers)
                ask = partial(configuration.match, question)
            case "explain":
                ask = partial(configuration.explain, request.target)
            case other:
                raise UnknownTopicError(f"unknown topic {other!r}")
        return await ask()

    async def _routes(self, request: Request, *, patient: bool = False) -> RoutePage:
        return await self._watched.routes.page(
            search=request.search, state=request.state, offset=request.offset, limit=request.limit, patient=patient
        )

    def _read(self, topic: str) -> Any:
        match topic:
            case "tasks":
                return read_tasks()
            case "channels":
                return self._watched.channels()
            case "stores":
                return self._watched.stores()
            case "generations":
                return self._watched.history.generations()
            case "diff":
                return self._watched.history.diff()
        return self._watched.state()

    async def _follow(self) -> None:
        while True:
            request = self._request
            for topic in request.follow or ():
                if topic == "events":
                    await self._send_events()
                elif topic == "live" and trio.current_time() >= self._next_live:
                    self._next_live = trio.current_time() + LIVE_INTERVAL
                    await self._send_computed(topic, partial(self._watched.live.read, request.backends))
                elif topic == "routes":
                    await self._send_computed(topic, partial(self._routes, request, patient=True))
                elif topic == "certificates":
                    # The first page: the offset of a subscription is that of its routes.
                    await self._send_computed(topic, partial(self._watched.certificates.page, patient=True))
                elif topic in {"state", "tasks", "channels", "stores", "generations", "diff"}:
                    await self._send_if_new(topic)
            if trio.current_time() - self._last_sent > ALIVE:
                await self._send({"kind": "now", "value": self._watched.moment()})
            with trio.move_on_after(max(SHORTEST_INTERVAL, request.interval) if request.follow else ALIVE):
                await self._changed.wait()
                self._changed = trio.Event()

    async def _send_if_new(self, topic: str) -> None:
        encoded = msgspec.json.encode({"kind": topic, "value": self._read(topic)})
        if self._sent.get(topic) != encoded:
            self._sent[topic] = encoded
            await self._send_bytes(encoded)

    async def _send_events(self) -> None:
        recorder = self._watched.recorder
        if recorder.last <= self._seen:
            return
        events = recorder.events(self._seen)
        missed = events[0].number - self._seen - 1 if events else 0
        self._seen = events[-1].number if events else recorder.last
        await self._send({"kind": "events", "value": events, "missed": missed})

    async def _send_computed(self, topic: str, compute: Callable[[], Awaitable[Any]]) -> None:
        try:
            value = await compute()
        except HapticError:
            # Not rendered yet; the next round sends it.
            return
        encoded = msgspec.json.encode({"kind": topic, "value": value})
        if self._sent.get(topic) != encoded:
            self._sent[topic] = encoded
            await self._send_bytes(encoded)

    async def _send(self, message: object) -> None:
        await self._send_bytes(msgspec.json.encode(message))

    async def _send_bytes(self, encoded: bytes) -> None:
        async with self._sending:
            self._last_sent = trio.current_time()
            with trio.move_on_after(SEND_LIMIT) as scope:
                await self._socket.send_text(encoded.decode())
            if scope.cancelled_caught:
                raise ViewerStalledError(f"the viewer received nothing for {SEND_LIMIT:g} s")
