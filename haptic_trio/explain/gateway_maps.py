"""Route lookup of the library `gateway` in Python, equal to its snippet `gateway-body`.

    gateway-listeners.map   <frontend>|<host>           which listener; `=` and a backend leads on to an inner frontend,
                                                        `=` alone says in an inner one that another frontend has it;
                                                        `**` shortens the search of frontends, and is not read here
    gateway-exact.map       <listener>|<host>|<path>    matched as a whole
    gateway-prefix.map      <listener>|<host>|<path>/   the longest entry that begins the key wins
    gateway-rules.map       <key>                       what a rule does beside choosing a backend

A route is a backend, `=` and a key of the last map, or `?` and a list of
candidates with conditions, which only a whole request fulfils or does not.
"""

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import unquote

import msgspec

from haptic_trio.explain.base_maps import MapEntry, RouteMap

LISTENERS: Final = "gateway-listeners.map"
EXACT: Final = "gateway-exact.map"
PREFIX: Final = "gateway-prefix.map"
RULES: Final = "gateway-rules.map"
MAPS: Final = frozenset({LISTENERS, EXACT, PREFIX, RULES})
_ENTRY: Final = "gateway-entry::"
"""Suffix of backends that lead to an inner frontend."""
_NONE: Final = "!"


class Hit(msgspec.Struct, frozen=True):
    """A possible route of a request, and its map entry."""

    map: str
    entry: MapEntry
    target: str
    """A backend, or `=` and a key of `RULES`."""
    conditions: str = ""
    """As in the map; see `conditions`."""

    @property
    def is_conditional(self) -> bool:
        """Whether the route depends on more than host and path."""
        return bool(self.conditions)


class Visit(msgspec.Struct, frozen=True):
    """Result of a request at one frontend."""

    frontend: str
    front: str
    """The frontend that passes the request to this one, if any."""
    listener: str
    hits: tuple[Hit, ...]
    """Routes in order; a last route without conditions always matches."""


def visits(maps: Mapping[str, RouteMap], host: str, path: str) -> Iterator[Visit]:
    """Yield the result of a request for *host* and *path* at each frontend with a listener for it.

    A client is taken to have asked for *host* by TLS, too.
    """
    entries = maps[LISTENERS].entries
    frontends = dict.fromkeys(entry.key.partition("|")[0] for entry in entries)
    inner = {_frontend_behind(entry.value) for entry in entries if entry.value.startswith("=")}
    for first in frontends:
        frontend, front = first, ""
        listener = _listener(maps, frontend, host) if first not in inner else ""
        if listener.startswith("="):
            front, frontend = frontend, _frontend_behind(listener)
            listener = _listener(maps, frontend, host)
        if listener:
            yield Visit(frontend, front, listener, tuple(_hits(maps, listener, host, path)))


def _frontend_behind(value: str) -> str:
    return value.removeprefix("=").removeprefix(_ENTRY)


def _listener(maps: Mapping[str, RouteMap], frontend: str, host: str) -> str:
    found = (entry.value for scope in _scopes(host) for entry in maps[LISTENERS].exact(f"{frontend}|{scope}"))
    return next(found, "")


def _scopes(host: str) -> Iterator[str]:
    """Yield the scopes of *host*, the most specific first."""
    labels = host.split(".")
    yield host
    for number in range(1, len(labels)):
        yield "*." + ".".join(labels[number:])
    yield "*"


def _hits(maps: Mapping[str, RouteMap], listener: str, host: str, path: str) -> Iterator[Hit]:
    for scope in _scopes(host):
        key = f"{listener}|{scope}|{path}"
        for name, found in ((EXACT, maps[EXACT].exact(key)), (PREFIX, maps[PREFIX].prefixes(f"{key}/"))):
            if not found:
                continue
            if not found[0].value.startswith("?"):
                yield Hit(name, found[0], found[0].value.partition(">")[0])
                return
            for conditions, target in _candidates(found[0].value):
                yield Hit(name, found[0], target, conditions)
                if not conditions:
                    return


def _candidates(value: str) -> Iterator[tuple[str, str]]:
    """Yield conditions and target of each candidate of a route that begins with `?`."""
    for candidate in value[1:].split(";"):
        conditions, target = candidate.split(">")[:2]
        yield conditions, target


def targets_of(value: str) -> Iterator[str]:
    """Yield the targets of a route, whatever their conditions: backends, or `=` and a key of `RULES`."""
    if value.startswith("?"):
        yield from dict.fromkeys(target for _conditions, target in _candidates(value))
    else:
        yield value.partition(">")[0]


def backends_of(maps: Mapping[str, RouteMap], target: str) -> Iterator[str]:
    """Yield the backends that requests for *target* may reach; none if HAProxy answers them itself."""
    if not target.startswith("="):
        yield target
        return
    directives = _directives(maps, target)
    if not any(fields[0] in {"x", "rd"} for fields in directives):
        yield from (name for weight, name in _weighted(directives) if weight and name != _NONE)


def outcomes(maps: Mapping[str, RouteMap], target: str) -> Iterator[str]:
    """Yield the outcomes of a route: backends with their weights, or a response of HAProxy."""
    if not target.startswith("="):
        yield f"backend {target}"
        return
    directives = _directives(maps, target)
    if any(fields[0] == "x" for fields in directives):
        yield "the answer 500"
    elif any(fields[0] == "rd" for fields in directives):
        yield "a redirect"
    else:
        backends = _weighted(directives)
        total = sum(weight for weight, _ in backends)
        for weight, name in backends:
            if weight:
                share = "" if weight == total else f" for {weight} of {total}"
                yield f"{'the answer 500' if name == _NONE else f'backend {name}'}{share}"
        if not total:
            yield "the answer 500"


def _directives(maps: Mapping[str, RouteMap], target: str) -> list[list[str]]:
    known = maps[RULES].exact(target[1:])
    return [part.split(",") for part in known[0].value.split(";")] if known else [["x"]]


def _weighted(directives: list[list[str]]) -> list[tuple[int, str]]:
    return [(int(fields[1]), unquote(fields[2])) for fields in directives if fields[0] == "b"]
