"""Ports for what a test starts, kept free for it until it does."""

import os
import socket
from collections import deque
from typing import Final

KEPT: Final = 200
"""How many ports are kept at a time; the oldest is let go for the next."""

_kept: deque[int] = deque()


def free_port() -> int:
    """Return a port of the loopback address that nothing listens on.

    The kernel gives it neither to a listener on any port nor to a connection
    of this machine. A process that names it can listen there if it sets
    SO_REUSEADDR, as HAProxy and the servers of Trio do. Connections before
    that are rejected.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        # Bound and never listening, it has a part in nothing.
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        _kept.append(holder.detach())
    if len(_kept) > KEPT:
        os.close(_kept.popleft())
    return port
