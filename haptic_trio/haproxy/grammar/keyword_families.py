"""Kinds of proxy sections and families of keywords that no keyword table lists."""

from typing import Final

PROXY_KINDS: Final = ("defaults", "frontend", "backend", "listen")

# Whole families of names that depend on how HAProxy was built.
OPEN_PREFIXES: Final = ("tune.quic.", "wurfl-", "deviceatlas-", "51degrees-")
