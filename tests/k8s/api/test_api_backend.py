"""No connection outlives the one who was opening it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import httpx
import pytest
import trio

from haptic_trio.k8s.api.auth import Credentials
from haptic_trio.k8s.api.connection import Connection
from haptic_trio.k8s.errors import UnreachableError


@asynccontextmanager
async def connected_to(greeting: bytes) -> AsyncIterator[tuple[Connection, trio.Event, trio.Event]]:
    """Yield a connection to a server that answers a handshake with *greeting*, and when it was reached and left."""
    reached, left = trio.Event(), trio.Event()

    async def handler(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        if greeting:
            await stream.send_all(greeting)
        reached.set()
        with suppress(trio.BrokenResourceError):
            while await stream.receive_some():
                pass
        left.set()

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]

    async def load() -> Credentials:
        await trio.lowlevel.checkpoint()
        return Credentials(server=f"https://127.0.0.1:{port}", context=httpx.create_ssl_context())

    connection = Connection(load)
    await connection.open()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, handler, [listener])
        yield connection, reached, left
        await connection.aclose()
        nursery.cancel_scope.cancel()


async def test_a_connection_is_closed_when_its_handshake_is_cancelled() -> None:
    async with connected_to(b"") as (connection, reached, left):
        with trio.fail_after(5):
            async with trio.open_nursery() as asking:
                asking.start_soon(partial(connection.request, "POST", "/x", what="try"))
                await reached.wait()
                asking.cancel_scope.cancel()
            await left.wait()


async def test_a_connection_is_closed_when_its_handshake_fails() -> None:
    async with connected_to(b"HTTP/1.1 400 Bad Request\r\n\r\n") as (connection, _reached, left):
        with trio.fail_after(5):
            with pytest.raises(UnreachableError, match="SSL"):
                await connection.request("POST", "/x", what="try")
            await left.wait()
