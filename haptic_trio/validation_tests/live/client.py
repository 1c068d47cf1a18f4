"""HTTP client of a test: sends exactly the bytes that the test states."""

import ipaddress
import ssl
from typing import Final

import h11
import msgspec
import trio

from haptic_trio.config.assertions import Request
from haptic_trio.validation_tests.live.certificates import client_context, names_in
from haptic_trio.validation_tests.live.echo import next_event

_SOURCE_PORT: Final = 40_000
_MOST_BODY: Final = 1 << 20


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The response, or the closed connection."""

    status: int = 0
    """Status; 0 if the connection was closed or the handshake failed."""
    headers: dict[str, list[str]] = {}
    """Headers by lower-case name."""
    body: str = ""
    certificate: frozenset[str] = frozenset()
    """DNS names of the server certificate."""


async def exchange(address: tuple[str, int], request: Request, *, port: int) -> Reply:
    """Send *request* to *address* on a new connection, as if to *port*; return the response, or that there was none."""
    certificate: frozenset[str] = frozenset()
    try:
        async with await trio.open_tcp_stream(*address) as plain:
            await plain.send_all(_proxy_header(request.source, port))
            stream: trio.abc.Stream = plain
            if request.tls:
                name = request.sni or request.host.partition(":")[0]
                secure = trio.SSLStream(plain, client_context(), server_hostname=name or None, https_compatible=True)
                await secure.do_handshake()
                certificate = names_in(secure.getpeercert(binary_form=True) or b"")
                stream = secure
            await stream.send_all(write_request(request))
            reply = await _read_reply(stream, request.method)
    except (trio.BrokenResourceError, h11.RemoteProtocolError, ssl.SSLError, OSError):
        reply = Reply()
    return msgspec.structs.replace(reply, certificate=certificate)


def write_request(request: Request) -> bytes:
    """Return the bytes of *request*, well-formed or not."""
    version = "1.1" if request.host else "1.0"
    lines = [f"{request.method} {request.path} HTTP/{version}"]
    if request.host:
        lines.append(f"Host: {request.host}")
    lines += [f"{name}: {value}" for name, value in request.headers.items()]
    body = request.body.encode()
    if body:
        lines.append(f"Content-Length: {len(body)}")
    lines += ["Connection: close", "", ""]
    return "\r\n".join(lines).encode() + body


def _proxy_header(source: str, port: int) -> bytes:
    is_new = ipaddress.ip_address(source).version == 6
    family, own = ("TCP6", "::1") if is_new else ("TCP4", "127.0.0.1")
    return f"PROXY {family} {source} {own} {_SOURCE_PORT} {port or 1}\r\n".encode()


async def _read_reply(stream: trio.abc.Stream, method: str) -> Reply:
    connection = h11.Connection(h11.CLIENT)
    # h11 needs the method to parse the response.
    connection.send(h11.Request(method=method, target="/", headers=[("Host", "none"), ("Connection", "close")]))
    connection.send(h11.EndOfMessage())
    status, headers, body = 0, dict[str, list[str]](), b""
    while True:
        event = await next_event(connection, stream)
        if isinstance(event, h11.Response):
            status = event.status_code
            for name, value in event.headers:
                headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        elif isinstance(event, h11.Data):
            body = (body + bytes(event.data))[:_MOST_BODY]
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed) or event is h11.PAUSED:
            return Reply(status=status, headers=headers, body=body.decode(errors="replace"))
