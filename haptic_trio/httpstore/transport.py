"""One HTTP request over a new connection to a checked address."""

import ssl
import zlib
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Final
from urllib.parse import SplitResult

import h11
import msgspec
import trio

from haptic_trio.http1 import Exchange
from haptic_trio.httpstore.addresses import Network, Zone, zone_of
from haptic_trio.httpstore.content import FetchError
from haptic_trio.httpstore.own_addresses import is_own_address

Resolve = Callable[[str, int], Awaitable[tuple[str, ...]]]
"""Return the addresses of a host, the preferred one first; raises OSError."""

Connect = Callable[[str, int], Awaitable[trio.abc.Stream]]
"""Connect to an address and port; raises OSError."""

PORTS: Final = {"http": 80, "https": 443}
_RETRIED: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of a server."""

    status: int
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes
    """Decompressed; empty for anything but 200."""
    zone: Zone
    """Address of the server."""

    @property
    def may_retry(self) -> bool:
        """Whether the server might answer otherwise soon."""
        return self.status in _RETRIED


async def resolve_host(host: str, port: int) -> tuple[str, ...]:
    """Return the addresses of *host* as the system knows them."""
    found = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(address[0]) for *_, address in found))


async def connect_address(address: str, port: int) -> trio.abc.Stream:
    """Connect to *address*."""
    return await trio.open_tcp_stream(address, port)


class Dialer:
    """Connects to addresses, not to names: the checked address is the connected one, whatever DNS returns later."""

    def __init__(
        self,
        allowed: Collection[Network],
        *,
        resolve: Resolve = resolve_host,
        connect: Connect = connect_address,
        is_own: Callable[[str], bool] = is_own_address,
    ) -> None:
        """*allowed* and *is_own* are as for `zone_of`."""
        self._allowed = allowed
        self._is_own = is_own
        self._resolve = resolve
        self._connect = connect

    async def dial(self, host: str, port: int, *, only_public: bool) -> tuple[trio.abc.Stream, Zone]:
        """Return a connection to *host*, and where it leads; raises `FetchError` if no address may be used."""
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError):
            raise FetchError("the host name has no address", may_retry=True) from None
        zones = {address: self._zone_of(address) for address in addresses}
        permitted = (Zone.PUBLIC,) if only_public else (Zone.PUBLIC, Zone.PRIVATE)
        usable = [address for address, zone in zones.items() if zone in permitted]
        if not usable:
            if Zone.PRIVATE in zones.values():
                raise FetchError("a public server redirects to a private address")
            raise _forbidden()
        reason = ""
        for address in usable:
            try:
                stream = await self._connect(address, port)
            except OSError as exc:
                reason = exc.strerror or str(exc)
                continue
            if _leads_back(stream) and self._zone_of(address) is Zone.FORBIDDEN:
                # An interface got the address after the check; nothing has been sent.
                await trio.aclose_forcefully(stream)
                raise _forbidden()
            return stream, zones[address]
        raise FetchError(f"no connection: {reason}", may_retry=True)

    def _zone_of(self, address: str) -> Zone:
        return zone_of(address, self._allowed, is_own=self._is_own)


def _forbidden() -> FetchError:
    return FetchError(
        "the host's address is one of this machine, its link or its cloud", "if that is meant: `http.allowedNetworks`"
    )


def _leads_back(stream: trio.abc.Stream) -> bool:
    """Whether both ends of a connection have one address."""
    if not isinstance(stream, trio.SocketStream):
        return False
    try:
        return bool(stream.socket.getsockname()[0] == stream.socket.getpeername()[0])
    except OSError:
        # The peer has gone already.
        return False


async def ask(
    url: SplitResult,
    headers: Mapping[str, str],
    *,
    dialer: Dialer,
    context: ssl.SSLContext | None,
    max_bytes: int,
    only_public: bool = False,
) -> Answer:
    """Send one GET; raises `FetchError`. The caller bounds the time.

    *context* is for HTTPS, *max_bytes* is of the decompressed body, and
    *only_public* keeps to public addresses.
    """
    host = url.hostname or ""
    stream, zone = await dialer.dial(host, url.port or PORTS[url.scheme], only_public=only_public)
    if url.scheme == "https":
        assert context is not None
        stream = trio.SSLStream(stream, context, server_hostname=host, https_compatible=True)
    with _map_errors():
        async with stream:
            if isinstance(stream, trio.SSLStream):
                with _map_handshake():
                    await stream.do_handshake()
            return await _converse(stream, url, headers, zone, max_bytes)


async def _converse(
    stream: trio.abc.Stream, url: SplitResult, headers: Mapping[str, str], zone: Zone, max_bytes: int
) -> Answer:
    sent = {"host": url.netloc, **headers, "accept-encoding": "gzip", "connection": "close"}
    target = f"{url.path or '/'}?{url.query}" if url.query else url.path or "/"
    exchange = Exchange(stream)
    await exchange.send("GET", target, [(name.encode("ascii"), value.encode("ascii")) for name, value in sent.items()])
    status, raw_headers = await exchange.receive_head()
    received = {name.decode("latin-1"): value.decode("latin-1") for name, value in raw_headers}
    body = b""
    if status == 200:
        length = received.get("content-length", "")
        if length.isdigit() and int(length) > max_bytes:
            raise _too_large(max_bytes)
        unpack = Unpacker(received.get("content-encoding", ""), max_bytes)
        while data := await exchange.receive_some():
            unpack.feed(data)
        body = unpack.finish()
    return Answer(status=status, headers=received, body=body, zone=zone)


class Unpacker:
    """Puts a body together, decompressed, and never holds more than *max_bytes* of it."""

    def __init__(self, encoding: str, max_bytes: int) -> None:
        """Raises `FetchError` for an encoding that was not asked for."""
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._size = 0
        name = encoding.strip().lower()
        if name not in ("", "identity", "gzip", "x-gzip"):
            raise FetchError("the server sends an encoding that it was not asked for")
        self._gzip = zlib.decompressobj(wbits=31) if name.endswith("gzip") else None

    def feed(self, data: bytes) -> None:
        """Take in *data*; raises `FetchError` once it is too much, or broken."""
        if self._gzip is not None:
            try:
                data = self._gzip.decompress(data, self._max_bytes - self._size + 1)
            except zlib.error:
                raise FetchError("the server's gzip is broken", may_retry=True) from None
            if self._gzip.unused_data:
                raise FetchError("something follows the server's gzip")
        self._size += len(data)
        if self._size > self._max_bytes or (self._gzip is not None and self._gzip.unconsumed_tail):
            raise _too_large(self._max_bytes)
        self._parts.append(data)

    def finish(self) -> bytes:
        """Return the whole content; raises `FetchError` if it is incomplete."""
        if self._gzip is not None and not self._gzip.eof:
            raise FetchError("the server's gzip ends too early", may_retry=True)
        return b"".join(self._parts)


def _too_large(max_bytes: int) -> FetchError:
    return FetchError(f"the content is larger than {max_bytes} bytes", "`http.maxBytes` is the limit")


@contextmanager
def _map_errors() -> Iterator[None]:
    """Translate what the connection raises, once, at the edge; what the peer said is left out."""
    try:
        yield
    except (trio.BrokenResourceError, h11.RemoteProtocolError, OSError) as exc:
        raise FetchError(f"the connection broke ({type(exc).__name__})", may_retry=True) from None
    except h11.LocalProtocolError:
        raise FetchError("the request cannot be sent") from None


@contextmanager
def _map_handshake() -> Iterator[None]:
    try:
        yield
    except trio.BrokenResourceError as exc:
        cause = exc.__cause__
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason = f"the server's certificate is not trusted: {cause.verify_message}"
            raise FetchError(reason, "option `ca`") from None
        if isinstance(cause, ssl.SSLError):
            raise FetchError("the TLS handshake failed") from None
        raise
