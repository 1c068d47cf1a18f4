"""Redaction of quoted output in messages, for output that may derive from a Secret."""

from collections.abc import Container, Iterable, Iterator, Mapping
from functools import cache, cached_property
from typing import Any, Final

import msgspec

from haptic_trio.errors import Problem
from haptic_trio.haproxy.grammar.keywords import shipped_keywords
from haptic_trio.redaction.quoted import without_quoted

_WORDS: Final = ("if", "unless", "password", "insecure-password", "groups", "user", "users", "group", "on", "off")


class TemplateWords:
    """The words of templates, which are no data. They are found when they are first asked for."""

    def __init__(self, sources: Iterable[str] = ()) -> None:
        self._sources = tuple(sources)

    def __contains__(self, word: object) -> bool:
        return word in self._words

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(word for source in self._sources for word in source.split())


def without_output(problem: Problem, words: Container[str] = (), path: str = "") -> Problem:
    """Return *problem* without its excerpt, and with `…` for quoted text other than HAProxy keywords.

    *words* and *path* are left as well: they are no data.
    """

    def is_shown(word: str) -> bool:
        return word == path or word in words or word in _keywords()

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
