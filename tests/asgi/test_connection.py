"""HTTP/1.1 connection: requests, bodies, keep-alive and time limits."""

import trio

from haptic_trio.asgi.wire import Limits
from tests.asgi.site import served

_CLOSE = b"Connection: close\r\n"


async def test_requests_follow_each_other_on_one_connection() -> None:
    async with served() as site:
        answer = await site.ask(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 3)
    assert answer.count(b"HTTP/1.1 200 ") == answer.count(b"\r\n\r\nhealthy") == 3


async def test_a_body_is_received_whole_however_it_is_sent() -> None:
    head = b"POST /echo HTTP/1.1\r\nHost: x\r\n"
    async with served() as site:
        assert (await site.ask(head + b"Content-Length: 5\r\n\r\nhello")).endswith(b"\r\n\r\nhello")
        chunks = b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
        assert (await site.ask(head + chunks)).endswith(b"\r\n\r\nhello")
        async with site.connection() as stream:
            await stream.send_all(head + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
            assert (await stream.receive_some(1000)).startswith(b"HTTP/1.1 100 ")
            await stream.send_all(b"hello")
            assert (await stream.receive_some(1000)).startswith(b"HTTP/1.1 200 ")


async def test_a_short_body_that_is_not_read_leaves_the_connection_usable() -> None:
    unread = b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
    async with served() as site:
        assert (await site.ask(unread * 2)).count(b"HTTP/1.1 200 ") == 2


async def test_an_answer_precedes_a_long_body_and_is_read() -> None:
    long = b"POST /none HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n" + b"x" * 900_000
    async with served() as site:
        assert (await site.ask(long)).startswith(b"HTTP/1.1 404 ")


async def test_an_answer_to_head_has_no_body() -> None:
    async with served() as site:
        answer = await site.ask(b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n" + _CLOSE + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"content-length: 7\r\n" in answer.lower()
    assert answer.endswith(b"\r\n\r\n")


async def test_a_broken_request_is_answered() -> None:
    async with served() as site:
        assert (await site.ask(b"\0\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
        large = b"GET / HTTP/1.1\r\nHost: x\r\na: " + b"b" * 70_000
        assert (await site.ask(large)).startswith(b"HTTP/1.1 431 ")


async def test_a_head_that_arrives_byte_by_byte_is_not_waited_for() -> None:
    async with served(Limits(idle=0.2)) as site, site.connection() as stream, trio.open_nursery() as nursery:

        async def drip() -> None:
            try:
                while True:
                    await stream.send_all(b"a")
                    await trio.sleep(0.01)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass

        await stream.send_all(b"GET /healthz HTTP/1.1\r\nX: ")
        nursery.start_soon(drip)
        assert await _end(stream)
        nursery.cancel_scope.cancel()


async def _end(stream: trio.SocketStream) -> bool:
    try:
        return await stream.receive_some(1) == b""
    except trio.BrokenResourceError:
        return True
