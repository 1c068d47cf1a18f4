"""Redaction of quoted output in messages, for output that may derive from a Secret."""

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final

import msgspec

from haptic_trio.errors import Problem
from haptic_trio.haproxy.grammar.keywords import shipped_keywords
from haptic_trio.redaction.names import BLANK
from haptic_trio.redaction.quoted import without_quoted

_PROXY: Final = re.compile(r"(?:(?:backend|frontend|listen|[Pp]roxy) '[\w.:-]+')?")
"""Name of a proxy at the beginning of a message."""
_FORMER: Final = re.compile(r"\(was (?!').*", re.DOTALL)
"""A value without quotes, with which some messages end."""
_WORDS: Final = ("if", "unless", "password", "insecure-password", "groups", "user", "users", "group", "on", "off")


def without_output(problem: Problem, words: Container[str] = (), path: str = "") -> Problem:
    """Return *problem* without its excerpt, and with `…` for quoted text other than HAProxy keywords.

    *words* and *path* are left as well: they are no data. So is the name of
    the proxy that the message is about.
    """

    def is_shown(word: str) -> bool:
        return word == path or word in words or word in _keywords()

    named = _PROXY.match(problem.message)
    start = named.end() if named is not None else 0
    rest = _FORMER.sub(f"(was {BLANK})", problem.message[start:])
    rest = without_quoted(rest, lambda text: all(map(is_shown, text.strip("'\"[]<>").split())))
    return msgspec.structs.replace(problem, message=problem.message[:start] + rest, excerpt="")


def describe_problems(problems: Iterable[Problem]) -> str:
    """Return *problems* of a configuration in one line, `without_output`: any line may derive from a Secret."""
    return "; ".join(str(without_output(problem)) for problem in problems)


@cache
def _keywords() -> frozenset[str]:
    return frozenset((*_WORDS, *_words_in(msgspec.structs.asdict(shipped_keywords()))))


def _words_in(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Mapping():
            for key, inner in value.items():
                yield from _words_in(key)
                yield from _words_in(inner)
        case frozenset() | tuple() | list():
            for inner in value:
                yield from _words_in(inner)
