"""Redaction of quoted output in messages, for output that may derive from a Secret."""

from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final

import msgspec

from haptic_trio.errors import Problem
from haptic_trio.haproxy.grammar.keywords import shipped_keywords
from haptic_trio.redaction.quoted import without_quoted

_WORDS: Final = ("if", "unless", "password", "insecure-password", "groups", "user", "users", "group", "on", "off")


def without_output(problem: Problem, sources: Mapping[str, str] = MappingProxyType({})) -> Problem:
    """Return *problem* without its excerpt, and with `…` for quoted text other than HAProxy keywords.

    Words of *sources*, templates by name, are left as well: they are no data.
    """
    words = {word for source in sources.values() for word in source.split()}

    def is_shown(word: str) -> bool:
        return word in words or word in _keywords()

    message = without_quoted(problem.message, lambda text: all(map(is_shown, text.strip("'\"[]<>").split())))
    return msgspec.structs.replace(problem, message=message, excerpt="")


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
