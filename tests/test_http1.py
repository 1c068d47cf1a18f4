"""Exchanges over a stream, and the transport for httpx: errors, and cancelled requests that leave nothing open."""

import gc
from contextlib import suppress

import h11
import httpcore
import httpx
import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from haptic_trio.http1 import HTTPCORE_ERRORS, Exchange, HttpTransport

LARGE = b"x" * (64 << 20)
"""More than the buffers of two sockets hold."""


@pytest.mark.filterwarnings("error")
async def test_request_cancelled_while_it_is_sent_leaves_no_generator_to_be_collected(nursery: trio.Nursery) -> None:
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

    async with httpx.AsyncClient(transport=HttpTransport(), timeout=None) as client, trio.open_nursery() as posting:
        posting.start_soon(post, client)
        with trio.fail_after(20):
            await begun.wait()
        posting.cancel_scope.cancel()

    # Warnings of what is collected are errors.
    gc.collect()
    await trio.lowlevel.checkpoint()


async def test_request_body_is_sent_whole_and_again_after_a_redirect(nursery: trio.Nursery) -> None:
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

    async with httpx.AsyncClient(transport=HttpTransport(), follow_redirects=True) as client:
        with trio.fail_after(20):
            response = await client.post(f"http://127.0.0.1:{port}/", content=b"the content")

    assert response.status_code == 200
    assert seen == [b"the content"] * 2


@pytest.mark.parametrize("scheme", ["https", "http"])
async def test_cancelled_tls_handshake_closes_the_connection(nursery: trio.Nursery, scheme: str) -> None:
    """`https` connects to the server, `http` through a proxy: the handshake comes after its CONNECT."""
    begun, ended = trio.Event(), trio.Event()

    async def never_shake_hands(stream: trio.SocketStream) -> None:
        if scheme == "http":
            request = b""
            while not request.endswith(b"\r\n\r\n"):
                request += await stream.receive_some()
            await stream.send_all(b"HTTP/1.1 200 Connected\r\n\r\n")
        await stream.receive_some()
        begun.set()
        async for _ in stream:
            pass
        ended.set()

    listeners = await nursery.start(trio.serve_tcp, never_shake_hands, 0)
    address = f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
    transport = HttpTransport(proxy=f"http://{address}") if scheme == "http" else HttpTransport()

    async with httpx.AsyncClient(transport=transport, timeout=None) as client, trio.open_nursery() as asking:
        asking.start_soon(client.get, f"https://{address}/")
        with trio.fail_after(20):
            await begun.wait()
        gc.disable()  # the collector would close the socket too
        try:
            asking.cancel_scope.cancel()
            with trio.CancelScope(shield=True), trio.fail_after(20):
                await ended.wait()
        finally:
            gc.enable()


def test_each_error_of_httpcore_has_a_namesake_in_httpx() -> None:
    errors = [
        value
        for name in httpcore.__all__
        if isinstance(value := getattr(httpcore, name, None), type)
        and issubclass(value, Exception)
        and value is not httpcore.ConnectionNotAvailable  # internal to the pool
    ]
    assert errors
    for error in errors:
        assert issubclass(error, HTTPCORE_ERRORS)
        assert issubclass(getattr(httpx, error.__name__), httpx.TransportError)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"", httpx.RemoteProtocolError),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nearly", httpx.RemoteProtocolError),
        (None, httpx.ReadTimeout),
    ],
)
async def test_failures_are_errors_of_httpx(
    nursery: trio.Nursery, answer: bytes | None, expected: type[httpx.TransportError]
) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        if answer is None:
            await trio.sleep_forever()
        else:
            await stream.send_all(answer)
            await stream.aclose()

    listeners = await nursery.start(trio.serve_tcp, serve, 0)
    timeout = httpx.Timeout(20, read=0.05 if answer is None else 20)
    async with httpx.AsyncClient(transport=HttpTransport(), timeout=timeout) as client:
        with pytest.raises(expected):
            await client.get(f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/")


async def test_refused_connection_is_a_connect_error() -> None:
    with trio.socket.socket() as unused:
        await unused.bind(("127.0.0.1", 0))
        async with httpx.AsyncClient(transport=HttpTransport()) as client:
            with pytest.raises(httpx.ConnectError):
                await client.get(f"http://127.0.0.1:{unused.getsockname()[1]}/")


@pytest.mark.parametrize(("header", "may_follow"), [(b"", True), (b"connection: close\r\n", False)])
async def test_response_is_read_in_parts_and_connection_is_reusable_unless_the_server_closes_it(
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


@pytest.mark.parametrize(
    ("head", "part"),
    [
        (b"HTTP/1.1 103 Early Hints\r\n\r\n" * 500, b""),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 500),
    ],
)
async def test_a_response_in_tiny_parts_lets_other_tasks_run(head: bytes, part: bytes, nursery: trio.Nursery) -> None:
    stream, server = memory_stream_pair()
    exchange = Exchange(stream)
    passes = 0

    async def count() -> None:
        nonlocal passes
        while True:
            passes += 1
            await trio.lowlevel.checkpoint()

    await exchange.send("GET", "/", [(b"host", b"x")])
    await server.send_all(head + part)
    await server.aclose()
    nursery.start_soon(count)
    with suppress(h11.RemoteProtocolError):
        await exchange.receive_head()
        while await exchange.receive_some():
            pass
    assert passes > 500 // 16


async def test_response_that_ends_early_is_an_error() -> None:
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


async def test_silence_limits_the_time_without_data_and_not_the_whole_exchange(
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
