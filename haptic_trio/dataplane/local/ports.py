"""Check that HAProxy can bind its addresses, made before it tries.

A reload whose listener fails to bind is not harmless: for the two seconds
that the new worker keeps trying, HAProxy pauses the listeners of the old one,
and connections are refused. So addresses that the running configuration has
not are tried out here first.
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
    r"(?:ipv4@|ipv6@)?(?P<host>\*|\[[0-9A-Fa-f:.]+\]|[0-9.]*|[0-9A-Fa-f:]*:[0-9A-Fa-f:]*)"
    r":(?P<first>\d+)(?:-(?P<last>\d+))?"
)
_TELLING = frozenset({errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL})
_ELSEWHERE = frozenset({"interface", "namespace", "transparent"})
"""Options with which a plain socket of ours would say nothing about HAProxy's."""
_MOST_PORTS = 1000
_REFUSAL: Final = re.compile(
    r"^(?:\[ALERT\]\s*\(\d+\)\s*:\s*)?Binding \[[^\]\n]*\] for \w+ \S+: (?:protocol \S+: )?"
    r"cannot (?:bind|listen to) socket \((?P<reason>[^)\n]{1,100})\) for \[(?P<host>\S*):(?P<port>\d{1,5})\]",
    re.MULTILINE,
)
"""What HAProxy 2.8 to 3.4 says of a listener, at a start or a reload."""

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
    host = match["host"]
    first = int(match["first"])
    last = int(match["last"] or first)
    if 0 < first <= last <= min(65535, first + _MOST_PORTS):
        for port in range(first, last + 1):
            yield _host_of(host), port


def find_conflicts(desired: Config, running: Config | None) -> tuple[UnboundAddress, ...]:
    """Return where HAProxy could not listen of what *desired* has and *running* has not, as far as that is known."""
    found: list[UnboundAddress] = []
    for host, port in sorted(find_addresses(desired) - (find_addresses(running) if running is not None else set())):
        try:
            _try_bind(host, port)
        except OSError as exc:
            if exc.errno in _TELLING:
                found.append(UnboundAddress(host, port, os.strerror(exc.errno)))
    return tuple(found)


def read_conflicts(output: str) -> tuple[UnboundAddress, ...]:
    """Return where HAProxy says in *output* that it cannot listen."""
    found = {
        UnboundAddress(_host_of(match["host"]), int(match["port"]), match["reason"])
        for match in _REFUSAL.finditer(output)
    }
    return tuple(sorted(found))


def _host_of(text: str) -> str:
    host = text.strip("[]")
    return "0.0.0.0" if host in {"", "*"} else host  # noqa: S104 - what HAProxy makes of it


def _try_bind(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Bound but not listening, and with HAProxy's own options: nobody who connects can get here.
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        probe.bind((host, port))
