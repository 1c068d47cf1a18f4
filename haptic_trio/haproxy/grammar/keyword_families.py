"""Kinds of proxy sections and families of keywords that no keyword table lists."""

from typing import Final

PROXY_KINDS: Final = ("defaults", "frontend", "backend", "listen")

# Prefixes of keyword families whose members depend on the build of HAProxy.
OPEN_PREFIXES: Final = ("tune.quic.", "wurfl-", "deviceatlas-", "51degrees-")
