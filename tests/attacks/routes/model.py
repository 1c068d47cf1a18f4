"""The rule of several HTTPRoutes that gets a request: the specification of the Gateway API as a model for tests.

The model shares no code with haptic-trio. As docs/gateway.md says, a host is what route and listener share.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import msgspec

from haptic_trio.k8s.resource import Resource

_UNRESERVED: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
_PLAIN: Final = frozenset(_UNRESERVED + b"!$&'()*+,=:@")
"""Bytes of a path that mean the same with and without an escape."""
_AMBIGUOUS: Final = re.compile(r"%2F|\\|%5C|;|%3B|%3F|%23|[.](?:/|$)|%20(?:/|$)| ")
_READINGS: Final = (
    (("%2F", "/"),),
    (("%5C", "/"),),
    ((r"\\", "/"),),
    ((";[^/]*", ""), (";.*", "")),
    (("%3B[^/]*", ""), ("%3B.*", "")),
    (("%3F.*", ""),),
    (("%23.*", ""),),
)
"""What applications make of a path: of each group at most one replacement."""
_SEGMENT_END: Final = re.compile(r"(?:\.|%20)+$")

Rank = tuple[int, int]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request as a client sends it; header values are text of one byte for each character."""

    method: str
    path: str
    query: str | None
    headers: tuple[tuple[str, str], ...]
    host: str
    authority: str
    """The Host header: `host` in any spelling."""


class Model:
    """Listeners of one port, and the routes of all namespaces that they admit."""

    def __init__(self, listeners: Sequence[Mapping[str, Any]], routes: Sequence[Resource]) -> None:
        self._listeners = listeners
        self._routes = routes

    def winner(self, request: Request, path: str) -> str | None:
        """Return route and number of the rule that gets *request* with the normal *path*, such as `web-0`."""
        fitting = [
            (rank, str(listener["name"]), str(listener.get("hostname", "")))
            for listener in self._listeners
            if (rank := _host_rank(listener.get("hostname", ""), request.host))
        ]
        if not fitting:
            return None
        _, section, hostname = max(fitting)
        # Of several candidates with one rank, the oldest.
        best = min(self._candidates(request, path, section, hostname), key=_order, default=None)
        return best[2] if best else None

    def _candidates(self, request: Request, path: str, section: str, hostname: str) -> Iterator["_Candidate"]:
        for route in self._routes:
            spec, metadata = route["spec"], route["metadata"]
            if spec["parentRefs"][0].get("sectionName", section) != section:
                continue
            hosts = [
                (shared_rank, own_rank)
                for own in spec.get("hostnames") or [""]
                if (shared := _intersection(hostname, own)) is not None
                and (shared_rank := _host_rank(shared, request.host))
                and (own_rank := _host_rank(own, request.host))
            ]
            if not hosts:
                continue
            for number, rule in enumerate(spec["rules"]):
                age = metadata["creationTimestamp"], metadata["namespace"], metadata["name"], number
                for match in rule["matches"]:
                    if (rank := _path_rank(match["path"], path)) and _meets_conditions(request, match):
                        yield _rank_of(max(hosts), rank, match), age, f"{metadata['name']}-{number}"


_Candidate = tuple[tuple[int, ...], tuple[Any, ...], str]


def _order(candidate: _Candidate) -> tuple[Any, ...]:
    rank, age, _ = candidate
    return tuple(-part for part in rank), age


def _rank_of(hosts: tuple[Rank, Rank], path: tuple[int, int, int], match: Mapping[str, Any]) -> tuple[int, ...]:
    """Return what decides between matches that fit: the greatest wins."""
    shared, own = hosts
    kind, length, is_expression = path
    headers = {condition["name"].lower() for condition in match.get("headers", ())}
    params = {condition["name"] for condition in match.get("queryParams", ())}
    return *shared, kind, length, *own, is_expression, "method" in match, len(headers), len(params)


