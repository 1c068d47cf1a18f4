"""Results of tests as plain data."""

import difflib
from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec

from haptic_trio.errors import Problem


class Verdict(StrEnum):
    """How one assertion ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """It was not looked at."""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """One assertion, and what came of it."""

    index: int
    type: str
    title: str
    """What it asserts, in a line."""
    verdict: Verdict = Verdict.PASSED
    message: str = ""
    """Why it failed or was skipped."""
    diff: str = ""
    """Expected against found, as a unified diff."""
    seconds: float = 0.0
    source: str = ""
    line: int = 0
    """Where the assertion stands; 0 where that is not known."""
    actual: str | None = None
    """What `equals` found, for an update."""


class CaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """One test, and what came of it."""

    suite: str
    name: str
    description: str = ""
    source: str = ""
    line: int = 0
    checked: tuple[Checked, ...] = ()
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        """Whether any assertion has failed."""
        return any(one.verdict is Verdict.FAILED for one in self.checked)

    @property
    def skipped(self) -> bool:
        """Whether nothing of it was looked at."""
        return all(one.verdict is Verdict.SKIPPED for one in self.checked)


def count(cases: Iterable[CaseResult], verdict: Verdict) -> int:
    """Return how many assertions of *cases* ended with *verdict*."""
    return sum(one.verdict is verdict for case in cases for one in case.checked)


def problems_of(cases: Iterable[CaseResult]) -> Iterator[Problem]:
    """Yield a problem for each assertion that failed."""
    for case in cases:
        for one in case.checked:
            if one.verdict is Verdict.FAILED:
                yield Problem(
                    message=f"the test {case.name!r} fails: {one.title}: {one.message}",
                    source=one.source or case.source,
                    line=one.line or case.line,
                    path=f"validationTests.{case.name}.assertions[{one.index}]",
                    hint=case.description,
                    excerpt=one.diff,
                )


def text_diff(expected: str, found: str, *, limit: int = 200) -> str:
    """Return a unified diff of at most *limit* lines."""
    lines = list(difflib.unified_diff(expected.splitlines(), found.splitlines(), "expected", "found", n=2, lineterm=""))
    if len(lines) > limit:
        lines[limit:] = [f"… {len(lines) - limit} more lines"]
    return "\n".join(lines)
