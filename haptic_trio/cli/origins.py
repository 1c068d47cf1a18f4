"""Which line of a template a refused line of haproxy.cfg is from: people edit templates, not what is made of them."""

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
    lines = text.splitlines()
    for problem in problems:
        if problem.subject:
            # It is known exactly.
            yield problem
            continue
        number = problem.line if problem.source == MAIN_TEMPLATE else 0
        if not problem.source:
            number = _line_with(_QUOTED.findall(problem.message), lines)
        if not 0 < number <= len(lines):
            yield problem
            continue
        sources = find_sources(templates, lines[number - 1], None, MAIN_TEMPLATE)
        places = ", or ".join(f"{source.template}:{source.line}" for source in sources)
        hints = [f"the line reads like {places}"] if places else []
        hints += [problem.hint] if problem.hint else []
        yield msgspec.structs.replace(problem, source=MAIN_TEMPLATE, line=number, hint="; ".join(hints))


def _line_with(words: Sequence[str], lines: Sequence[str]) -> int:
    """Return the number of the only line with the last of *words*; 0 if there is none, or another one."""
    found = [number for number, line in enumerate(lines, 1) if words and words[-1] in line.split()]
    return found[0] if len(found) == 1 else 0
