"""WebSocket session: messages, limits, ends and rejections."""

import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio_websocket

from haptic_trio.asgi.wire import Limits
from tests.asgi.attacks import HANDSHAKE, compressed, frame
from tests.asgi.site import Site, served


@asynccontextmanager
async def _session(site: Site, path: str = "/ws") -> AsyncIterator[trio_websocket.WebSocketConnection]:
    async with site.connection() as stream, trio.open_nursery() as nursery:
        yield await trio_websocket.wrap_client_stream(nursery, stream, "localhost", path)
        nursery.cancel_scope.cancel()


async def test_messages_are_received_whole_and_answered() -> None:
    async with served() as site:
        async with _session(site) as client:
            for text in ("", "one", "é" * 20_000):
                await client.send_message(text)
                assert await client.get_message() == text
            await client.ping()
        split = HANDSHAKE + b"\r\n" + frame(1, b"a", fin=0) + frame(9, b"") + frame(0, b"b") + frame(8, b"\x03\xe8")
        assert (await site.ask(split)).endswith(b"\x8a\x00\x81\x02ab\x88\x02\x03\xe8")


async def test_a_message_that_is_too_large_ends_the_session() -> None:
    async with served(Limits(message_bytes=100)) as site:
        async with _session(site) as client:
            await client.send_message("x" * 101)
            with pytest.raises(trio_websocket.ConnectionClosed) as closed:
                await client.get_message()
        assert closed.value.reason is not None
        assert closed.value.reason.code == 1009
        many = b"".join(frame(number == 0, b"x" * 50, fin=0) for number in range(100))
        await site.ask(HANDSHAKE + b"\r\n" + many)
        assert await site.is_healthy()
    assert site.received == []


async def test_parts_of_a_message_without_data_take_no_memory() -> None:
    async with served() as site, site.connection() as stream:
        await stream.send_all(HANDSHAKE + b"\r\n" + frame(2, b"", fin=0))
        assert b" 101 " in await stream.receive_some(1000)
        tracemalloc.start()
        try:
            await stream.send_all(frame(0, b"", fin=0) * 10_000 + frame(9, b"x"))
            assert (await stream.receive_some(100)).endswith(b"x")
            size, _peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert size < 50_000


async def test_nothing_is_decompressed() -> None:
    async with served() as site:
        attack = compressed(60 << 20)
        answer = await site.ask(attack)
        assert b"sec-websocket-extensions" not in answer.lower()
        assert await site.is_healthy()
    assert site.received == []


async def test_a_path_without_websockets_is_forbidden() -> None:
    async with served() as site:
        assert (await site.ask(HANDSHAKE.replace(b"/ws", b"/healthz") + b"\r\n")).startswith(b"HTTP/1.1 403 ")
        assert await site.is_healthy()


async def test_a_client_that_vanishes_ends_its_session() -> None:
    async with served() as site, site.connection() as stream:
        await stream.send_all(HANDSHAKE + b"\r\n" + frame(1, b"last"))
        await stream.receive_some(1000)
        await trio.aclose_forcefully(stream)
        assert await site.is_healthy()
    assert site.received == ["last"]


async def test_an_application_that_sends_to_a_client_that_is_gone_lets_other_tasks_run() -> None:
    async with served() as site, site.connection() as stream:
        await stream.send_all(HANDSHAKE.replace(b"/ws", b"/flood") + b"\r\n")
        assert b" 101 " in await stream.receive_some(1000)
        await stream.send_all(frame(8, b"\x03\xe8"))
        # The application reads nothing, and never ends.
        await trio.aclose_forcefully(stream)
        assert await site.is_healthy()
