"""Redaction of credentials in template sources and configurations, of which problems quote lines.

Template authors should take credentials from Secrets, but may write them
down. Problems are printed, logged, shown by the console and sent to API
clients, so every literal that may be a credential is replaced:

- the arguments `auth=` and `headers=`, and the variables, macros and
  arguments of macros of the same template that these arguments are made of
- the value after a name such as `token`, `password` or `X-Api-Key`; in lines
  of HAProxy the rest of the line, and the variables that it is made of
- user, password and query of URLs
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from haptic_trio.redaction.lines import find_in_lines
from haptic_trio.redaction.names import BLANK, SECRET_NAME, is_secret_name
from haptic_trio.redaction.tags import (
    CLOSING,
    OPENING,
    Code,
    Token,
    literals_in,
    names_of,
    read_tags,
    strings_in,
)

_LONGEST: Final = 1 << 20
_ARGUMENTS: Final = frozenset({"auth", "headers"})
_COMMENTED: Final = re.compile(r"\b(?P<name>auth|headers)(?P<between>\s*=\s*)\{[^{}]*:\s*(?:\[\s*)?[\"'][^{}]*\}?")
_WORD: Final = re.compile(r"\S+").finditer
_URL: Final = re.compile(
    r"(?P<scheme>\b[A-Za-z][A-Za-z0-9+.-]{0,20}://)(?P<user>[^\s/@'\"]{1,1000}@)?(?P<rest>[^\s?'\"]*)(?P<query>\?[^\s'\"]*)?"
)
_WRITTEN: Final = re.compile(
    rf"""
    (?P<before>
        {SECRET_NAME.pattern}\\?['"]?[ \t]*(?:=(?!=)|:)[ \t]*(?=\\?['"])
        |^[ \t]*user[ \t]+\S+[ \t]+(?:groups[ \t]+\S+[ \t]+)?(?:insecure-)?password[ \t]+
        |^[ \t]*stats[ \t]+auth[ \t]+
        |^[ \t]*(?:pre)?setenv[ \t]+(?=\S*?{SECRET_NAME.pattern})\S+[ \t]+
        |\b(?:set|add)-header[ \t]+['"]?(?:proxy-)?authorization['"]?[ \t]+
    )
    (?P<value>\\?"[^"\n]*"|'[^'\n]*'|(?!\{{[{{%])\S+)
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
_SCHEMES: Final = re.compile(r"\b(?P<name>Bearer|Basic)[ ]+(?!\{\{)[^\s'\"]+", re.IGNORECASE)


class _Assignment(NamedTuple):
    """Something that gives *names* a value: *tokens*, and the tags and the text between two tags."""

    names: frozenset[str]
    tokens: Sequence[Token]
    first: int = 0
    """Number of the first tag."""
    end: int = 0
    """Number of the last one."""
    calls: str = ""
    """Macro whose arguments are a part of the value."""
    is_value: bool = False
    """Whether *names* are variables that an expression or a block gives a value."""


def without_credentials(source: str) -> str:
    """Return the template *source* with `…` in place of what may be a credential; lines stay where they are.

    Of one that is very long nothing is left but its lines.
    """
    if len(source) > _LONGEST:
        return "\n" * source.count("\n")
    codes = list(read_tags(source))
    spans = set(_find_spans(codes))
    by_name: dict[str, list[_Assignment]] = {}
    pending = [name for code in codes for name in _names_given(code.tokens)]
    for found in find_in_lines(source, codes):
        if isinstance(found, str):
            pending.append(found)
        else:
            spans.add(found)
    parts = _Parts(len(codes))
    for one in _assignments(codes):
        for name in one.names:
            by_name.setdefault(name, []).append(one)
        # A macro or an argument with such a name is code rather than a value.
        if one.is_value and any(map(is_secret_name, one.names)):
            spans.update(
                span for tokens in _tokens_of(one, codes, parts, source, spans) for span in literals_in(tokens)
            )
    parts = _Parts(len(codes))
    while pending:
        for one in by_name.pop(pending.pop(), ()):
            for tokens in _tokens_of(one, codes, parts, source, spans):
                spans.update(literals_in(tokens))
                pending += (token.text for token in tokens if token.kind == "name" and token.text in by_name)
            pending += [f"{one.calls}("] if one.calls else []
    return _plain(_blanked(source, spans))


def _tokens_of(
    one: _Assignment, codes: Sequence[Code], parts: "_Parts", source: str, spans: set[tuple[int, int]]
) -> Iterator[Sequence[Token]]:
    """Yield the tokens of the value of *one*, and add the words of its text to *spans*."""
    yield one.tokens
    for number in parts.take(one.first, one.end):
        after, before = codes[number].end, codes[number + 1].start
        spans.update((after + word.start(), after + word.end()) for word in _WORD(source[after:before]))
        yield codes[number].tokens


class _Parts:
    """Tags and the text after each, of which each is taken once, however many ranges it is in."""

    def __init__(self, count: int) -> None:
        self._next = list(range(count + 1))

    def take(self, first: int, end: int) -> Iterator[int]:
        """Yield the numbers from *first* to before *end* that were not taken before."""
        while (number := self._find(first)) < end:
            self._next[number] = number + 1
            yield number

    def _find(self, number: int) -> int:
        while (following := self._next[number]) != number:
            self._next[number] = self._next[following]
            number = following
        return number


@lru_cache(maxsize=256)
def shown_source(source: str) -> str:
    """Return `without_credentials` of a template, of which many lines may be asked for."""
    return without_credentials(source)


def _find_spans(codes: Iterable[Code]) -> Iterator[tuple[int, int]]:
    """Yield the positions of literals whose preceding name is that of a secret."""
    for code in codes:
        for value in _values(code.tokens, lambda token: SECRET_NAME.search(token.text) is not None):
            yield from strings_in(value)


def _names_given(tokens: Sequence[Token]) -> Iterator[str]:
    """Yield the names in what is given to `auth=` and `headers=`."""
    for value in _values(tokens):
        yield from (token.text for token in value if token.kind == "name")


def _values(
    tokens: Sequence[Token], is_name: Callable[[Token], bool] = lambda _token: False
) -> Iterator[Sequence[Token]]:
    """Yield the values of `auth=` and `headers=`, and of tokens that satisfy *is_name*; values do not nest."""
    number = 0
    while number < len(tokens) - 1:
        token, follower = tokens[number], tokens[number + 1].text
        number += 1
        if token.kind == "mark" or follower not in (":", "="):
            continue
        is_given = token.text.strip("'\"") in _ARGUMENTS and (follower == "=" or token.kind == "string")
        if is_given or is_name(token):
            end = _end_of_value(tokens, number + 1)
            yield tokens[number + 1 : end]
            number = end


def _end_of_value(tokens: Sequence[Token], start: int) -> int:
    """Return where the expression ends that begins at *start*: at the comma or bracket after it."""
    depth = 0
    for number in range(start, len(tokens)):
        token = tokens[number]
        if token.kind != "mark":
            continue
        depth += (token.text in OPENING) - (token.text in CLOSING)
        if depth < 0 or (depth == 0 and token.text == ","):
            return number
    return len(tokens)


def _assignments(codes: Sequence[Code]) -> Iterator[_Assignment]:
    ends = _find_ends(codes)
    for number, code in enumerate(codes):
        tokens = code.tokens
        split = _split_of(tokens)
        if code.word in ("set", "for", "with", "do") and split is not None:
            yield _Assignment(names_of(tokens[1:split]), tokens[split:], is_value=True)
        elif code.word in ("set", "macro"):
            is_value = code.word == "set"
            yield _Assignment(names_of(tokens[1:2]), tokens[2:], number, ends[number], is_value=is_value)
        elif code.word == "call":
            yield _Assignment(frozenset({"caller"}), tokens[1:], number, ends[number])
        if code.word == "macro" and len(tokens) > 1:
            parameters = names_of(tokens[2:]) | {"kwargs", "varargs"}
            yield _Assignment(parameters, tokens[2:], calls=tokens[1].text)
        if code.word == "with":
            at = 1
            while at < len(tokens) - 1:
                if tokens[at].kind == "name" and tokens[at + 1].text == "=":
                    end = _end_of_value(tokens, at + 2)
                    yield _Assignment(frozenset({tokens[at].text}), tokens[at + 2 : end])
                    at = end
                at += 1
    macros = {code.tokens[1].text for code in codes if code.word == "macro" and len(code.tokens) > 1}
    for code in codes:
        yield from _arguments(code.tokens, macros)


def _find_ends(codes: Sequence[Code]) -> list[int]:
    """Return for each tag the number of the next one that ends a block of its kind; without one, that of the last."""
    found, ends = dict[str, int](), [0] * len(codes)
    for number in range(len(codes) - 1, -1, -1):
        found[codes[number].word] = number
        ends[number] = found.get(f"end{codes[number].word}", len(codes) - 1)
    return ends


def _split_of(tokens: Sequence[Token]) -> int | None:
    """Return where `=` or `in` follows the names of a tag."""
    depth = 0
    for number, token in enumerate(tokens):
        depth += (token.text in OPENING) - (token.text in CLOSING)
        if depth == 0 and token.text in ("=", "in"):
            return number
    return None


def _arguments(tokens: Sequence[Token], macros: Collection[str]) -> Iterator[_Assignment]:
    """Yield what calls of *macros* give to them: what is in the arguments, but not in those of a call within."""
    calls: list[list[Token] | None] = [None]
    for number, token in enumerate(tokens):
        if calls[-1] is not None:
            calls[-1].append(token)
        if token.text in OPENING:
            name = tokens[number - 1].text if number and token.text == "(" else ""
            given: list[Token] | None = [] if name in macros else calls[-1]
            calls.append(given)
            if name in macros and given is not None:
                yield _Assignment(frozenset({f"{name}("}), given)
        elif token.text in CLOSING and len(calls) > 1:
            calls.pop()


def _blanked(source: str, spans: Iterable[tuple[int, int]]) -> str:
    parts, position = [], 0
    for start, end in sorted(spans):
        if start < position:
            continue
        quote = source[start] if source[start] in "\"'" else ""
        breaks = "\n" * source.count("\n", start, end)
        parts += [source[position:start], quote, BLANK, breaks, quote]
        position = end
    return "".join(parts) + source[position:]


def _plain(text: str) -> str:
    text = _URL.sub(_without_userinfo, text)
    text = _COMMENTED.sub(_without_mapping, text)
    text = _SCHEMES.sub(rf"\g<name> {BLANK}", text)
    return _WRITTEN.sub(_without_value, text)


def _without_userinfo(match: re.Match[str]) -> str:
    user, query = f"{BLANK}@" if match["user"] else "", f"?{BLANK}" if match["query"] else ""
    return f"{match['scheme']}{user}{match['rest']}{query}"


def _without_mapping(match: re.Match[str]) -> str:
    # What is left to blank is in comments; in code it has been done, and everything but literals is worth showing.
    if BLANK in match[0]:
        return match[0]
    breaks = "\n" * match[0].count("\n")
    return f"{match['name']}{match['between']}{{{BLANK}{breaks}}}"


def _without_value(match: re.Match[str]) -> str:
    value = match["value"]
    if BLANK in value:
        return match[0]
    quote = value[0] if value[0] in "\"'" else ""
    return f"{match['before']}{quote}{BLANK}{quote}"
