"""Conditions and rules of proxies: `acl` lines, `if` and `unless`, and the actions before them."""

from collections.abc import Iterator, Mapping
from typing import Final

from haptic_trio.haproxy.grammar.expressions import NameFault, check_expression, check_format
from haptic_trio.haproxy.grammar.keywords import Keywords
from haptic_trio.haproxy.model import Directive

# Names that every proxy has without an `acl` line.
_PREDEFINED: Final = """
TRUE FALSE LOCALHOST HTTP HTTP_1.0 HTTP_1.1 HTTP_2.0 HTTP_3.0 METH_CONNECT METH_DELETE METH_GET METH_HEAD METH_OPTIONS
METH_POST METH_PUT METH_TRACE HTTP_URL_ABS HTTP_URL_SLASH HTTP_URL_STAR HTTP_CONTENT RDP_COOKIE REQ_CONTENT WAIT_END
"""
PREDEFINED: Final = frozenset(_PREDEFINED.split())
_CONDITIONAL: Final = """
http-request http-response http-after-response tcp-request tcp-response redirect use_backend use-server force-persist
ignore-persist force-be-switch monitor stick
"""
CONDITIONAL: Final = frozenset(_CONDITIONAL.split())
"""Keywords of lines that may end with a condition."""
# Index of the expression, or of the format, among the words after the action.
_EXPRESSIONS: Final[Mapping[str, int]] = {
    "set-var": 0,
    "set-src": 0,
    "set-dst": 0,
    "set-src-port": 0,
    "set-dst-port": 0,
    "set-priority-class": 0,
    "set-priority-offset": 0,
    "capture": 0,
    "do-resolve": 0,
    **{f"track-sc{number}": 0 for number in range(3)},
}
_FORMATS: Final[Mapping[str, int]] = {
    "set-header": 1,
    "add-header": 1,
    "replace-header": 2,
    "replace-value": 2,
    "replace-path": 1,
    "replace-pathq": 1,
    "replace-uri": 1,
    "early-hint": 1,
    "set-path": 0,
    "set-pathq": 0,
    "set-query": 0,
    "set-uri": 0,
    "set-method": 0,
    "add-acl": 0,
    "del-acl": 0,
    "del-map": 0,
    "set-var-fmt": 0,
}
_FORMAT_FLAGS: Final = frozenset({"location", "prefix", "lf-string"})
_FLAGS_WITH_VALUE: Final = frozenset({"-f", "-m", "-u"})
# Words of `http-check expect hdr` that `-m` may follow.
_EXPECTED: Final = frozenset({"name", "name-lf", "value", "value-lf"})


def find_condition(words: tuple[str, ...], start: int) -> int:
    """Return the index of the `if` or `unless` at or after *start*; 0 if there is none or more than one."""
    found = [index for index in range(start, len(words)) if words[index] in {"if", "unless"}]
    return found[0] if len(found) == 1 else 0


def check_action(words: tuple[str, ...], at: int, keywords: Keywords) -> Iterator[NameFault]:
    """Check the expression or the format of the action at index *at*."""
    name = words[at].partition("(")[0]
    if (offset := _EXPRESSIONS.get(name)) is not None:
        if at + 1 + offset < len(words):
            yield from check_expression(words, at + 1 + offset, keywords)
    elif (offset := _FORMATS.get(name)) is not None:
        if at + 1 + offset < len(words):
            yield from check_format(words, at + 1 + offset, keywords)
    elif name == "set-map":
        for index in range(at + 1, min(at + 3, len(words))):
            yield from check_format(words, index, keywords)
    else:
        yield from check_flagged_formats(words, at + 1, keywords)


def check_flagged_formats(words: tuple[str, ...], start: int, keywords: Keywords) -> Iterator[NameFault]:
    """Check the formats after words such as `location`."""
    for index in range(start, len(words) - 1):
        if words[index] in _FORMAT_FLAGS:
            yield from check_format(words, index + 1, keywords)


def check_acl(words: tuple[str, ...], keywords: Keywords) -> Iterator[NameFault]:
    """Check an `acl` line."""
    if len(words) < 3:
        yield NameFault(0, "'acl' needs a name and a criterion")
        return
    yield from _check_criterion(words, 2, len(words), keywords)


def check_condition(
    words: tuple[str, ...], at: int, keywords: Keywords, declared: frozenset[str] | set[str] | None
) -> Iterator[NameFault]:
    """Check the condition after the `if` or `unless` at index *at*.

    *declared* are the names of the `acl` lines above; with None, names are
    not checked. HAProxy accepts an empty condition.
    """
    index = at + 1
    while index < len(words):
        name = words[index]
        index += 1
        if name in {"or", "||", "!"}:
            continue
        name = name.lstrip("!")
        if name == "{":
            end = _find_closing(words, index)
            if end < 0:
                yield NameFault(index - 1, "'{' without '}'")
                return
            if end == index:
                yield NameFault(end, "a criterion is missing between '{' and '}'")
            else:
                yield from _check_criterion(words, index, end, keywords)
            index = end + 1
        elif declared is not None and name and name not in declared and name not in PREDEFINED:
            yield NameFault(index - 1, f"no acl '{name}' before this line", "declared", name)


def find_quoted_flags(directive: Directive) -> Iterator[int]:
    """Yield the index of each quoted word that HAProxy would read as a flag.

    HAProxy reads flags in quotes as well, and templates quote only data: a
    value such as `-f` would name a file instead of being compared. This
    works for every line, inside `.if` as well.
    """
    words, dashed = directive.words, directive.dashed
    if words[0] == "acl":
        yield from _find_in_criterion(words, 2, len(words), dashed)
        return
    if words[:2] == ("http-check", "expect"):
        yield from (at for at in dashed if words[at] == "-m" and words[at - 1] in _EXPECTED)
    at = next((at for at, word in enumerate(words) if word in {"if", "unless"}), len(words))
    while at < len(words):
        if words[at].lstrip("!") == "{":
            end = _find_closing(words, at)
            yield from _find_in_criterion(words, at + 1, end if end > 0 else len(words), dashed)
            at = end if end > 0 else len(words)
        at += 1


def _find_in_criterion(words: tuple[str, ...], start: int, end: int, dashed: tuple[int, ...]) -> Iterator[int]:
    at = start + 1
    while at < end and words[at].startswith("-"):
        if at in dashed:
            yield at
            return
        if words[at] == "--":
            return
        at += 2 if words[at] in _FLAGS_WITH_VALUE else 1


def _find_closing(words: tuple[str, ...], start: int) -> int:
    return next((index for index in range(start, len(words)) if words[index] == "}"), -1)


def _check_criterion(words: tuple[str, ...], start: int, end: int, keywords: Keywords) -> Iterator[NameFault]:
    yield from check_expression(words, start, keywords, condition=True)
    index = start + 1
    while index < end and words[index].startswith("-") and words[index] != "--":
        if words[index] not in _FLAGS_WITH_VALUE:
            index += 1
            continue
        if index + 1 >= end:
            yield NameFault(index, f"'{words[index]}' needs an argument")
        elif words[index] == "-m" and words[index + 1] not in keywords.matches:
            yield NameFault(index + 1, f"unknown match method '{words[index + 1]}'", "match", words[index + 1])
        index += 2
