"""Mapping from a rejected line of haproxy.cfg to the template line that produced it."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from haptic_trio.config.templates import MAIN_TEMPLATE
from haptic_trio.errors import Problem
from haptic_trio.explain.template_lines import find_sources

_QUOTED: Final = re.compile(r"'([^']+)'")


def with_origins(problems: Iterable[Problem], text: str, templates: Mapping[str, str]) -> Iterator[Problem]:
    """Yield *problems*, those of haproxy.cfg, which is *text*, with a hint that names the template line most like each.

    Where HAProxy names no line, such as for a backend that is not there, it
    is the only one that has the last word which its message quotes.
    """
    lines = text.split("\n")
    words = _Words(lines)
    for problem in problems:
        if problem.subject:
            # It is known exactly.
            yield problem
            continue
        number = problem.line if problem.source == MAIN_TEMPLATE else 0
        if not problem.source:
            number = words.find(_QUOTED.findall(problem.message)[-1:])
        if not 0 < number <= len(lines):
            yield problem
            continue
        sources = find_sources(templates, lines[number - 1], None, MAIN_TEMPLATE)
        places = ", or ".join(f"{source.template}:{source.line}" for source in sources)
        hints = [f"the line reads like {places}"] if places else []
        hints += [problem.hint] if problem.hint else []
        yield msgspec.structs.replace(problem, source=MAIN_TEMPLATE, line=number, hint="; ".join(hints))


class _Words:
    """Which line has a word; they are read once, however many problems there are, and not without need."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._numbers: dict[str, int] = {}

    def find(self, words: Sequence[str]) -> int:
        """Return the number of the only line with the first of *words*; 0 if there is none, or another one."""
        if words and not self._numbers:
            for number, line in enumerate(self._lines, 1):
                for word in set(line.split()):
                    self._numbers[word] = 0 if word in self._numbers else number
        return self._numbers.get(words[0], 0) if words else 0
