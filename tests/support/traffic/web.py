"""A web server on the loopback interface that answers what a test says, and remembers what it was asked."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

import h11
import msgspec
import trio


class Page(msgspec.Struct, kw_only=True):
    """What a path is answered with."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = {}
    hold: trio.Event | None = None
    """Nothing is sent before this."""
    drip: trio.Event | None = None
    """Half of the body is sent, and the rest after this."""


class Asked(msgspec.Struct, frozen=True):
    """A request that came."""

    path: str
    headers: dict[str, str]


class Web:
    """Pages by path, which may be changed at any time."""

    def __init__(self, host: str, port: int, scheme: str) -> None:
        self.base = f"{scheme}://{host}:{port}"
        self.port = port
        self.pages: dict[str, Page] = {}
        self.asked: list[Asked] = []
        self._news = trio.Event()

    def url(self, path: str) -> str:
        """Return the URL of *path*."""
        return f"{self.base}{path}"

    def text(self, path: str, text: str, **headers: str) -> None:
        """Answer *path* with *text*."""
        self.pages[path] = Page(body=text.encode(), headers={k.replace("_", "-"): v for k, v in headers.items()})

    async def wait_asked(self, number: int) -> None:
        """Return once *number* requests have come, all in all."""
        with trio.fail_after(60):
            while len(self.asked) < number:
                await self._news.wait()

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Answer one connection."""
        connection = h11.Connection(h11.SERVER)
        async with stream:
            # Who asks may go away at any moment.
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError):
                await self._answer(connection, stream)

    async def _answer(self, connection: h11.Connection, stream: trio.abc.Stream) -> None:
        request: h11.Request | None = None
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(bytes(await stream.receive_some()))
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.EndOfMessage):
                break
            else:
                return
        assert request is not None
        headers = {name.decode(): value.decode() for name, value in request.headers}
        path = request.target.decode()
        self.asked.append(Asked(path, headers))
        self._news.set()
        self._news = trio.Event()
        page = self.pages.get(path) or Page(status=404)
        if page.hold is not None:
            await page.hold.wait()
        etag = page.headers.get("etag")
        if etag and headers.get("if-none-match") == etag:
            page = Page(status=304, headers=page.headers)
        sent = [*page.headers.items(), ("connection", "close")]
        if not any(name == "content-length" for name, _ in sent):
            sent.append(("content-length", str(len(page.body))))
        await stream.send_all(connection.send(h11.Response(status_code=page.status, headers=sent)) or b"")
        half = len(page.body) // 2
        for number, part in enumerate((page.body[:half], page.body[half:])):
            if number and page.drip is not None:
                await page.drip.wait()
            if part and page.status != 304:
                await stream.send_all(connection.send(h11.Data(data=part)) or b"")


@asynccontextmanager
async def serving_pages(*, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> AsyncIterator[Web]:
    """Run a server; HTTPS where *tls* is given."""
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host=host)
        port = listeners[0].socket.getsockname()[1]
        web = Web(host, port, "https" if tls is not None else "http")
        handler: Callable[[trio.SocketStream], Awaitable[None]] = web.serve
        if tls is not None:

            async def handler(stream: trio.SocketStream, tls: ssl.SSLContext = tls) -> None:
                secure = trio.SSLStream(stream, tls, server_side=True, https_compatible=True)
                try:
                    await secure.do_handshake()
                except (trio.BrokenResourceError, ssl.SSLError):
                    await trio.aclose_forcefully(stream)
                    return
                await web.serve(secure)

        nursery.start_soon(partial(trio.serve_listeners, handler, listeners))
        yield web
        nursery.cancel_scope.cancel()
