"""Check before a load that HAProxy can bind its addresses.

A reload with an address that cannot be bound interrupts traffic: the new
worker retries for two seconds, in which HAProxy pauses the listeners of the
old worker, and connections are refused. So new addresses are bound here first.
"""

import errno
import os
import re
import socket
from collections.abc import Iterator
from typing import Final

from haptic_trio.dataplane.endpoint import UnboundAddress
from haptic_trio.haproxy.model import Config

_ADDRESS = re.compile(
    r"(?:ipv[46]@|(?P<quic>quic[46]@))?(?P<host>\*|\[[0-9A-Fa-f:.]+\]|[0-9.]*|[0-9A-Fa-f:]*:[0-9A-Fa-f:]*)"
    r":(?P<first>\d+)(?:-(?P<last>\d+))?"
)
_CONFLICTS = frozenset({errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL})
_OTHER_SCOPE = frozenset({"interface", "namespace", "transparent"})
"""Options with which a plain socket behaves differently from HAProxy's."""
_MOST_PORTS = 1000
_BIND_ERROR: Final = re.compile(
    r"^(?:\[ALERT\]\s*\(\d+\)\s*:\s*)?Binding \[[^\]\n]*\] for \w+ \S+: (?:protocol \S+: )?"
    r"cannot (?:bind|listen to) socket \((?P<reason>[^)\n]{1,100})\) for \[(?P<host>\S*):(?P<port>\d{1,5})\]",
    re.MULTILINE,
)
"""Error of HAProxy 2.8 to 3.4 about a listener, at a start or a reload."""

Address = tuple[str, int]


def find_addresses(config: Config, kind: socket.SocketKind = socket.SOCK_STREAM) -> frozenset[Address]:
    """Return the addresses that *config* binds, except names and variables: of TCP, or of QUIC (datagrams)."""
    sections = (section for name in ("frontend", "listen") for section in config.all(name))
    return frozenset(
        address
        for section in sections
        for directive in section.all("bind")
        if len(directive.words) > 1 and not _OTHER_SCOPE.intersection(directive.words)
        for word in directive.words[1].split(",")
        for address in _read_address(word, kind)
    )


def _read_address(word: str, kind: socket.SocketKind) -> Iterator[Address]:
    match = _ADDRESS.fullmatch(word)
    if match is None or (kind is socket.SOCK_DGRAM) != bool(match["quic"]):
        return
    host = match["host"]
    first = int(match["first"])
    last = int(match["last"] or first)
    if 0 < first <= last <= min(65535, first + _MOST_PORTS):
        for port in range(first, last + 1):
            yield _host_of(host), port


def find_conflicts(desired: Config, running: Config | None) -> tuple[UnboundAddress, ...]:
    """Return the new addresses of *desired* (compared with *running*) that cannot be bound now."""
    found: set[UnboundAddress] = set()
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        former = find_addresses(running, kind) if running is not None else frozenset()
        for host, port in find_addresses(desired, kind) - former:
            try:
                _try_bind(host, port, kind)
            except OSError as exc:
                if exc.errno in _CONFLICTS:
                    found.add(UnboundAddress(host, port, os.strerror(exc.errno)))
    return tuple(sorted(found))


def read_conflicts(output: str) -> tuple[UnboundAddress, ...]:
    """Return the addresses that HAProxy could not bind according to *output*."""
    found = {
        UnboundAddress(_host_of(match["host"]), int(match["port"]), match["reason"])
        for match in _BIND_ERROR.finditer(output)
    }
    return tuple(sorted(found))


def _host_of(text: str) -> str:
    host = text.strip("[]")
    return "0.0.0.0" if host in {"", "*"} else host  # noqa: S104 - as HAProxy reads it


def _try_bind(host: str, port: int, kind: socket.SocketKind) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Bound with HAProxy's options but not listening, so it gets no connections. Clients of QUIC repeat a lost packet.
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        probe.bind((host, port))
