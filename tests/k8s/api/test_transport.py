"""Requests with short answers share connections, one at a time on each, and leave none behind."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import httpx
import pytest
import trio

from haptic_trio.http1 import HttpTransport
from haptic_trio.k8s.api.transport import GOES_ON, ApiTransport

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
Answer = Callable[[bytes], Awaitable[bytes | None]]
"""Is given a request and returns what is sent for it; None closes the connection."""


class Server:
    """Answers each request as *answer* says, and counts connections."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.connections = 0
        self.ended = trio.Event()
        """The newest connection has been closed by the client."""
        self.open: list[trio.SocketStream] = []

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve one connection."""
        self.connections += 1
        self.ended = ended = trio.Event()
        self.open.append(stream)
        request = b""
        try:
            async for data in stream:
                request += data
                if is_whole(request):
                    answer = await self._answer(request)
                    if answer is None:
                        break
                    await stream.send_all(answer)
                    request = b""
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        ended.set()
        await trio.aclose_forcefully(stream)


def is_whole(request: bytes) -> bool:
    """Whether *request* has all of its body."""
    head, end, body = request.partition(b"\r\n\r\n")
    length = next((line.split(b":")[1] for line in head.lower().split(b"\r\n") if b"content-length" in line), b"0")
    return bool(end) and len(body) >= int(length)


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[tuple[Server, httpx.AsyncClient]]:
    server = Server(answer)
    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, server.serve, 0, host="127.0.0.1"))
        port = listener.socket.getsockname()[1]
        transport = ApiTransport(HttpTransport(), httpx.create_ssl_context(verify=False))
        with trio.fail_after(10):
            async with httpx.AsyncClient(transport=transport, base_url=f"http://127.0.0.1:{port}") as client:
                yield server, client
        nursery.cancel_scope.cancel()


async def ok(_request: bytes) -> bytes:
    await trio.lowlevel.checkpoint()
    return OK


async def test_one_connection_does_for_one_request_after_the_other() -> None:
    async with serving(ok) as (server, client):
        for _ in range(3):
            assert (await client.post("/", json={"a": 1})).text == "ok"

        assert server.connections == 1


async def test_requests_at_the_same_time_have_a_connection_each() -> None:
    both = trio.Event()
    waiting = 0

    async def when_both_are_there(_request: bytes) -> bytes:
        nonlocal waiting
        waiting += 1
        if waiting == 2:
            both.set()
        await both.wait()
        return OK

    async with serving(when_both_are_there) as (server, client):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.get, "/")
            nursery.start_soon(client.get, "/")

        assert server.connections == 2


async def test_connection_that_the_server_has_closed_is_not_used_again() -> None:
    async with serving(ok) as (server, client):
        await client.post("/")
        await trio.aclose_forcefully(server.open[0])
        await trio.testing.wait_all_tasks_blocked()

        assert (await client.post("/")).text == "ok"
        assert server.connections == 2


async def test_answer_may_come_in_chunks_and_be_the_last_one() -> None:
    async def last(_request: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
        return head + b"1\r\no\r\n1\r\nk\r\n0\r\n\r\n"

    async with serving(last) as (server, client):
        assert (await client.get("/")).text == "ok"
        assert (await client.get("/")).text == "ok"
        assert server.connections == 2


@pytest.mark.parametrize("answer", [None, b"nonsense\r\n\r\n", OK[:-1]], ids=["none", "nonsense", "half"])
async def test_no_answer_or_half_of_one_is_a_failed_request_and_ends_its_connection(answer: bytes | None) -> None:
    async def bad(_request: bytes) -> bytes | None:
        await trio.lowlevel.checkpoint()
        return answer

    async with serving(bad) as (server, client):
        with pytest.raises(httpx.TransportError):
            await client.get("/", timeout=0.2)
        await server.ended.wait()


async def test_request_that_is_cancelled_ends_its_connection() -> None:
    asked = trio.Event()
    open_streams: list[trio.SocketStream] = []

    async def until_it_ends(_request: bytes) -> None:
        asked.set()
        assert await open_streams[0].receive_some() == b""

    async with serving(until_it_ends) as (server, client):
        open_streams = server.open
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.get, "/")
            await asked.wait()
            nursery.cancel_scope.cancel()

        await server.ended.wait()


async def test_a_port_without_listener_is_a_failed_connection() -> None:
    async with serving(ok) as (_server, client):
        with pytest.raises(httpx.ConnectError):
            # No process may listen at port 1 of the loopback.
            await client.get("http://127.0.0.1:1/")


async def test_answer_that_goes_on_is_read_while_it_comes() -> None:
    seen = trio.Event()
    open_streams: list[trio.SocketStream] = []

    async def second_when_the_first_was_seen(_request: bytes) -> bytes:
        await open_streams[0].send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\nfirst\n")
        await seen.wait()
        return b"second\n"

    async with serving(second_when_the_first_was_seen) as (server, client):
        open_streams = server.open
        lines = []
        async with client.stream("GET", "/", extensions={GOES_ON: True}) as response:
            async for line in response.aiter_lines():
                lines.append(line)
                seen.set()
        assert lines == ["first", "second"]
