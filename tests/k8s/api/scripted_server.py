"""An API server that is a function of the test's, without sockets, for tests with a virtual clock."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
import msgspec
import trio

from haptic_trio.k8s.api.auth import Credentials
from haptic_trio.k8s.api.cluster import ApiCluster
from haptic_trio.k8s.api.watching import Pace
from haptic_trio.k8s.client import Selection, WatchEvent
from tests.k8s.api.api_cluster import Reports
from tests.k8s.objects import SERVICES

KINDS = {"resources": [{"name": "services", "kind": "Service", "namespaced": True}]}
EMPTY = {"metadata": {"resourceVersion": "10"}, "items": []}


def status(code: int, reason: str, **headers: str) -> httpx.Response:
    """Return a rejection."""
    content = {"kind": "Status", "code": code, "reason": reason, "message": f"told {code}"}
    return httpx.Response(
        code, json=content, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


def answer(content: object) -> httpx.Response:
    """Return a whole answer."""
    return httpx.Response(200, content=msgspec.json.encode(content))


class _Body(httpx.AsyncByteStream):
    def __init__(self, chunks: AsyncGenerator[bytes, None]) -> None:
        self._chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._chunks:
            yield chunk

    async def aclose(self) -> None:
        await self._chunks.aclose()


def stream(*chunks: bytes, seconds: float) -> httpx.Response:
    """Return an answer that sends *chunks* at once and ends after so many *seconds*."""

    async def generate() -> AsyncGenerator[bytes, None]:
        for chunk in chunks:
            yield chunk
        await trio.sleep(seconds)

    return httpx.Response(200, stream=_Body(generate()))


class ScriptedServer:
    """Answers by a function, and notes each request with its time."""

    def __init__(self, respond: Callable[[httpx.Request], httpx.Response | Awaitable[httpx.Response]]) -> None:
        self._respond = respond
        self.requests: list[tuple[float, httpx.Request]] = []
        self.discovery: list[httpx.Response] = []
        """What is answered, one after another, to who asks which kinds there are; then the truth."""

    def times(self, text: str) -> list[float]:
        """Return when requests with *text* in their URL came."""
        return [at for at, request in self.requests if text in str(request.url)]

    async def _handle(self, request: httpx.Request) -> httpx.Response:
        await trio.lowlevel.checkpoint()
        self.requests.append((trio.current_time(), request))
        if request.url.path == "/api/v1":
            return self.discovery.pop(0) if self.discovery else answer(KINDS)
        response = self._respond(request)
        return response if isinstance(response, httpx.Response) else await response

    @asynccontextmanager
    async def connected(
        self,
        reports: Reports,
        *,
        pace: Pace = Pace(),  # noqa: B008
        stream_lists: bool = False,
    ) -> AsyncIterator[ApiCluster]:
        """Run a client of it."""

        async def load() -> Credentials:
            await trio.lowlevel.checkpoint()
            return Credentials(server="https://scripted", context=httpx.create_ssl_context(verify=False))

        def make_client(_credentials: Credentials) -> httpx.AsyncClient:
            return httpx.AsyncClient(transport=httpx.MockTransport(self._handle), base_url="https://scripted")

        cluster = ApiCluster(load, report=reports, pace=pace, stream_lists=stream_lists, make_client=make_client)
        async with trio.open_nursery() as nursery:
            await nursery.start(cluster.run)
            yield cluster
            nursery.cancel_scope.cancel()


def line(kind: str, content: object) -> bytes:
    """Return an event of a watch."""
    return msgspec.json.encode({"type": kind, "object": content}) + b"\n"


def is_watch(request: httpx.Request) -> bool:
    """Whether *request* opens a watch, and is not for a list."""
    return "watch" in request.url.params


@asynccontextmanager
async def watching(
    server: ScriptedServer, reports: Reports, *, stream_lists: bool = False
) -> AsyncIterator[list[WatchEvent]]:
    """Follow all services; yields what is reported."""
    seen: list[WatchEvent] = []

    async def follow() -> None:
        async with (
            server.connected(reports, stream_lists=stream_lists) as cluster,
            cluster.watch(Selection(type=SERVICES)) as events,
        ):
            async for event in events:
                seen.append(event)  # noqa: PERF401  it is looked at meanwhile

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        yield seen
        nursery.cancel_scope.cancel()
