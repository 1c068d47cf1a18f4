"""Conditions of routes of Gateways besides host and path, equal to the library's snippet `gateway-matches.lua`.

A test compares the result with a real HAProxy. Regular expressions are not
matched: HAProxy has another dialect, and limits of its own.
"""

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import unquote

import msgspec

_CONNECT: Final = "CONNECT"


class RequestParts(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a request that conditions are about, besides its path."""

    method: str = "GET"
    query: str = ""
    headers: Mapping[str, tuple[str, ...]] = {}
    """Values by name in lower case."""


def fits(conditions: str, request: RequestParts) -> bool | None:
    """Whether *request* fulfils all of *conditions*, the text of a map; None if that depends on an expression."""
    parts = [[unquote(field) for field in part.split(",")] for part in conditions.split("&") if part]
    if request.method == _CONNECT and ["m", _CONNECT] not in parts:
        return False
    verdicts = {_holds(fields, request) for fields in parts}
    return False if False in verdicts else None if None in verdicts else True


def readable(conditions: str) -> Iterator[str]:
    """Yield *conditions* as people read them."""
    for part in conditions.split("&"):
        match [unquote(field) for field in part.split(",")]:
            case ["m", method]:
                yield f"method {method}"
            case ["p", pattern, *_]:
                yield f"path matches {pattern}"
            case ["h", name, value]:
                yield f"header {name}: {value}"
            case ["q", name, value]:
                yield f"parameter {name}={value}"
            case ["hr", name, pattern, *_]:
                yield f"header {name} matches {pattern}"
            case ["qr", name, pattern, *_]:
                yield f"parameter {name} matches {pattern}"


def _holds(fields: list[str], request: RequestParts) -> bool | None:
    verdict: bool | None = False
    match fields:
        case ["m", method]:
            verdict = request.method == method
        case ["h", name, value]:
            values = request.headers.get(name.lower(), ())
            verdict = value in values or (len(values) > 1 and value == ",".join(values))
        case ["hr", name, *_]:
            verdict = None if request.headers.get(name.lower()) else False
        case ["q", name, value]:
            verdict = dict(_parameters(request.query)).get(name) == value
        case ["qr", name, *_]:
            verdict = None if name in dict(_parameters(request.query)) else False
        case ["p", *_]:
            verdict = None
    return verdict


def _parameters(query: str) -> Iterator[tuple[str, str]]:
    """Yield the parameters, the last one of several with one name first: `dict` keeps the first one of the query."""
    for part in reversed(query.split("&")):
        name, _, value = part.partition("=")
        if part:
            yield _decoded(name), _decoded(value)


def _decoded(text: str) -> str:
    return unquote(text.replace("+", " "), errors="surrogateescape")
