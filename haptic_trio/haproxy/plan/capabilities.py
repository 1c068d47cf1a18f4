"""Capabilities of an HAProxy process: the runtime changes it supports, by version and by its own report."""

import re
from typing import Final

import msgspec

# What `add server` takes since 2.8 and what means the same there as in a configuration.
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
# What the process offers, but what names something of which there is one in the whole process, or another server.
_SINGULAR: Final = frozenset({"id", "guid", "track", "usesrc", "disabled", "enabled"})
_OPTION_LINE: Final = re.compile(r"[a-z0-9-]+\*?")


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Which changes a process takes; the default is what every endpoint can do."""

    servers: bool = False
    """Servers can be added and deleted."""
    server_options: frozenset[str] = frozenset()
    """Words that `add server` takes."""
    backends: bool = False
    """Backends can be added and deleted."""
    certificates: bool = False
    """Certificates and crt-list entries can be added, replaced and deleted."""
    distrust: bool = False
    """A client whose authority is trusted no more cannot resume a TLS session that it had before."""


def capabilities_of(version: tuple[int, ...]) -> Capabilities:
    """Return what HAProxy of *version*, such as `(2, 8, 25)`, can do as far as the version alone tells."""
    modern = version >= (2, 8)
    return Capabilities(
        servers=modern,
        server_options=_SERVER_OPTIONS if modern else frozenset(),
        backends=version >= (3, 4),
        certificates=modern,
        distrust=version >= (3, 2),
    )


NEWEST: Final = capabilities_of((3, 4))
"""What some HAProxy that this is made for can do."""


def read_capabilities(version: tuple[int, ...], commands: str, options: str) -> Capabilities:
    """Return what a process can do by the replies to `help` and to `add server help`.

    A command that `help` does not list is not there, whatever the version
    says. The second reply lists options since 3.0; before, the version decides.
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
