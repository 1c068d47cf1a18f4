"""Programs of the Lua action: lists of conditions, and the effects of a rule on a request. Data only.

A list is `?` and candidates separated by `;`, each of them conditions
separated by `&`, `>`, and a target. `>` and a namespace follow a target that
does not show the namespace of its route. A rule is directives separated by `;`,
each of them fields separated by `,`. Every value is percent-encoded. A rule
that begins with `hb` needs no Lua on HAProxy 3.4: see the snippet gateway-headers.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

from haptic_trio.gateway.connection_headers import FRAMING, is_authority, is_connection_header
from haptic_trio.gateway.expressions.check import Expression
from haptic_trio.gateway.extensions import EXTENSION, Allowed, problem_of, references_in
from haptic_trio.gateway.hostnames import is_hostname
from haptic_trio.gateway.objects import (
    GatewayObjectError,
    Lookups,
    Resource,
    dig,
    items_of,
    namespace_of,
    target_namespace,
    text_of,
)
from haptic_trio.gateway.routes.backends import Backend, backends_of, endpoints_of, limit_of, resolve
from haptic_trio.gateway.routes.binary_headers import HeaderChange, binary_changes
from haptic_trio.gateway.routes.kinds import RouteKind
from haptic_trio.gateway.routes.matches import Condition, Match, checked_path, checked_text, header_name

MOST_ENDPOINTS: Final = 64
"""Maximum number of endpoints that mirrored requests are spread over."""
MAX_PROGRAM: Final = 12_000
"""HAProxy reads a line of a map into a buffer of 16 KiB."""
MAX_CONDITIONS: Final = MAX_PROGRAM - 1_000
"""So a list has room for any match with its target, and for the target without conditions at its end."""
INVALID: Final = "!"
"""Name of an invalid backend: its requests are answered with 500."""
REJECTED: Final = "x"
"""A directive: every request is answered with 500."""
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_KNOWN: Final = 256
"""Matches whose text is cached. A route has at most 128; each occurs in the entries of up to 16 host names."""
_UNRESERVED: Final = re.compile(r"[A-Za-z0-9_.~-]*").fullmatch


def encode(*fields: str | int) -> str:
    """Return a directive or condition made of *fields*."""
    # Nearly all fields need no encoding, and a search takes a tenth of the time of `quote`.
    texts = map(str, fields)
    return ",".join(text if _UNRESERVED(text) else quote(text, safe="") for text in texts)


@lru_cache(maxsize=_KNOWN)
def conditions_text(match: Match) -> str:
    """Return the conditions of *match* besides host and path.

    A regular expression is followed by the maximum length of the text that
    it is matched with, and the coefficients of the bound of its steps.
    """
    parts = [encode("m", match.method)] if match.method else []
    if match.path_expression:
        parts.append(encode("p", *_expression(match.path_expression)))
    parts += [_condition("h", header) for header in match.headers]
    parts += [_condition("q", param) for param in match.params]
    return "&".join(parts)


def _condition(letter: str, condition: Condition) -> str:
    if condition.expression:
        return encode(letter + "r", condition.name, *_expression(condition.expression))
    return encode(letter, condition.name, condition.value)


def _expression(expression: Expression) -> tuple[str | int, ...]:
    return expression.pattern, expression.longest, *expression.bound


def checked_size(text: str, most: int = MAX_PROGRAM) -> str:
    """Return *text*, or raise `GatewayObjectError` if HAProxy could not read it back."""
    if len(text) > most:
        raise GatewayObjectError(f"a rule must not exceed {most} bytes when encoded")
    return text


def is_plain(rule: Any, backends: Sequence[Backend]) -> bool:
    """Whether *rule* does no more than choose a backend."""
    return (
        len(backends) == 1
        and not backends[0].reason
        and backends[0].weight > 0
        and not backends[0].filters
        and not items_of(rule, "filters")
        and not dig(rule, "timeouts")
    )


def rule_text(
    route: Resource, rule: Any, match: Match, kind: RouteKind, lookups: Lookups, allowed: Allowed | None = None
) -> str:
    """Return the effects of *rule* of *route* on a request that *match* matches.

    *allowed* are the filters of the administrator; None if their references are not examined.
    """
    filters = items_of(rule, "filters")
    backends = backends_of(route, rule, kind, lookups)
    if not _are_resolved(filters, route, allowed):
        return REJECTED
    # Mirrors first: a frontend reads a request's body only for a rule that begins with one.
    directives = list(_mirrors(route, filters, kind, lookups)) + list(_filters(filters, match))
    limit = limit_of(rule)
    if limit is not None:
        directives.append(encode("t", limit))
    for each in backends:
        nested = ";".join([*_mirrors(route, each.filters, kind, lookups), *_filters(each.filters, match)])
        if not _are_resolved(each.filters, route, allowed):
            nested = REJECTED
        directives.append(encode("b", each.weight, INVALID if each.reason else each.name, nested))
    headers = _headers_alone(filters, backends) if limit is None else ""
    if headers and len(headers) + sum(len(one) + 1 for one in directives) <= MAX_PROGRAM:
        directives.insert(0, headers)
    return checked_size(";".join(directives) or encode("b", 1, INVALID, ""))


def _are_resolved(filters: Iterable[Any], route: Resource, allowed: Allowed | None) -> bool:
    """Whether all references to filters of the administrator among *filters* are resolved."""
    return allowed is None or not any(
        problem_of(found, namespace_of(route), allowed) for _, found in references_in(filters)
    )


def _headers_alone(filters: Iterable[Any], backends: Sequence[Backend]) -> str:
    """Return what HAProxy 3.4 executes instead of the rule; empty if the rule is more than changes of headers."""
    types = {"RequestHeaderModifier": "requestHeaderModifier", "ResponseHeaderModifier": "responseHeaderModifier"}
    if len(backends) != 1 or backends[0].reason or backends[0].weight < 1 or backends[0].filters:
        return ""
    changes: dict[str, list[HeaderChange]] = {field: [] for field in types.values()}
    for item in filters:
        field = types.get(text_of(item, "type"))
        if field is None:
            return ""
        changes[field] += _changes(dig(item, field), is_request=field.startswith("request"))
    found = [binary_changes(each) for each in changes.values()]
    if not any(changes.values()) or None in found or any(map(_is_unusual, changes["requestHeaderModifier"])):
        return ""
    return encode("hb", *(text for each in found for text in each or ()), backends[0].name)


def _filters(filters: Iterable[Any], match: Match) -> Iterator[str]:
    for item in filters:
        match text_of(item, "type"):
            case "RequestHeaderModifier":
                yield from _headers(dig(item, "requestHeaderModifier"), "h")
            case "ResponseHeaderModifier":
                yield from _headers(dig(item, "responseHeaderModifier"), "r")
            case "RequestRedirect":
                yield _redirect(dig(item, "requestRedirect"), match)
            case "CORS":
                yield _cors(dig(item, "cors"))
            case "RequestMirror":
                continue
            case one if one == EXTENSION:
                # The rules are in the backend: see the snippet gateway-filters.
                continue
            case "URLRewrite":
                yield from _rewrite(dig(item, "urlRewrite"), match)
            case _:
                # The API requires an error response instead of a request without the filter.
                yield REJECTED


def _mirrors(route: Resource, filters: Iterable[Any], kind: RouteKind, lookups: Lookups) -> Iterator[str]:
    for item in filters:
        if text_of(item, "type") != "RequestMirror":
            continue
        mirror = dig(item, "requestMirror")
        reference = dig(mirror, "backendRef") or {}
        if resolve(route, reference, kind.name, lookups)[1]:
            continue
        namespace = target_namespace(reference, route)
        numerator, denominator = _share(mirror)
        endpoints = endpoints_of(lookups, namespace, text_of(reference, "name"), reference["port"])
        if endpoints:
            # Copies count for the namespace of the route, whatever their target.
            yield encode("mi", numerator, denominator, namespace_of(route), *endpoints[:MOST_ENDPOINTS])


def _share(mirror: Any) -> tuple[int, int]:
    percent, fraction = dig(mirror, "percent"), dig(mirror, "fraction")
    if isinstance(fraction, Mapping):
        numerator, denominator = fraction.get("numerator"), fraction.get("denominator", 100)
    else:
        numerator, denominator = (100 if percent is None else percent), 100
    if isinstance(numerator, int) and isinstance(denominator, int) and 0 <= numerator <= denominator > 0:
        return numerator, denominator
    raise GatewayObjectError("requestMirror: the share of mirrored requests must be 0 to 100 percent")


def _cors(cors: Any) -> str:
    for position, origin in enumerate(items_of(cors, "allowOrigins")):
        if str(origin).count("*") > 1:
            text = (
                f'cors.allowOrigins[{position}]: "{origin}" has more than one *; use one, such as https://*.example.com'
            )
            raise GatewayObjectError(text)
    lists = [
        "|".join(checked_text(str(value)).replace("|", "") for value in items_of(cors, field))
        for field in ("allowOrigins", "allowMethods", "allowHeaders", "exposeHeaders")
    ]
    age = dig(cors, "maxAge")
    allowed = "y" if dig(cors, "allowCredentials") is True else ""
    return encode("co", *lists, allowed, age if isinstance(age, int) and age > 0 else 5)


def _headers(modifier: Any, letter: str) -> Iterator[str]:
    for change in _changes(modifier, is_request=letter == "h"):
        value = [] if change.operation == "r" else [change.value]
        yield encode(letter + change.operation, change.name, *value)


def _changes(modifier: Any, *, is_request: bool) -> Iterator[HeaderChange]:
    for field, operation in (("set", "s"), ("add", "a")):
        for header in items_of(modifier, field):
            change = HeaderChange(
                operation, header_name(text_of(header, "name")), checked_text(text_of(header, "value"))
            )
            yield _checked_change(change, is_request=is_request)
    for name in items_of(modifier, "remove"):
        yield _checked_change(HeaderChange("r", header_name(str(name))), is_request=is_request)


def _is_unusual(change: HeaderChange) -> bool:
    """Whether names of letters, digits and `-` alone may be other spellings of the name: Lua removes them."""
    return change.operation != "a" and not change.name.replace("-", "").isalnum()


def _checked_change(change: HeaderChange, *, is_request: bool) -> HeaderChange:
    if change.name in FRAMING or (change.operation != "r" and is_connection_header(change.name)):
        raise GatewayObjectError(
            f"filters: the header {change.name} cannot be changed: HAProxy sets it for each connection and message"
        )
    if change.name == "host" and is_request:
        if change.operation != "s":
            raise GatewayObjectError(
                "filters: a request has the header Host exactly once; use set, or urlRewrite.hostname"
            )
        if not is_authority(change.value):
            raise GatewayObjectError("filters: Host must be set to a host name, which a colon and a port may follow")
    return change


def _redirect(redirect: Any, match: Match) -> str:
    code = dig(redirect, "statusCode") or 302
    scheme = text_of(redirect, "scheme")
    if code not in _REDIRECTS or scheme not in ("", "http", "https"):
        raise GatewayObjectError(
            "requestRedirect: scheme must be http or https, and statusCode 301, 302, 303, 307 or 308"
        )
    port = dig(redirect, "port")
    if port is None:
        port = ""
    elif isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65_535:
        raise GatewayObjectError("requestRedirect: port must be a number from 1 to 65535")
    return encode("rd", scheme, _hostname(redirect), port, code, *_path(dig(redirect, "path"), match))


def _rewrite(rewrite: Any, match: Match) -> Iterator[str]:
    hostname = _hostname(rewrite)
    if hostname:
        yield encode("uh", hostname)
    if dig(rewrite, "path"):
        yield encode("up", *_path(dig(rewrite, "path"), match))


def _hostname(value: Any) -> str:
    hostname = text_of(value, "hostname").lower()
    if hostname and (not is_hostname(hostname) or hostname.startswith("*")):
        raise GatewayObjectError("a filter's hostname must be a host name without wildcard")
    return hostname


def _path(modifier: Any, match: Match) -> tuple[str, str, str]:
    """Return how a path is replaced, by what, and the prefix that was matched."""
    match text_of(modifier, "type"):
        case "ReplaceFullPath":
            return "f", checked_path(text_of(modifier, "replaceFullPath") or "/"), ""
        case "ReplacePrefixMatch":
            return "p", checked_path(text_of(modifier, "replacePrefixMatch") or "/").rstrip("/"), match.path
        case "":
            return "", "", ""
    raise GatewayObjectError("a filter's path.type must be ReplaceFullPath or ReplacePrefixMatch")
