"""Session with one client (viewer) over a websocket.

    viewer   {"hello": 1, "token": "…"}                                  within `HELLO_LIMIT` seconds
    console  {"kind": "welcome", "protocol": 1, "version": "…", "now": {"clock": …, "unix": …}}
    viewer   {"ask": "tasks", "id": 1}                                   one answer
    console  {"kind": "answer", "id": 1, "topic": "tasks", "value": …}
    console  {"kind": "rejected", "id": 1, "message": "…"}               or an error, also of a subscription
    viewer   {"follow": ["state", "events"], "interval": 1, "since": 0}  subscription
    console  {"kind": "state", "value": …}                               when it changed
    console  {"kind": "events", "value": […], "missed": 0}               new events
    console  {"kind": "now", "value": {"clock": …, "unix": …}}           at least every `ALIVE` seconds

The protocol is read-only.
"""

import hmac
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

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


_PRESENT: Final[Mapping[str, Callable[[Watched], Any]]] = {
    "state": lambda watched: watched.state(),
    "tasks": lambda _: read_tasks(),
    "channels": lambda watched: watched.channels(),
    "stores": lambda watched: watched.stores(),
    "generations": lambda watched: watched.history.generations(),
    "diff": lambda watched: watched.history.diff(),
}
"""By topic of a subscription: a value that is in memory."""

_COMPUTED: Final[Mapping[str, tuple[Callable[[Watched, Request], Awaitable[Any]], float]]] = {
    "live": (lambda watched, request: watched.live.read(request.backends), LIVE_INTERVAL),
    "routes": (lambda watched, request: _routes(watched, request, patient=True), 0.0),
    # The first page: the offset of a subscription is that of its routes.
    "certificates": (lambda watched, _: watched.certificates.page(patient=True), 0.0),
}
"""By topic of a subscription: a value that takes I/O or a computation, and the least seconds between two of them."""


async def _routes(watched: Watched, request: Request, *, patient: bool = False) -> RoutePage:
    return await watched.routes.page(
        search=request.search, state=request.state, offset=request.offset, limit=request.limit, patient=patient
    )


class _Viewer:
    def __init__(self, socket: WebSocket, watched: Watched) -> None:
        self._socket = socket
        self._watched = watched
        self._due: dict[str, float] = {}
        self._request = Request()
        self._sent: dict[str, bytes] = {}
        self._seen = 0
        self._changed = trio.Event()
        self._sending = trio.Lock()
        self._last_sent = 0.0

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
                    unknown = [topic for topic in request.follow if topic not in {"events", *_PRESENT, *_COMPUTED}]
                    if unknown:
                        message = f"unknown topics to follow: {', '.join(map(repr, unknown))}"
                        await self._send({"kind": "rejected", "id": request.id, "message": message})
                        continue
                    self._request, self._seen, self._sent, self._due = request, request.since, {}, {}
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
            case "events":
                return watched.recorder.events(request.since)
            case "diff":
                return watched.history.diff(request.number)
            case topic if topic in _PRESENT:
                return _PRESENT[topic](watched)
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
                ask = partial(_routes, watched, request)
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

    async def _follow(self) -> None:
        while True:
            request = self._request
            # Each once: a message has room for thousands of names.
            for topic in dict.fromkeys(request.follow or ()):
                if topic == "events":
                    await self._send_events()
                elif topic in _PRESENT:
                    await self._send_if_new(topic, _PRESENT[topic](self._watched))
                elif trio.current_time() >= self._due.get(topic, 0.0):
                    compute, interval = _COMPUTED[topic]
                    self._due[topic] = trio.current_time() + interval
                    await self._send_computed(topic, compute(self._watched, request))
            if trio.current_time() - self._last_sent > ALIVE:
                await self._send({"kind": "now", "value": self._watched.moment()})
            with trio.move_on_after(max(SHORTEST_INTERVAL, request.interval) if request.follow else ALIVE):
                await self._changed.wait()
                self._changed = trio.Event()

    async def _send_if_new(self, topic: str, value: Any) -> None:
        encoded = msgspec.json.encode({"kind": topic, "value": value})
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

    async def _send_computed(self, topic: str, computing: Awaitable[Any]) -> None:
        try:
            value = await computing
        except HapticError:
            # Not rendered yet; the next round sends it.
            return
        await self._send_if_new(topic, value)

    async def _send(self, message: object) -> None:
        await self._send_bytes(msgspec.json.encode(message))

    async def _send_bytes(self, encoded: bytes) -> None:
        async with self._sending:
            self._last_sent = trio.current_time()
            with trio.move_on_after(SEND_LIMIT) as scope:
                await self._socket.send_text(encoded.decode())
            if scope.cancelled_caught:
                raise ViewerStalledError(f"the viewer received nothing for {SEND_LIMIT:g} s")
