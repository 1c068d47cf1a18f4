"""Stream of one client: a client that does not read is disconnected, and holds up nothing."""

import trio

from haptic_trio.asgi.wire import Limits
from tests.asgi.site import LARGE, served

_LARGE = b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_a_client_that_reads_nothing_is_disconnected() -> None:
    async with served(Limits(unread=0.2)) as site, site.connection() as stream:
        await stream.send_all(_LARGE)
        # It never reads, so the end shows by writing.
        try:
            while True:
                await stream.send_all(b"x")
                await trio.sleep(0.01)
        except trio.BrokenResourceError:
            pass
        assert await site.is_healthy()


async def test_a_client_that_reads_slowly_gets_everything() -> None:
    async with served() as site, site.connection() as stream:
        await stream.send_all(_LARGE + b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        size = 0
        async for chunk in stream:
            size += len(chunk)
            await trio.lowlevel.checkpoint()
    assert size > LARGE


async def test_a_client_that_reads_nothing_does_not_keep_the_server_from_ending() -> None:
    async with served() as site, site.connection() as stream:
        await stream.send_all(_LARGE)
        assert await stream.receive_some(1) == b"H"
