"""Whether HAProxy will be able to listen, asked before it tries.

A reload whose listener fails to bind is not harmless: for the two seconds
that the new worker keeps trying, HAProxy pauses the listeners of the old one,
and connections are refused. So addresses that the running configuration has
not are tried out here first.
"""

import errno
import re
import socket
from collections.abc import Iterator

from haptic_trio.haproxy.model import Config

_ADDRESS = re.compile(
    r"(?:ipv4@|ipv6@)?(?P<host>\*|\[[0-9A-Fa-f:.]+\]|[0-9.]*|[0-9A-Fa-f:]*:[0-9A-Fa-f:]*)"
    r":(?P<first>\d+)(?:-(?P<last>\d+))?"
)
_TELLING = frozenset({errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL})
_ELSEWHERE = frozenset({"interface", "namespace", "transparent"})
"""Options with which a plain socket of ours would say nothing about HAProxy's."""
_MOST_PORTS = 1000

Address = tuple[str, int]


def find_addresses(config: Config) -> frozenset[Address]:
    """Return the TCP addresses that *config* listens on, as far as they are plain numbers."""
    sections = (section for kind in ("frontend", "listen") for section in config.all(kind))
    return frozenset(
        address
        for section in sections
        for directive in section.all("bind")
        if len(directive.words) > 1 and not _ELSEWHERE.intersection(directive.words)
        for word in directive.words[1].split(",")
        for address in _read_address(word)
    )


def _read_address(word: str) -> Iterator[Address]:
    match = _ADDRESS.fullmatch(word)
    if match is None:
        return
    host = match["host"].strip("[]")
    first = int(match["first"])
    last = int(match["last"] or first)
    if 0 < first <= last <= min(65535, first + _MOST_PORTS):
        for port in range(first, last + 1):
            yield ("0.0.0.0" if host in {"", "*"} else host, port)  # noqa: S104 - what HAProxy makes of it


def find_conflict(desired: Config, running: Config | None) -> str:
    """Return why HAProxy could not listen where *desired* says and *running* does not; empty if nothing is known."""
    for host, port in sorted(find_addresses(desired) - (find_addresses(running) if running is not None else set())):
        try:
            _try_bind(host, port)
        except OSError as exc:
            if exc.errno in _TELLING:
                return f"cannot bind {host}:{port}: {exc.strerror}"
    return ""


def _try_bind(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Bound but not listening, and with HAProxy's own options: nobody who connects can get here.
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        probe.bind((host, port))
