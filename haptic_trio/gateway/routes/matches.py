"""Matches of a rule, and their precedence."""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from haptic_trio.gateway.expressions.check import Expression, expression
from haptic_trio.gateway.objects import GatewayObjectError, Resource, dig, items_of, text_of

EXACT: Final = "Exact"
PREFIX: Final = "PathPrefix"
REGEX: Final = "RegularExpression"
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}").fullmatch
_NOT_PATH: Final = re.compile(r"[\x00-\x20\x7f#?]")
CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")


class Condition(msgspec.Struct, frozen=True):
    """The condition on a header or a query parameter."""

    name: str
    value: str
    expression: Expression | None = None
    """Regular expression for the whole value, instead of `value`."""


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """One match of a rule. `path` has the form of the maps: a prefix has no slash at its end."""

    path_kind: str = PREFIX
    path: str = ""
    path_expression: Expression | None = None
    method: str = ""
    headers: tuple[Condition, ...] = ()
    params: tuple[Condition, ...] = ()

    @property
    def is_conditional(self) -> bool:
        """Whether the match has conditions besides host and path."""
        return bool(self.method or self.headers or self.params or self.path_expression)

    @property
    def precedence(self) -> tuple[bool, bool, int, int]:
        """Sort key of matches with the same path; the smallest comes first."""
        # Expressions have the key of the root, and say more about a path than the root does.
        return not self.path_expression, not self.method, -len(self.headers), -len(self.params)


def matches_of(rule: Any) -> tuple[Match, ...]:
    """Return the matches of a rule of an HTTPRoute; raises `GatewayObjectError` for one that cannot be expressed."""
    found = enumerate(items_of(rule, "matches"))
    return tuple(_match(match, f"matches[{position}]") for position, match in found) or (Match(),)


def expression_count(rule: Any) -> int:
    """Return the number of regular expressions in the matches of *rule*."""
    return sum(
        text_of(item, "type") == REGEX
        for match in items_of(rule, "matches")
        for item in (
            dig(match, "path"),
            dig(match, "method"),
            *items_of(match, "headers"),
            *items_of(match, "queryParams"),
        )
    )


def rules_of(route: Resource) -> Iterator[tuple[int, Any]]:
    """Yield the rules of *route* with their numbers."""
    yield from enumerate(items_of(route, "spec", "rules"))


def _match(match: Any, field: str) -> Match:
    kind = text_of(match, "path", "type") or PREFIX
    path = text_of(match, "path", "value") or "/"
    expression = None
    if kind == REGEX:
        expression, kind, path = checked_expression(path, f"{field}.path.value"), PREFIX, "/"
    elif kind not in (EXACT, PREFIX):
        raise GatewayObjectError(f"{field}.path.type: use Exact, PathPrefix or RegularExpression")
    return Match(
        path_kind=kind,
        path=checked_path(path) if kind == EXACT else checked_path(path).rstrip("/"),
        path_expression=expression,
        method=_method(text_of(match, "method")),
        headers=headers_of(match, field),
        params=_conditions(match, "queryParams", field),
    )


def headers_of(match: Any, field: str) -> tuple[Condition, ...]:
    """Return the conditions on headers of *match*; *field* is its path for error messages."""
    return _conditions(match, "headers", field)


def _conditions(match: Any, kind: str, field: str) -> tuple[Condition, ...]:
    found: dict[str, Condition] = {}
    for position, item in enumerate(items_of(match, kind)):
        name = text_of(item, "name")
        name = header_name(name) if kind == "headers" else checked_text(name)
        value = checked_text(text_of(item, "value"))
        expression = None
        if (text_of(item, "type") or EXACT) == REGEX:
            expression = checked_expression(value, f"{field}.{kind}[{position}].value")
        # Of several conditions with one name the first one counts, as the API specifies.
        found.setdefault(name, Condition(name, value, expression))
    return tuple(found.values())


def checked_path(path: str) -> str:
    """Return *path* if it is unambiguous, or raise `GatewayObjectError`."""
    probe = path + "/"
    if not path.startswith("/") or _NOT_PATH.search(path) or "/./" in probe or "/../" in probe or "//" in path:
        raise GatewayObjectError(
            "a path must begin with / and must not have #, ?, blanks, or elements that are empty, . or .."
        )
    return path


def header_name(name: str) -> str:
    """Return *name* in lower case if it is that of a header, or raise `GatewayObjectError`."""
    if not _TOKEN(name):
        raise GatewayObjectError("a header's name must be an HTTP token")
    return name.lower()


def checked_text(text: str) -> str:
    """Return *text* if it holds no control characters, or raise `GatewayObjectError`."""
    if CONTROL.search(text):
        raise GatewayObjectError("a value must not have control characters")
    return text


def checked_expression(text: str, field: str) -> Expression:
    """Return the regular expression *text*, which is at *field*, or raise `GatewayObjectError` if it is rejected."""
    try:
        return expression(checked_text(text))
    except GatewayObjectError as error:
        raise GatewayObjectError(f"{field}: {error}") from None


def _method(method: str) -> str:
    if method and not _TOKEN(method):
        raise GatewayObjectError("a method must be an HTTP token")
    return method
