"""Route lookup of the library `gateway` in Python, equal to its snippet `gateway-body`.

    gateway-listeners.map   <frontend>|<host>           which listener; `=` and a backend leads on to an inner frontend
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
    is_conditional: bool


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
                yield Hit(name, found[0], found[0].value, is_conditional=False)
                return
            for candidate in found[0].value[1:].split(";"):
                conditions, _, target = candidate.partition(">")
                yield Hit(name, found[0], target, is_conditional=bool(conditions))
                if not conditions:
                    return


def outcomes(maps: Mapping[str, RouteMap], target: str) -> Iterator[str]:
    """Yield the outcomes of a route: backends with their weights, or a response of HAProxy."""
    if not target.startswith("="):
        yield f"backend {target}"
        return
    known = maps[RULES].exact(target[1:])
    directives = [part.split(",") for part in known[0].value.split(";")] if known else [["x"]]
    if any(fields[0] == "x" for fields in directives):
        yield "the answer 500"
    elif any(fields[0] == "rd" for fields in directives):
        yield "a redirect"
    else:
        backends = [(int(fields[1]), unquote(fields[2])) for fields in directives if fields[0] == "b"]
        total = sum(weight for weight, _ in backends)
        for weight, name in backends:
            if weight:
                share = "" if weight == total else f" for {weight} of {total}"
                yield f"{'the answer 500' if name == _NONE else f'backend {name}'}{share}"
        if not total:
            yield "the answer 500"
