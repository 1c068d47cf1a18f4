"""What a rule matches, and which of two matches goes first."""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from haptic_trio.gateway.objects import GatewayObjectError, Resource, items_of, text_of

EXACT: Final = "Exact"
PREFIX: Final = "PathPrefix"
REGEX: Final = "RegularExpression"
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}").fullmatch
_NOT_PATH: Final = re.compile(r"[\x00-\x20\x7f#?]")
# To Python these may come to mean operations on sets, and it warns of them.
_SETS: Final = re.compile(r"([\[&~|-])\1")
_LITERAL: Final = {"[": r"[\[", "&": r"\&\&", "~": r"\~\~", "|": r"\|\|", "-": r"\-\-"}
CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")


class Condition(msgspec.Struct, frozen=True):
    """What a header or a query parameter must be."""

    name: str
    value: str
    is_regex: bool = False


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """One match of a rule. Its path is as the maps have it: a prefix without its last slash."""

    path_kind: str = PREFIX
    path: str = ""
    path_regex: str = ""
    method: str = ""
    headers: tuple[Condition, ...] = ()
    params: tuple[Condition, ...] = ()

    @property
    def is_conditional(self) -> bool:
        """Whether it looks at more than host and path."""
        return bool(self.method or self.headers or self.params or self.path_regex)

    @property
    def precedence(self) -> tuple[bool, int, int]:
        """What matches with the same path are ordered by, the smallest first."""
        return not self.method, -len(self.headers), -len(self.params)


def matches_of(rule: Any) -> tuple[Match, ...]:
    """Return the matches of a rule of an HTTPRoute; raises `GatewayObjectError` for one that cannot be expressed."""
    return tuple(_match(match) for match in items_of(rule, "matches")) or (Match(),)


def rules_of(route: Resource) -> Iterator[tuple[int, Any]]:
    """Yield the rules of *route* with their numbers."""
    yield from enumerate(items_of(route, "spec", "rules"))


def _match(match: Any) -> Match:
    kind = text_of(match, "path", "type") or PREFIX
    path = text_of(match, "path", "value") or "/"
    regex = ""
    if kind == REGEX:
        regex, kind, path = checked_regex(path), PREFIX, "/"
    elif kind not in (EXACT, PREFIX):
        raise GatewayObjectError("a path has a type that is not supported")
    return Match(
        path_kind=kind,
        path=checked_path(path) if kind == EXACT else checked_path(path).rstrip("/"),
        path_regex=regex,
        method=_method(text_of(match, "method")),
        headers=headers_of(match),
        params=_conditions(match, "queryParams"),
    )


def headers_of(match: Any) -> tuple[Condition, ...]:
    """Return what the headers of *match* must be."""
    return _conditions(match, "headers")


def _conditions(match: Any, field: str) -> tuple[Condition, ...]:
    found: dict[str, Condition] = {}
    for item in items_of(match, field):
        name = text_of(item, "name")
        name = header_name(name) if field == "headers" else checked_text(name)
        is_regex = (text_of(item, "type") or EXACT) == REGEX
        # Of several with one name the first one counts, as the API says.
        value = text_of(item, "value")
        found.setdefault(name, Condition(name, checked_regex(value) if is_regex else checked_text(value), is_regex))
    return tuple(found.values())


def checked_path(path: str) -> str:
    """Return *path* if it means one thing only, or raise `GatewayObjectError`."""
    probe = path + "/"
    if not path.startswith("/") or _NOT_PATH.search(path) or "/./" in probe or "/../" in probe or "//" in path:
        raise GatewayObjectError("a path must begin with / and hold no blank, empty, . or .. element")
    return path


def header_name(name: str) -> str:
    """Return *name* in lower case if it is that of a header, or raise `GatewayObjectError`."""
    if not _TOKEN(name):
        raise GatewayObjectError("a header's name is not a token")
    return name.lower()


def checked_text(text: str) -> str:
    """Return *text* if it holds no control characters, or raise `GatewayObjectError`."""
    if CONTROL.search(text):
        raise GatewayObjectError("a value holds control characters")
    return text


def checked_regex(text: str) -> str:
    """Return *text* if it can be a regular expression, or raise `GatewayObjectError`.

    Python's are not quite HAProxy's (PCRE). What only the latter refuses
    matches nothing.
    """
    try:
        re.compile(_SETS.sub(lambda pair: _LITERAL[pair[1]], checked_text(text)))
    except (re.error, OverflowError, RecursionError):
        raise GatewayObjectError("a value is no regular expression") from None
    return text


def _method(method: str) -> str:
    if method and not _TOKEN(method):
        raise GatewayObjectError("a method is not a token")
    return method
