"""Search for the template line that produced an output line.

Nothing records it, so this is read off the texts: a template's line is taken
as its literal parts with anything between them. Of the lines that match, the
one with the most literal characters counts.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from haptic_trio.config.templates import MAIN_TEMPLATE
from haptic_trio.errors import Problem
from haptic_trio.explain.answers import Source
from haptic_trio.templating.values.subjects import Origin

_TAG: Final = re.compile(r"\{\{.*?\}\}|\{%.*?%\}")
_HALF_TAG: Final = re.compile(r"\{\{|\{%|%\}|\}\}")
_COMMENT: Final = re.compile(r"\{#.*?#\}", re.DOTALL)
_QUOTED: Final = re.compile(r"'([^']+)'")
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


def with_origins(
    problems: Iterable[Problem], text: str, templates: Mapping[str, str], own: Container[str] = ()
) -> Iterator[Problem]:
    """Yield *problems*; those of haproxy.cfg (*text*) get a hint with the most similar line of *templates*.

    If this is a line of one of the user's *own* templates, it becomes the
    place, and the line of haproxy.cfg moves to the excerpt.

    If HAProxy names no line, as for a missing backend, the line is used that
    alone contains the last word quoted in the message.
    """
    lines = text.split("\n")
    words = _Words(lines)
    for problem in problems:
        if problem.subject:
            # The object is known exactly.
            yield problem
            continue
        number = problem.line if problem.source == MAIN_TEMPLATE else 0
        if not problem.source:
            number = words.find(_QUOTED.findall(problem.message)[-1:])
        if not 0 < number <= len(lines):
            yield problem
            continue
        sources = find_sources(templates, lines[number - 1], None, MAIN_TEMPLATE)
        if len(sources) == 1 and sources[0].template in own:
            place = ":".join(str(part) for part in (MAIN_TEMPLATE, number, problem.column) if part)
            yield msgspec.structs.replace(
                problem,
                source=sources[0].template,
                line=sources[0].line,
                column=0,
                excerpt=f"{place}\n{problem.excerpt}".rstrip("\n"),
            )
            continue
        places = ", or ".join(f"{source.template}:{source.line}" for source in sources)
        hints = [f"similar template line: {places}"] if places else []
        hints += [problem.hint] if problem.hint else []
        yield msgspec.structs.replace(problem, source=MAIN_TEMPLATE, line=number, hint="; ".join(hints))


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


class _Words:
    """Index from words to lines, built at first use."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._numbers: dict[str, int] = {}

    def find(self, words: Sequence[str]) -> int:
        """Return the number of the line with the first of *words*; 0 if no line or several lines have it."""
        if words and not self._numbers:
            for number, line in enumerate(self._lines, 1):
                for word in set(line.split()):
                    self._numbers[word] = 0 if word in self._numbers else number
        return self._numbers.get(words[0], 0) if words else 0
