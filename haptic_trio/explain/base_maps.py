"""Route lookup of the library `base` in Python, equal to its snippet `frontend-body`.

A request's host and path are looked up in two maps, for up to three scopes
(the host, the host with `*` for its first label, `*`); the first hit wins.
Two values lead to no backend: `no-path` ends the lookup, and `no-wildcard`
leads to the scope `*`.

    path-exact.map     <scope>|<path>      matched as a whole
    path-prefix.map    <scope>|<path>/     the longest entry that begins the key wins; `<scope>|` is the default

What of a configuration these maps decide is known only where they exist. A
test compares this with the answers of a real HAProxy.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from haptic_trio.haproxy.config.maps import parse_map_file

EXACT: Final = "path-exact.map"
PREFIX: Final = "path-prefix.map"
TLS_HOSTS: Final = "tls-host.map"
"""Hosts and wildcards whose plain HTTP requests the library `ssl` redirects."""
NO_ROUTE: Final = "no-route"
"""Backend for requests without a route."""
NO_PATH: Final = "no-path"
NO_WILDCARD: Final = "no-wildcard"

_FIRST_LABEL: Final = re.compile(r"^[^.]+")
_PORT: Final = re.compile(r":[0-9]*\Z")


class MapEntry(msgspec.Struct, frozen=True):
    """An entry of a map, and its line."""

    line: int
    key: str
    value: str


class MapLookup(msgspec.Struct, frozen=True):
    """A lookup in one of the maps, and the matching entries, the effective one first."""

    map: str
    """`EXACT` or `PREFIX`."""
    key: str
    matches: tuple[MapEntry, ...]


class RouteMap:
    """The entries of one map by key."""

    def __init__(self, entries: Sequence[MapEntry]) -> None:
        self.entries = tuple(entries)
        self._by_key: dict[str, list[MapEntry]] = {}
        for entry in entries:
            self._by_key.setdefault(entry.key, []).append(entry)

    def exact(self, key: str) -> tuple[MapEntry, ...]:
        """Return the entries with *key*, in order."""
        return tuple(self._by_key.get(key, ()))

    def prefixes(self, key: str) -> tuple[MapEntry, ...]:
        """Return the entries that are prefixes of *key*, longest first."""
        return tuple(entry for size in range(len(key), 0, -1) for entry in self._by_key.get(key[:size], ()))


def read_entries(text: str) -> Iterator[MapEntry]:
    """Yield the entries of a map file."""
    for number, line in enumerate(text.split("\n"), 1):
        for key, value in parse_map_file(line.encode(errors="surrogatepass")):
            yield MapEntry(number, key, value)


def plain_host(host: str) -> str:
    """Return *host* as used in lookups: in lower case, without port and trailing dots."""
    bare = host if host.endswith("]") else _PORT.sub("", host)
    return bare.lower().rstrip(".")


def scopes_of(host: str) -> tuple[str, ...]:
    """Return the scopes of *host*: the host, its wildcard, and `*`, the most specific first."""
    return tuple(dict.fromkeys((host, wildcard_of(host), "*")))


def wildcard_of(host: str) -> str:
    """Return *host* with its first label replaced by `*`."""
    return _FIRST_LABEL.sub("*", host, count=1)


def look_up(maps: Mapping[str, RouteMap], host: str, path: str) -> list[MapLookup]:
    """Return all lookups for a request in order, including those after the first match."""
    found = []
    skipped: str | None = None
    for scope in scopes_of(host):
        if scope == skipped and scope != "*":
            continue
        exact, prefix = f"{scope}|{path}", f"{scope}|{path}/"
        found.append(MapLookup(EXACT, exact, maps[EXACT].exact(exact)))
        matches = maps[PREFIX].prefixes(prefix)
        if any(entry.value == NO_WILDCARD for entry in matches):
            matches, skipped = tuple(entry for entry in matches if entry.value != NO_WILDCARD), wildcard_of(host)
        found.append(MapLookup(PREFIX, prefix, matches))
        if any(entry.value == NO_PATH for entry in matches):
            break
    return found


def is_rejected(host: str) -> bool:
    """Whether the frontends answer all requests for *host* with 400."""
    return "|" in host or "*" in host


def split_key(key: str) -> tuple[str, str]:
    """Return scope and path of a key."""
    scope, _, path = key.partition("|")
    return scope, path
