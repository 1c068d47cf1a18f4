"""Isolated configuration: listens and connects only where the test allows.

Binds get inherited sockets, and receive the address of the client and the
requested port by the PROXY protocol. All servers become the echo server of
the test; each is connected from its own loopback address, which identifies it
independently of the protocol. Other connections (logs, name servers, peers,
mail), process settings (users, sockets, limits) and health checks are
removed: all servers count as up.
"""

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from haptic_trio.haproxy.config.writer import write_directive
from haptic_trio.haproxy.model import Config, Directive, Section

PRELUDE: Final = "global\n    default-path config\n    nbthread 1\n    maxconn 500\n"
"""Lines before the configuration."""

_PORT: Final = re.compile(r":([0-9]+)(?:-[0-9]+)?$")
_FIRST_SOURCE: Final = int(ipaddress.IPv4Address("127.1.0.1"))

# Words of a line, with how many words that belong to them.
_BIND_OPTIONS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("accept-proxy", "defer-accept", "tfo", "transparent", "v4v6", "v6only"), 0),
    **dict.fromkeys(("accept-netscaler-cip", "gid", "group", "interface", "mode", "mss", "namespace"), 1),
    **dict.fromkeys(("process", "shards", "thread", "uid", "user"), 1),
}
_SERVER_OPTIONS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("agent-check", "check", "no-check", "check-ssl", "check-send-proxy"), 0),
    **dict.fromkeys(("addr", "agent-addr", "agent-port", "agent-send", "port", "track", "resolvers"), 1),
    **dict.fromkeys(("source", "usesrc", "interface", "namespace", "proto", "check-proto", "init-addr"), 1),
    **dict.fromkeys(("ca-file", "crl-file", "verify", "verifyhost", "socks4"), 1),
}
_GLOBAL_LINES: Final = frozenset({
    "chroot", "cpu-map", "cpu-policy", "daemon", "external-check", "fd-hard-limit", "gid", "group",
    "insecure-fork-wanted", "localpeer", "log", "master-worker", "maxconn", "mworker-max-reloads", "nbproc", "nbthread",
    "pidfile", "server-state-base", "server-state-file", "setgid", "setuid", "stats", "thread-group", "thread-groups",
    "uid", "ulimit-n", "user",
})  # fmt: skip
_LEFT_OUT: Final[Mapping[str, frozenset[str]]] = {
    "global": _GLOBAL_LINES,
    "peers": frozenset({"bind", "default-bind", "default-server", "log", "peer", "server"}),
    "resolvers": frozenset({"nameserver", "parse-resolv-conf"}),
    "mailers": frozenset({"mailer"}),
}
_SECTIONS_LEFT_OUT: Final = frozenset({"log-forward", "program", "ring"})
_ANYWHERE: Final = frozenset({"email-alert", "external-check", "load-server-state-from-file"})


class Bind(msgspec.Struct, frozen=True):
    """A bind address of the configuration."""

    section: str
    port: int
    """0 without a port."""
    tls: bool


class Server(msgspec.Struct, frozen=True):
    """A server line."""

    backend: str
    name: str
    endpoint: str
    """The address in the server line."""
    source: str
    """Source address of connections to it in the test."""


class Isolation:
    """Sockets and servers that an isolated configuration needs, and its text."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.binds: list[Bind] = []
        self.servers: list[Server] = []
        lines = [(section, line) for section in config.sections for line in section.directives]
        self._has_tls_servers = any(
            line.keyword in {"default-server", "server", "server-template"} and "ssl" in line.words
            for _section, line in lines
        )
        for section, line in lines:
            if section.kind in {"frontend", "listen"} and line.keyword == "bind":
                self.binds += _binds_of(section, line)
            elif _is_server(section, line):
                self.servers.append(_server_of(section, line, len(self.servers)))

    def write(self, sockets: Sequence[int], server_port: int) -> str:
        """Return the text for listening *sockets* (descriptors, one for each of `binds`) and the echo server."""
        waiting, servers = list(sockets), list(self.servers)
        blocks = [[write_directive(line) for line in self._config.preamble]]
        for section in self._config.sections:
            if section.kind in _SECTIONS_LEFT_OUT:
                continue
            block = [write_directive(section.header)]
            for line in section.directives:
                if section.kind in {"frontend", "listen"} and line.keyword == "bind":
                    count = sum(1 for _ in _binds_of(section, line))
                    used, waiting = waiting[:count], waiting[count:]
                    block += [_write_bind(line, descriptor) for descriptor in used]
                elif _is_server(section, line):
                    block.append(self._write_server(line, servers.pop(0), server_port))
                elif not _is_left_out(section, line):
                    block.append(_write_other(line))
            if section.kind == "peers":
                # Without peers, HAProxy would reject tables that refer to the section; it runs without the local peer.
                block.append("peer isolated 127.0.0.1:1")
            blocks.append(block)
        return "\n".join("\n    ".join(block) for block in blocks if block) + "\n"

    def _write_server(self, line: Directive, server: Server, port: int) -> str:
        first = 4 if line.keyword == "server-template" else 3
        options = _without(line.words[first:], _SERVER_OPTIONS)
        verify = ("verify", "none") if self._has_tls_servers else ()
        return write_directive(
            Directive(("server", server.name, f"127.0.0.1:{port}", *options, *verify, "source", server.source))
        )


def _binds_of(section: Section, line: Directive) -> Iterator[Bind]:
    tls = "ssl" in line.words[2:]
    for address in (line.words[1] if len(line.words) > 1 else "").split(","):
        if not address.startswith(("quic", "rhttp", "rev@")):
            found = _PORT.search(address)
            yield Bind(section.name, int(found[1]) if found else 0, tls)


def _is_server(section: Section, line: Directive) -> bool:
    return section.kind in {"backend", "listen"} and line.keyword in {"server", "server-template"}


def _server_of(section: Section, line: Directive, number: int) -> Server:
    source = str(ipaddress.IPv4Address(_FIRST_SOURCE + number))
    if line.keyword == "server-template":
        # One server represents all servers of the template.
        return Server(section.name, f"{line.words[1]}1", line.words[3], source)
    return Server(section.name, line.words[1], line.words[2], source)


def _write_bind(line: Directive, descriptor: int) -> str:
    options = _without(line.words[2:], _BIND_OPTIONS)
    return write_directive(Directive(("bind", f"fd@{descriptor}", "accept-proxy", *options)))


def _write_other(line: Directive) -> str:
    if line.keyword == "default-server":
        return write_directive(Directive(("default-server", *_without(line.words[1:], _SERVER_OPTIONS))))
    return write_directive(line)


def _is_left_out(section: Section, line: Directive) -> bool:
    if line.keyword == "log" and section.kind != "global":
        return line.words[1:2] != ("global",)
    if line.keyword in {"source", "default-server"} and line.words[1:] == ():
        return True
    return (
        line.keyword in _LEFT_OUT.get(section.kind, frozenset())
        or line.keyword in _ANYWHERE
        or (line.keyword == "source" and section.kind != "global")
        or (line.keyword == "stats" and line.words[1:2] == ("socket",))
    )


def _without(words: Sequence[str], dropped: Mapping[str, int]) -> list[str]:
    kept, skip = [], 0
    for word in words:
        if skip:
            skip -= 1
        elif word in dropped:
            skip = dropped[word]
        else:
            kept.append(word)
    return kept
