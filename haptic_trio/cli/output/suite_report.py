"""Test results as a tree and as JSON."""

from collections.abc import Sequence
from typing import TextIO

import msgspec
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from haptic_trio.cli.output.findings import quantity, visible
from haptic_trio.validation_tests.coverage import TemplateCoverage, line_ranges, total
from haptic_trio.validation_tests.results import RENDER_FAILS, CaseResult, Checked, Verdict, count
from haptic_trio.validation_tests.tracing import Timing

_MARKS = {
    Verdict.PASSED: ("✓", "green"),
    Verdict.FAILED: ("✗", "bold red"),
    Verdict.SKIPPED: ("-", "yellow"),
}
_MOST_WAYS = 8
_WIDE = 10_000


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Results of a test run."""

    cases: tuple[CaseResult, ...]
    seconds: float
    coverage: tuple[TemplateCoverage, ...] | None = None
    """None unless requested."""
    own: frozenset[str] = frozenset()
    """Templates that the configuration adds or overrides."""
    slowest: tuple[tuple[str, Timing], ...] | None = None
    updated: int = 0
    """Number of expected texts that were rewritten."""

    @property
    def passed(self) -> bool:
        """Whether no test fails."""
        return not any(case.failed for case in self.cases)


def print_report(stream: TextIO, report: Report, *, verbose: bool) -> None:
    """Print the tree, then coverage and times if requested, and the summary.

    Lines are cut to the width of a terminal; a pipe gets complete lines.
    """
    width = None if stream.isatty() else _WIDE
    console = Console(file=stream, highlight=False, markup=False, emoji=False, width=width)
    for suite in dict.fromkeys(case.suite for case in report.cases):
        cases = [case for case in report.cases if case.suite == suite]
        tree = Tree(Text(visible(suite), style="bold"))
        for case in cases:
            _add_case(tree, case, verbose=verbose)
        console.print(tree)
    if report.coverage is not None:
        _print_coverage(console, report.coverage, report.own)
    if report.slowest is not None:
        _print_slowest(console, report.slowest)
    console.print(_summary(report))


def _add_case(tree: Tree, case: CaseResult, *, verbose: bool) -> None:
    verdict = Verdict.FAILED if case.failed else Verdict.SKIPPED if case.skipped else Verdict.PASSED
    label = _line(verdict, case.name, case.seconds)
    if case.description and (verbose or case.failed):
        label.append(f"  {visible(case.description)}", style="dim")
    branch = tree.add(label)
    shown: set[str] = set()
    for one in case.checked:
        if verbose or one.verdict is not Verdict.PASSED:
            fault = one.message.removeprefix(RENDER_FAILS)
            # A failed render fails many assertions.
            is_again = fault != one.message and fault in shown
            branch.add(_describe(msgspec.structs.replace(one, message=f"{RENDER_FAILS}see above") if is_again else one))
            shown.add(fault)


def _line(verdict: Verdict, title: str, seconds: float) -> Text:
    mark, style = _MARKS[verdict]
    text = Text()
    text.append(f"{mark} ", style=style)
    text.append(visible(title))
    text.append(f"  {_time(seconds)}", style="dim")
    return text


def _describe(one: Checked) -> Text:
    text = _line(one.verdict, one.title, one.seconds)
    if one.message:
        text.append(f"\n{visible(one.message)}", style="red" if one.verdict is Verdict.FAILED else "yellow")
    if one.line and one.verdict is not Verdict.PASSED:
        text.append(f"\n{visible(one.source)}:{one.line}", style="dim")
    for line in visible(one.diff).splitlines():
        text.append(f"\n{line}", style={"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "dim"))
    return text


def _summary(report: Report) -> Text:
    failed = sum(case.failed for case in report.cases)
    asserted = sum(len(case.checked) for case in report.cases)
    skipped = count(report.cases, Verdict.SKIPPED)
    parts = [
        f"{len(report.cases) - failed} of {len(report.cases)} tests passed",
        quantity(asserted, "assertion"),
    ]
    parts += [f"{skipped} skipped"] if skipped else []
    parts += [f"{quantity(report.updated, 'expected text')} rewritten"] if report.updated else []
    return Text(f"{', '.join(parts)} in {_time(report.seconds)}", style="bold red" if failed else "bold green")


def _print_coverage(console: Console, found: Sequence[TemplateCoverage], names: frozenset[str]) -> None:
    own = [one for one in found if one.name in names]
    others = [one for one in found if one.name not in names]
    whole = f"templates rendered: {total(list(found)):.0%} of lines and branches"
    # Users of a library test their own templates.
    part = f", {total(own):.0%} of the configuration's own templates" if own and others else ""
    console.print(Text(f"{whole}{part}", style="bold"))
    for one in (*own, *others):
        if not one.missing_lines and not one.missing_branches:
            continue
        text = Text(f"  {one.covered:4.0%}  {one.name}", style="yellow" if one.covered < 1 else "")
        if one.missing_lines:
            text.append(f"  lines {line_ranges(one.missing_lines)}", style="dim")
        if one.missing_branches:
            ways = [f"{branch.line} {branch.way}" for branch in one.missing_branches]
            more = ", …" if len(ways) > _MOST_WAYS else ""
            text.append(f"  never {', '.join(ways[:_MOST_WAYS])}{more}", style="dim")
        console.print(text)


def _print_slowest(console: Console, found: Sequence[tuple[str, Timing]]) -> None:
    console.print(Text("slowest templates", style="bold"))
    for name, timing in found:
        console.print(Text(f"  {_time(timing.seconds):>8}  {name}  ({timing.calls} calls)"))


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def report_to_json(report: Report) -> dict[str, object]:
    """Return *report* as plain data."""
    data: dict[str, object] = {
        "passed": report.passed,
        "seconds": round(report.seconds, 3),
        "updated": report.updated,
        "tests": [_case_to_json(case) for case in report.cases],
    }
    if report.coverage is not None:
        data["coverage"] = {
            "covered": round(total(list(report.coverage)), 4),
            "templates": [
                {**msgspec.to_builtins(one), "covered": round(one.covered, 4), "own": one.name in report.own}
                for one in report.coverage
            ],
        }
    if report.slowest is not None:
        data["slowest"] = [
            {"template": name, "calls": timing.calls, "seconds": round(timing.seconds, 6)}
            for name, timing in report.slowest
        ]
    return data


def _case_to_json(case: CaseResult) -> dict[str, object]:
    verdict = Verdict.FAILED if case.failed else Verdict.SKIPPED if case.skipped else Verdict.PASSED
    return {
        "suite": case.suite,
        "name": case.name,
        "description": case.description,
        "verdict": verdict.value,
        "source": case.source,
        "line": case.line,
        "seconds": round(case.seconds, 4),
        "assertions": [
            {
                field: round(value, 4) if field == "seconds" else value
                for field, value in msgspec.to_builtins(one).items()
                if field not in {"actual", "causes"} and (value or field in {"index", "seconds"})
            }
            for one in case.checked
        ],
    }
