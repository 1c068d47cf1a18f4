"""Redaction of quoted output in messages, for output that may derive from a Secret."""

import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cache, partial
from types import MappingProxyType
from typing import Any, Final

import msgspec

from haptic_trio.errors import Problem
from haptic_trio.haproxy.grammar.keywords import shipped_keywords

_END: Final = r"(?=[.,:;)]*(?:\s|\Z))"
_QUOTED: Final = re.compile(
    "|".join(
        # Text without a closing quote matches up to its end, so each character is read once. "n't" opens no quote.
        rf"{before}{opening}(?:[^{closing}]|{closing}(?!{_END}))*+(?:{closing}|\Z)"
        for before, opening, closing in (
            (r"(?<!n(?='t\b))", "'", "'"),
            ("", '"', '"'),
            ("", r"\[", r"\]"),
            ("", "<", ">"),
        )
    )
)
"""Quotes may be a part of what is quoted, which ends before a blank."""
_CLOSING: Final = {"'": "'", '"': '"', "[": "]", "<": ">"}
_WORDS: Final = ("if", "unless", "password", "insecure-password", "groups", "user", "users", "group", "on", "off")


def without_output(problem: Problem, sources: Mapping[str, str] = MappingProxyType({})) -> Problem:
    """Return *problem* without its excerpt, and with `…` for quoted text other than HAProxy keywords.

    Words of *sources*, templates by name, are left as well: they are no data.
    """
    words = {word for source in sources.values() for word in source.split()}
    message = problem.message
    for found in _QUOTED.finditer(message):
        opening = found[0][0]
        if found[0] == opening or found[0][-1] != _CLOSING[opening]:
            # It is the end of a text that has another end in it, and begins anywhere before; or it has none.
            rest = message[found.start() + 1 :]
            rest = f"{_CLOSING[opening]}{rest}" if re.match(_END, rest) else ""
            message = f"{message[: message.index(opening)]}{opening}…{rest}"
            break
    return msgspec.structs.replace(problem, message=_QUOTED.sub(partial(_blanked, words), message), excerpt="")


def _blanked(shown: AbstractSet[str], match: re.Match[str]) -> str:
    opening, words = match[0][0], match[0].strip("'\"[]<>").split()
    return match[0] if all(word in shown or word in _keywords() for word in words) else f"{opening}…{_CLOSING[opening]}"


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
