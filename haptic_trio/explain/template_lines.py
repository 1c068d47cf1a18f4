"""Search for the template line that produced an output line.

Nothing records it, so this is read off the texts: a template's line is taken
as its literal parts with anything between them. Of the lines that match, the
one with the most literal characters counts.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

from haptic_trio.explain.answers import Source
from haptic_trio.templating.values.subjects import Origin

_TAG: Final = re.compile(r"\{\{.*?\}\}|\{%.*?%\}")
_HALF_TAG: Final = re.compile(r"\{\{|\{%|%\}|\}\}")
_COMMENT: Final = re.compile(r"\{#.*?#\}", re.DOTALL)
_MOST: Final = 3
"""Maximum number of equally similar lines; if there are more, none is returned."""


def find_sources(templates: Mapping[str, str], text: str, origin: Origin | None, output: str) -> tuple[Source, ...]:
    """Return the lines of *templates* that are most similar to the line *text*; none if the text is too short.

    Of equal ones, those of the fragment's own template, or else of *output*'s, count alone.
    """
    line = text.strip()
    best, found = 1, list[Source]()
    for name, source in templates.items():
        for number, weight, literals in _lines_in(source):
            if weight >= best and _reads_like(line, literals):
                if weight > best:
                    found.clear()
                best = weight
                found.append(Source(template=name, line=number))
    home = origin.template if origin is not None else output
    found = [source for source in found if source.template == home] or found
    return tuple(found) if len(found) <= _MOST else ()


@lru_cache(maxsize=1_000)
def _lines_in(source: str) -> tuple[tuple[int, int, tuple[str, ...]], ...]:
    return tuple(_read(source))


def _read(source: str) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Yield each line with literal text: number, count of literal characters, and the literal parts."""
    # Remove comments but keep their line feeds.
    plain = _COMMENT.sub(lambda match: "\n" * match[0].count("\n"), source)
    for number, line in enumerate(plain.split("\n"), 1):
        literals = tuple(_TAG.split(line.strip()))
        weight = sum(not char.isspace() for part in literals for char in part)
        if weight and not any(map(_HALF_TAG.search, literals)):
            yield number, weight, literals


def _reads_like(line: str, literals: tuple[str, ...]) -> bool:
    first, *middle = literals
    if not middle:
        return line == first
    last = middle.pop()
    if not line.startswith(first):
        return False
    position = len(first)
    for part in middle:
        position = line.find(part, position)
        if position < 0:
            return False
        position += len(part)
    return line.endswith(last) and len(line) - len(last) >= position
