"""Requests over a stream, and requests that are cancelled on the way and leave nothing behind."""

import gc

import h11
import httpx
import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from haptic_trio.http1 import Exchange, open_transport

LARGE = b"x" * (64 << 20)
"""More than sockets hold of what nobody reads."""


@pytest.mark.filterwarnings("error")
async def test_request_that_is_cancelled_while_it_is_sent_leaves_nothing_to_be_collected(nursery: trio.Nursery) -> None:
    begun = trio.Event()

    async def read_the_beginning(stream: trio.SocketStream) -> None:
        received = b""
        while not received.endswith(b"x"):
            received += await stream.receive_some()
        begun.set()
        await trio.sleep_forever()

    listeners = await nursery.start(trio.serve_tcp, read_the_beginning, 0)
    port = listeners[0].socket.getsockname()[1]

    async def post(client: httpx.AsyncClient) -> None:
        await client.post(f"http://127.0.0.1:{port}/", content=LARGE)

    async with httpx.AsyncClient(transport=open_transport(), timeout=None) as client, trio.open_nursery() as posting:
        posting.start_soon(post, client)
        with trio.fail_after(20):
            await begun.wait()
        posting.cancel_scope.cancel()

    # Warnings of what is collected are errors.
    gc.collect()
    await trio.lowlevel.checkpoint()


async def test_body_arrives_whole_and_once_more_after_a_redirect(nursery: trio.Nursery) -> None:
    seen: list[bytes] = []

    async def answer(stream: trio.SocketStream) -> None:
        request = b""
        while not request.endswith(b"content"):
            request += await stream.receive_some()
        seen.append(request.split(b"\r\n\r\n")[1])
        status = b"307 Temporary Redirect\r\nlocation: /again" if len(seen) == 1 else b"200 OK"
        await stream.send_all(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await stream.aclose()

    listeners = await nursery.start(trio.serve_tcp, answer, 0)
    port = listeners[0].socket.getsockname()[1]

    async with httpx.AsyncClient(transport=open_transport(), follow_redirects=True) as client:
        with trio.fail_after(20):
            response = await client.post(f"http://127.0.0.1:{port}/", content=b"the content")

    assert response.status_code == 200
    assert seen == [b"the content"] * 2


@pytest.mark.parametrize(("header", "may_follow"), [(b"", True), (b"connection: close\r\n", False)])
async def test_an_answer_comes_in_pieces_and_another_request_follows_where_the_server_allows_it(
    header: bytes, may_follow: bool
) -> None:
    stream, server = memory_stream_pair()
    exchange = Exchange(stream)
    await exchange.send("POST", "/a?b", [(b"host", b"x"), (b"content-length", b"3")], b"abc")
    asked = bytes(await server.receive_some())
    await server.send_all(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 4\r\nX-A: b\r\n" + header)
    await server.send_all(b"\r\ndata")
    status, headers = await exchange.receive_head()
    body = b""
    while data := await exchange.receive_some():
        body += data

    assert asked.startswith(b"POST /a?b HTTP/1.1\r\n")
    assert asked.endswith(b"\r\n\r\nabc")
    assert (status, dict(headers)[b"x-a"], body) == (200, b"b", b"data")
    assert exchange.renew() is may_follow


async def test_an_answer_that_ends_early_is_none() -> None:
    stream, server = memory_stream_pair()
    exchange = Exchange(stream)
    await exchange.send("GET", "/", [(b"host", b"x")])
    await server.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nda")
    await server.aclose()
    await exchange.receive_head()

    assert await exchange.receive_some() == b"da"
    with pytest.raises(h11.RemoteProtocolError):
        await exchange.receive_some()
    assert not exchange.renew()


async def test_silence_ends_an_exchange_however_long_it_has_gone_on(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    stream, server = memory_stream_pair()
    exchange = Exchange(stream)
    exchange.silence = 5.0

    async def answer() -> None:
        for chunk in (b"HTTP/1.1 200 OK\r\n", b"content-length: 3\r\n\r\n", b"1", b"2"):
            await trio.sleep(4)
            await server.send_all(chunk)

    nursery.start_soon(answer)
    await exchange.send("GET", "/", [(b"host", b"x")])
    await exchange.receive_head()
    assert [await exchange.receive_some(), await exchange.receive_some()] == [b"1", b"2"]
    with pytest.raises(trio.TooSlowError):
        await exchange.receive_some()
    assert trio.current_time() == 4 * 4 + 5
