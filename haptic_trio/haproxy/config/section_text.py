"""Text of a haproxy.cfg, cut before each section header."""

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from haptic_trio.haproxy.lexer import split_line


class Chunk(NamedTuple):
    """Text of a section; with an empty kind, the text before the first section."""

    kind: str
    text: str


class SectionCutter:
    """Cuts texts before the headers of sections of some kinds."""

    def __init__(self, kinds: Collection[str]) -> None:
        self._kinds = frozenset(kinds)
        names = "|".join(map(re.escape, sorted(kinds, key=len, reverse=True)))
        # Lines that begin a section, or may begin one: a quoted or escaped first word needs the lexer.
        self._header = re.compile(
            rf"^[ \t\v\f]*(?:(?P<kind>{names})(?=[\s#]|\Z)|[^\s#]*[\"'\\])", re.MULTILINE | re.ASCII
        )

    def cut(self, text: str) -> Iterator[Chunk]:
        """Yield the text before the first section, unless it is empty, then the sections."""
        start, kind = 0, ""
        for match in self._header.finditer(text):
            word = match["kind"] or _first_word(text, match.start())
            if word is None or (not match["kind"] and word not in self._kinds):
                continue
            if match.start() > start:
                yield Chunk(kind, text[start : match.start()])
            start, kind = match.start(), word
        if len(text) > start:
            yield Chunk(kind, text[start:])


def _first_word(text: str, start: int) -> str | None:
    end = text.find("\n", start)
    words = split_line(text[start : end if end >= 0 else len(text)]).words
    return words[0] if words else None
