"""What no table of keywords says: which kinds of sections are proxies, and families of names that builds differ in."""

from typing import Final

PROXY_KINDS: Final = ("defaults", "frontend", "backend", "listen")

# Whole families of names that depend on how HAProxy was built.
OPEN_PREFIXES: Final = ("tune.quic.", "wurfl-", "deviceatlas-", "51degrees-")