def _host_rank(pattern: str, host: str) -> Rank | None:
    """Return how specific *pattern* is if it fits *host*."""
    if pattern.startswith("*."):
        return (1, len(pattern)) if host.endswith(pattern[1:]) and host != pattern[1:] else None
    if pattern:
        return (2, len(pattern)) if pattern == host else None
    return 0, 0


def _intersection(first: str, second: str) -> str | None:
    """Return the hosts that two patterns share, as a pattern; None if there are none."""
    for one, other in ((first, second), (second, first)):
        if not one or one == other or (one.startswith("*.") and other.removeprefix("*").endswith(one[1:])):
            return other
    return None


def _path_rank(condition: Mapping[str, str], path: str) -> tuple[int, int, int] | None:
    value = condition["value"]
    if condition["type"] == "RegularExpression":
        return (1, 0, 1) if re.fullmatch(value, path, re.DOTALL) else None
    value = unescaped(value)
    if condition["type"] == "Exact":
        return (2, len(value), 0) if value == path else None
    value = value.rstrip("/")
    return (1, len(value), 0) if f"{path}/".startswith(f"{value}/") else None


def _meets_conditions(request: Request, match: Mapping[str, Any]) -> bool:
    if match.get("method", request.method) != request.method:
        return False
    given: dict[str, list[str]] = {}
    for name, value in request.headers:
        given.setdefault(name.lower(), []).append(value)
    headers = {name: {*values, ",".join(values)} for name, values in given.items()}
    params: dict[str, set[str]] = {}
    for part in (request.query or "").split("&"):
        name, _, value = part.partition("=")
        params.setdefault(_decoded(name), {_decoded(value)})
    return _meets(headers, match.get("headers", ()), str.lower) and _meets(params, match.get("queryParams", ()), str)


def _meets(given: Mapping[str, set[str]], conditions: Sequence[Mapping[str, str]], folded: Any) -> bool:
    # Of several conditions with one name the first one counts.
    first = {_as_bytes(folded(one["name"])): one for one in reversed(conditions)}
    return all(any(_is_met(one, value) for value in given.get(name, ())) for name, one in first.items())


def _is_met(condition: Mapping[str, str], value: str) -> bool:
    if condition["type"] == "RegularExpression":
        return re.fullmatch(condition["value"], value, re.DOTALL) is not None
    return _as_bytes(condition["value"]) == value


def _as_bytes(text: str) -> str:
    """Return *text* with one character for each byte."""
    return text.encode().decode("latin-1")


def _decoded(text: str) -> str:
    return unquote_to_bytes(text.replace("+", " ")).decode("latin-1")


def unescaped(path: str) -> str:
    """Return *path* with the escapes alone that have a meaning, in upper case."""

    def written(match: re.Match[bytes]) -> bytes:
        byte = int(match[1], 16) if match[1] else match[0][0]
        return bytes([byte]) if byte in _PLAIN or (match[0] in b"/;\\") else b"%%%02X" % byte

    return re.sub(rb"%([0-9A-Fa-f]{2})|.", written, path.encode(), flags=re.DOTALL).decode("ascii")


def normal_path(path: str) -> str:
    """Return the path that *path* of a request means: without needless escapes, dots and empty segments."""
    kept: list[str] = []
    segments = _squashed(unescaped(path)).split("/")[1:]
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in {".", ".."}:
        kept.append("")
    return _squashed("/" + "/".join(kept))


def readings(path: str) -> set[str]:
    """Return what applications may take the normal *path* for."""
    found = {path}
    for group in _READINGS:
        found |= {re.sub(pattern, to, one) for one in found for pattern, to in group}
    found = {_squashed(one) or "/" for one in found}
    return found | {"/".join(_SEGMENT_END.sub("", segment) or segment for segment in one.split("/")) for one in found}


def is_ambiguous(path: str) -> bool:
    """Whether applications may read the normal *path* in two ways."""
    return _AMBIGUOUS.search(path) is not None


def _squashed(path: str) -> str:
    return re.sub("/+", "/", path)
