"""HTTPS server on Trio that reloads its certificates when they change."""

import socket
from typing import Final

import hypercorn.trio
import trio
from hypercorn.config import Config
from starlette.types import ASGIApp

from haptic_trio.dataplane.agent.tls import ALPN, RenewedContext

GRACE: Final = 1.0
"""Seconds for requests in flight at shutdown."""
UNREAD_LIMIT: Final = 20_000
"""Milliseconds until a connection is closed whose client does not read: such a write cannot be cancelled."""


class HttpsConfig(Config):
    """Hypercorn configuration for one address with a given TLS context; limits are seconds."""

    def __init__(self, bind: str, context: RenewedContext, *, handshake_limit: float, idle_limit: float) -> None:
        """Idle connections are kept for *idle_limit* seconds."""
        super().__init__()
        self.context = context
        self.bind = [bind]
        self.alpn_protocols = list(ALPN)
        self.accesslog = None
        self.loglevel = "ERROR"
        self.include_server_header = False
        self.graceful_timeout = GRACE
        self.keep_alive_timeout = idle_limit
        self.ssl_handshake_timeout = handshake_limit

    @property
    def ssl_enabled(self) -> bool:
        """Always: there is no plain HTTP."""
        return True

    def create_ssl_context(self) -> RenewedContext:
        """Return the given context."""
        return self.context

    def _create_sockets(self, binds: list[str], type_: int = socket.SOCK_STREAM) -> list[socket.socket]:
        sockets = self.open_sockets(binds, type_)
        for one in sockets:
            # Inherited by each connection.
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_LIMIT)
        return sockets

    def open_sockets(self, binds: list[str], type_: int) -> list[socket.socket]:
        """Return sockets that are bound to *binds*; raises OSError."""
        return super()._create_sockets(binds, type_)


async def serve_https(
    app: ASGIApp, config: HttpsConfig, *, task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve until cancelled; started() passes the addresses, such as `https://127.0.0.1:5555`."""
    await hypercorn.trio.serve(app, config, mode="asgi", task_status=task_status)  # type: ignore[arg-type]
