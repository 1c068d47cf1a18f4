"""Backends of the benchmark: one HAProxy that answers at several ports and names the port in a header.

It answers from its configuration, which costs a tenth of what a server
written in Python would take from the two cores that the rest shares.
"""

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from haptic_trio.dataplane.binary import clean_environment
from haptic_trio.errors import HapticError

COUNT = 6
"""Number of different answers: an app can be changed this often in a burst, with each change visible."""
START_LIMIT = 10.0

_HEAD = """\
global
    nbthread 1
defaults
    mode http
    timeout client 10s
    timeout server 10s
    timeout connect 10s
"""
_FRONTEND = """\
frontend {name}
    bind {address}:{port}
    http-request return status 200 hdr X-Backend {name}
"""


class NoBackendsError(HapticError):
    """The HAProxy that stands for the apps does not run; its own words are in the message."""


def backend_name(number: int) -> str:
    """Return how the backend at port *number* of them calls itself."""
    return f"b{number}"


@contextmanager
def reserve_ports(address: str, count: int) -> Iterator[list[int]]:
    """Yield free ports and keep them from being given to anybody's connection; HAProxy can bind them all the same."""
    with ExitStack() as stack:
        holders = [stack.enter_context(socket.socket()) for _number in range(count)]
        for holder in holders:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            holder.bind((address, 0))
        yield [int(holder.getsockname()[1]) for holder in holders]


@contextmanager
def run_backends(haproxy: Path, address: str, scratch: Path) -> Iterator[list[int]]:
    """Answer at `COUNT` ports of *address*, which are yielded, for the duration of the block."""
    with reserve_ports(address, COUNT) as ports:
        config = scratch / "backends.cfg"
        frontends = [
            _FRONTEND.format(name=backend_name(number), address=address, port=port) for number, port in enumerate(ports)
        ]
        config.write_text(_HEAD + "".join(frontends))
        words = scratch / "backends.log"
        with words.open("wb") as output:
            process = subprocess.Popen(
                [haproxy, "-db", "-f", config],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=clean_environment(),
                start_new_session=True,
            )
        try:
            _wait_listening(process, address, ports, words)
            yield ports
        finally:
            process.terminate()
            process.wait()


def _wait_listening(process: subprocess.Popen[bytes], address: str, ports: Sequence[int], words: Path) -> None:
    deadline = time.monotonic() + START_LIMIT
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((address, ports[-1]), 1):
            return
        time.sleep(0.01)
    raise NoBackendsError(words.read_text(errors="replace"))
