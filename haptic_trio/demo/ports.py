"""Loopback ports of the demo."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

LOOPBACK = "127.0.0.1"


def free_or_any(port: int) -> int:
    """Return *port* if it is free, else 0, which selects any free port."""
    with socket.socket() as probe:
        # Ignore lingering connections of an earlier run; only a listener occupies the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen(1)
        except OSError:
            return 0
    return port


@contextmanager
def reserve_port(wanted: int) -> Iterator[int]:
    """Yield *wanted* if it is free, else another port, and keep it from being given to anybody's connection.

    HAProxy can bind it all the same: it shares ports, as this does, and this
    never listens.
    """
    with socket.socket() as holder:
        port = free_or_any(wanted)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind((LOOPBACK, port))
        yield holder.getsockname()[1]
