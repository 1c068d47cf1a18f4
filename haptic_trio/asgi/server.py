"""Server of ASGI applications on TCP and unix sockets, with or without TLS.

A client cannot affect other clients or the process: whatever a connection
raises ends that connection alone.
"""

import os
import socket
import ssl
from collections import Counter
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import trio
from starlette.types import ASGIApp

from haptic_trio.asgi.connection import Connection, Peers
from haptic_trio.asgi.wire import DisconnectedError, Limits, PacedStream, Turns, Wire
from haptic_trio.logs import get_logger

BACKLOG: Final = 128
_UNIX: Final = "unix:"
_T = TypeVar("_T")


async def serve_asgi(
    app: ASGIApp,
    bind: str,
    *,
    limits: Limits,
    context: ssl.SSLContext | None = None,
    umask: int | None = None,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve *app* on *bind* (`address:port`, port 0 for any free one, or `unix:PATH`) until cancelled.

    HTTPS with *context*. *umask* is that of a unix socket. started() gives the
    address, such as `http://127.0.0.1:9090`. Raises OSError if it is in use.
    """
    with open_socket(bind, umask=umask) as bound:
        scheme = "http" if context is None else "https"
        address = f"{scheme}://{_text_of(bound.getsockname())}"
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(bound))
        server = _Server(app, limits, context)
        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, server.serve_stream, [listener])
            task_status.started([address])


def open_socket(bind: str, *, umask: int | None = None) -> socket.socket:
    """Return a listening socket for *bind*; raises OSError."""
    if bind.startswith(_UNIX):
        return _open_unix(Path(bind.removeprefix(_UNIX)), umask)
    host, _, port = bind.rpartition(":")
    host = host.strip("[]")
    is_ipv6 = ":" in host
    bound = socket.socket(socket.AF_INET6 if is_ipv6 else socket.AF_INET)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_ipv6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind((host, int(port)))
        return _listening(bound)
    except OSError:
        bound.close()
        raise


def _listening(bound: socket.socket) -> socket.socket:
    bound.listen(BACKLOG)
    bound.setblocking(False)
    return bound


def _open_unix(path: Path, umask: int | None) -> socket.socket:
    if path.is_socket():
        path.unlink()
    bound = socket.socket(socket.AF_UNIX)
    former = os.umask(umask) if umask is not None else None
    try:
        bound.bind(os.fspath(path))
        return _listening(bound)
    except OSError:
        bound.close()
        raise
    finally:
        if former is not None:
            os.umask(former)


class _Phase(Enum):
    """The phases of a connection."""

    NEW = "before its first request"
    BUSY = "in a request, which may be a session without an end"
    IDLE = "between two requests"


class _Open(NamedTuple):
    """A connection."""

    client: str | None
    """Address of the client; None on a unix socket."""
    phase: _Phase


class _Server:
    """The connections of one address."""

    def __init__(self, app: ASGIApp, limits: Limits, context: ssl.SSLContext | None) -> None:
        self._app = app
        self._limits = limits
        self._context = context
        self._log = get_logger("http")
        self._turns = Turns()
        self._open: dict[trio.CancelScope, _Open] = {}
        """The connections that need not make room, in the order in which they entered their phases."""

    async def serve_stream(self, transport: trio.SocketStream) -> None:
        """Serve one connection; raises nothing."""
        with trio.CancelScope() as scope:
            self._make_room()
            try:
                peers = self._peers_of(transport)
                self._open[scope] = _Open(peers.client and peers.client[0], _Phase.NEW)
                await self._serve(transport, scope, peers)
            except* (DisconnectedError, OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                pass
            except* Exception as group:  # noqa: BLE001  a bug in the application is logged, and ends this connection alone
                self._log.error("a request failed", exc_info=group)
            finally:
                self._open.pop(scope, None)

    def _make_room(self) -> None:
        """At the limit, close a connection of the client address that has the most, so that no flood keeps others out.

        It is the first one of the phase that most of its connections are in:
        floods come from many addresses, too, or through one proxy.
        """
        if len(self._open) < self._limits.connections:
            return
        client = _most_frequent(one.client for one in self._open.values())
        phase = _most_frequent(one.phase for one in self._open.values() if one.client == client)
        first = next(scope for scope, one in self._open.items() if one == (client, phase))
        del self._open[first]
        first.cancel(reason="there are too many connections")

    def _enter(self, scope: trio.CancelScope, phase: _Phase) -> None:
        # A connection that has to make room was removed.
        if former := self._open.pop(scope, None):
            self._open[scope] = former._replace(phase=phase)

    def _peers_of(self, transport: trio.SocketStream) -> Peers:
        return Peers(
            scheme="http" if self._context is None else "https",
            client=_address_of(transport.socket.getpeername()),
            server=_address_of(transport.socket.getsockname()),
        )

    async def _serve(self, transport: trio.SocketStream, scope: trio.CancelScope, peers: Peers) -> None:
        stream: trio.abc.Stream = transport
        if self._context is not None:
            stream = trio.SSLStream(
                PacedStream(transport, self._turns), self._context, server_side=True, https_compatible=True
            )
        async with Wire(stream, unread=self._limits.unread, turns=self._turns) as wire:
            if isinstance(stream, trio.SSLStream):
                with trio.move_on_after(self._limits.handshake) as limit:
                    await stream.do_handshake()
                if limit.cancelled_caught:
                    raise DisconnectedError
            connection = Connection(self._app, wire, peers, self._limits)
            while (request := await connection.next_request()) is not None:
                self._enter(scope, _Phase.BUSY)
                if not await connection.serve(request):
                    break
                self._enter(scope, _Phase.IDLE)


def _address_of(name: Any) -> tuple[str, int] | None:
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) else None


def _most_frequent(values: Iterable[_T]) -> _T:
    """Return the value that occurs most often, of several the first one."""
    return Counter(values).most_common(1)[0][0]


def _text_of(name: Any) -> str:
    if not isinstance(name, tuple):
        return f"{_UNIX}{name}"
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
