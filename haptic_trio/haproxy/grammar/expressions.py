"""Sample expressions (`req.hdr(host),lower`) and formats that hold them (`a-%[src]`): names, numbers of arguments.

Only errors that HAProxy rejects in every context are reported. Whether a
sample is available in its place, and the types of its arguments, are left to
the binary.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from haptic_trio.haproxy.grammar.keywords import Arity, Keywords

_NAME: Final = re.compile(r"[A-Za-z0-9_.:+-]+")
# An expression without quoting or escapes, as almost all are; arguments never nest.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:+-]+(?:\([^()'\"\\]*\))?(?:,[A-Za-z0-9_.:+-]+(?:\([^()'\"\\]*\))?)*")
_ONE_ARGUMENT: Final = re.compile(r"[^(),'\"\\]+\)")
_PLAIN_CALL: Final = re.compile(r"([A-Za-z0-9_.:+-]+)(?:\(([^()]*)\))?")


class NameFault(NamedTuple):
    """A word that HAProxy rejects in its place."""

    word: int
    message: str
    group: str = ""
    """Group of the keyword tables with the valid names."""
    name: str = ""


class _BadArgumentsError(Exception):
    """The arguments cannot be parsed; the error is left to the binary."""


def check_expression(
    words: tuple[str, ...], at: int, keywords: Keywords, *, condition: bool = False
) -> Iterator[NameFault]:
    """Check the expression in the word at index *at*; in a *condition* it may begin with a name such as `hdr_beg`.

    HAProxy also reads known converters from the following words; these need
    no check.
    """
    text = words[at]
    # Most expressions are a name, or a name with one argument.
    name, _, rest = text.partition("(")
    arity = keywords.fetches.get(name)
    count = 1 if rest else 0
    if arity is None:
        if condition and not rest and name in keywords.acls:
            return
    elif arity.least <= count <= arity.most and (not rest or _ONE_ARGUMENT.fullmatch(rest) is not None):
        return
    if _PLAIN.fullmatch(text) is not None:
        calls = _PLAIN_CALL.findall(text)
        arguments = [(name, inner.count(",") + 1 if inner else 0) for name, inner in calls]
    else:
        try:
            arguments, _ = _take_apart(text, 0)
        except _BadArgumentsError:
            return
    yield from _check_calls(arguments, at, keywords, condition=condition)


def check_format(words: tuple[str, ...], at: int, keywords: Keywords) -> Iterator[NameFault]:
    """Check the expressions in the word at index *at*, a log format."""
    text = words[at]
    start = text.find("%[")
    while start >= 0:
        # After an odd number of percent signs, the percent sign of `%[` is literal.
        percents = len(text[:start]) - len(text[:start].rstrip("%"))
        if percents % 2:
            start = text.find("%[", start + 2)
            continue
        try:
            arguments, end = _take_apart(text, start + 2)
        except _BadArgumentsError:
            return
        yield from _check_calls(arguments, at, keywords, condition=False)
        start = text.find("%[", end)


def _check_calls(
    arguments: Iterable[tuple[str, int]], at: int, keywords: Keywords, *, condition: bool
) -> Iterator[NameFault]:
    first = True
    for name, count in arguments:
        group, what, known = ("fetch", "sample fetch", keywords.fetches)
        if not first:
            group, what, known = ("converter", "converter", keywords.converters)
        fault = _check_call(name, count, known, what)
        if fault and not _is_dynamic_name(name, keywords, first=first, condition=condition):
            yield NameFault(at, fault, group, name if name not in known else "")
            return
        first = False


def _is_dynamic_name(name: str, keywords: Keywords, *, first: bool, condition: bool) -> bool:
    # Lua code can register fetches and converters.
    return name.startswith("lua.") or (first and condition and name in keywords.acls)


def _check_call(name: str, count: int, known: Mapping[str, Arity], what: str) -> str:
    arity = known.get(name)
    if arity is None:
        return f"unknown {what} '{name}'"
    if count < arity.least:
        return f"'{name}' needs {arity.least} argument" + "s" * (arity.least > 1)
    if count > arity.most:
        return f"'{name}' takes no more than {arity.most} argument" + "s" * (arity.most != 1)
    return ""


def _take_apart(text: str, start: int) -> tuple[list[tuple[str, int]], int]:
    """Return the names with their numbers of arguments, and the index of the end of the expression."""
    calls: list[tuple[str, int]] = []
    at = start
    while True:
        match = _NAME.match(text, at)
        if match is None:
            raise _BadArgumentsError
        at = match.end()
        count = 0
        if text.startswith("(", at):
            count, at = _count_arguments(text, at + 1)
        calls.append((match[0], count))
        if not text.startswith(",", at):
            return calls, at
        while text.startswith(",", at):
            at += 1


def _count_arguments(text: str, at: int) -> tuple[int, int]:
    start, commas = at, 0
    while at < len(text):
        char = text[at]
        if char == ")":
            return (commas + 1 if at > start else 0), at + 1
        if char == "\\":
            at += 1
        elif char in "'\"":
            at = _skip_quoted(text, at)
        elif char == ",":
            commas += 1
        at += 1
    raise _BadArgumentsError


def _skip_quoted(text: str, at: int) -> int:
    quote = text[at]
    at += 1
    while at < len(text) and text[at] != quote:
        at += 2 if quote == '"' and text[at] == "\\" else 1
    return at
