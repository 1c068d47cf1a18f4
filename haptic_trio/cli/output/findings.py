"""Findings of a command, as text and as JSON."""

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TextIO

import msgspec
from rich.console import Console
from rich.text import Text

from haptic_trio.errors import Problem

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class Area(StrEnum):
    """The step of validation that found a problem."""

    MANIFESTS = "manifests"
    """A file that the API server would not accept."""
    CONFIGURATION = "configuration"
    """The ConfigMap or the Secret with credentials."""
    TESTS = "tests"
    """The configuration's own tests, except those that send requests."""
    OBJECT = "objects"
    """An object that is rejected; all others are served."""
    OUTPUT = "output"
    """No valid configuration could be rendered."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A problem and its area."""

    area: Area
    problem: Problem
    is_warning: bool = False
    """It does not make the input invalid."""


def find(area: Area, problems: Iterable[Problem], *, is_warning: bool = False) -> list[Finding]:
    """Return each of *problems* as a finding."""
    return [Finding(area=area, problem=problem, is_warning=is_warning) for problem in problems]


def count_errors(findings: Iterable[Finding]) -> int:
    """Return the number of *findings* that are not warnings."""
    return sum(not finding.is_warning for finding in findings)


def visible(text: str) -> str:
    """Return *text* with control characters escaped: messages may quote untrusted manifests."""
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def quantity(count: int, name: str) -> str:
    """Return *count* with *name*, in the plural unless it is 1."""
    return f"{count} {name}{'' if count == 1 else 's'}"


def make_console(stream: TextIO) -> Console:
    """Return a console that writes colours to a terminal and plain, unwrapped text to a pipe."""
    return Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True)


def print_findings(console: Console, findings: Iterable[Finding]) -> None:
    """Print *findings*, each with its place, hint and excerpt."""
    for finding in findings:
        console.print(describe(finding))


def describe(finding: Finding) -> Text:
    """Return one finding as text of one or more lines; the first is `place: severity: message`."""
    problem = finding.problem
    place = ":".join(str(part) for part in (problem.source, problem.line, problem.column) if part)
    text = Text()
    if place:
        text.append(visible(f"{place}: "), style="bold")
    text.append(*(("warning: ", "yellow") if finding.is_warning else ("error: ", "bold red")))
    if problem.path:
        text.append(visible(f"{problem.path}: "), style="cyan")
    message, *more = visible(problem.message).splitlines() or [""]
    text.append(message)
    for line in more:
        text.append(f"\n    {line}")
    if problem.subject:
        text.append(visible(f"\n    object: {problem.subject}"), style="magenta")
    for line in visible(problem.excerpt).splitlines():
        text.append(f"\n    {line}", style="dim")
    if problem.hint:
        text.append(visible(f"\n    hint: {problem.hint}"), style="green")
    return text


def findings_to_json(findings: Sequence[Finding]) -> list[dict[str, object]]:
    """Return *findings* as plain data for machines; the fields are those of a problem, with area and severity."""
    return [
        {
            "area": finding.area.value,
            "severity": "warning" if finding.is_warning else "error",
            **{name: value for name, value in msgspec.structs.asdict(finding.problem).items() if value},
        }
        for finding in findings
    ]
