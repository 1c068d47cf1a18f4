"""Capabilities of an HAProxy process: the runtime changes that its version and its own report say it supports."""

import re
from typing import Final

import msgspec

# Options that `add server` accepts since 2.8, with the same meaning as in a configuration.
_SERVER_OPTIONS: Final = frozenset(
    {
        *("addr", "agent-addr", "agent-check", "agent-inter", "agent-port", "agent-send", "allow-0rtt", "alpn"),
        *("backup", "ca-file", "check", "check-alpn", "check-proto", "check-send-proxy", "check-sni", "check-ssl"),
        *("check-via-socks4", "ciphers", "ciphersuites", "cookie", "crl-file", "crt", "downinter", "error-limit"),
        *("fall", "fastinter", "inter", "maxconn", "maxqueue", "minconn", "no-ssl-reuse", "no-sslv3"),
        *("no-tls-tickets", "no-tlsv10", "no-tlsv11", "no-tlsv12", "no-tlsv13", "npn", "observe", "on-error"),
        *("on-marked-down", "on-marked-up", "pool-low-conn", "pool-max-conn", "pool-purge-delay", "port", "proto"),
        *("proxy-v2-options", "rise", "send-proxy", "send-proxy-v2", "send-proxy-v2-ssl", "send-proxy-v2-ssl-cn"),
        *("slowstart", "sni", "source", "ssl", "ssl-max-ver", "ssl-min-ver", "tfo", "verify", "verifyhost", "weight"),
        "ws",
    }
)
# Options that the process offers, but that refer to another server, or to an object that is unique in the process.
_SINGULAR: Final = frozenset({"id", "guid", "track", "usesrc", "disabled", "enabled"})
_OPTION_LINE: Final = re.compile(r"[a-z0-9-]+\*?")


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Changes that a process supports; the default is supported by every endpoint."""

    servers: bool = False
    """Servers can be added and deleted."""
    server_options: frozenset[str] = frozenset()
    """Options that `add server` accepts."""
    backends: bool = False
    """Backends can be added and deleted."""
    certificates: bool = False
    """Certificates and crt-list entries can be added, replaced and deleted."""
    distrust: bool = False
    """A client whose authority is no longer trusted cannot resume an earlier TLS session."""


def capabilities_of(version: tuple[int, ...]) -> Capabilities:
    """Return the capabilities of HAProxy *version*, such as `(2, 8, 25)`, by the version alone."""
    modern = version >= (2, 8)
    return Capabilities(
        servers=modern,
        server_options=_SERVER_OPTIONS if modern else frozenset(),
        backends=version >= (3, 4),
        certificates=modern,
        distrust=version >= (3, 2),
    )


NEWEST: Final = capabilities_of((3, 4))
"""Capabilities of the newest supported HAProxy."""


def read_capabilities(version: tuple[int, ...], commands: str, options: str) -> Capabilities:
    """Return the capabilities of a process, from the replies to `help` and `add server help`.

    A command that `help` does not list is not supported, whatever the version
    is. The second reply lists options since 3.0; the version decides for
    older ones.
    """
    known = capabilities_of(version)
    offered = set(commands_in(commands))
    more = frozenset(line.strip() for line in options.splitlines() if _OPTION_LINE.fullmatch(line.strip())) - _SINGULAR
    return Capabilities(
        servers=known.servers and {"add server", "del server"} <= offered,
        server_options=more or known.server_options,
        backends={"add backend", "publish backend", "del backend"} <= offered,
        certificates=known.certificates and {"new ssl cert", "add ssl crt-list", "del ssl crt-list"} <= offered,
        distrust=known.distrust,
    )


def commands_in(reply: str) -> list[str]:
    """Return the commands that the reply to `help` lists, without their arguments."""
    lines = (line.partition(" : ")[0] for line in reply.splitlines() if line.startswith("  "))
    return [re.split(r"\s*[<\[{(]", line.strip(), maxsplit=1)[0].strip() for line in lines]
