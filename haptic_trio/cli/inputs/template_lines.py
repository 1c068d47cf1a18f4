"""Mapping from a rejected line of haproxy.cfg to the template line that produced it."""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from haptic_trio.config.templates import MAIN_TEMPLATE
from haptic_trio.errors import Problem
from haptic_trio.explain.template_lines import find_sources

_QUOTED: Final = re.compile(r"'([^']+)'")


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
