"""Requests that are cancelled on the way leave nothing behind."""

import gc

import httpx
import pytest
import trio

from haptic_trio.connections import open_transport

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
