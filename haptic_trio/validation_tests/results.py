"""Results of tests as plain data."""

import difflib
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final

import msgspec

from haptic_trio.errors import Problem

RENDER_FAILS: Final = "the render fails: "
"""Beginning of the message of each assertion about a render that failed."""


class Verdict(StrEnum):
    """Verdict of one assertion."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """Not checked."""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one assertion."""

    index: int
    type: str
    title: str
    """The assertion in one line."""
    verdict: Verdict = Verdict.PASSED
    message: str = ""
    """Reason of a failure or skip."""
    diff: str = ""
    """Expected against found, as a unified diff."""
    seconds: float = 0.0
    source: str = ""
    line: int = 0
    """Line of the assertion; 0 if unknown."""
    causes: tuple[Problem, ...] = ()
    """Problems in the user's own templates that the message quotes as text."""
    actual: str | None = None
    """Actual text of `equals`, for `--update`."""


class CaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one test."""

    suite: str
    name: str
    description: str = ""
    source: str = ""
    line: int = 0
    checked: tuple[Checked, ...] = ()
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        """Whether an assertion failed."""
        return any(one.verdict is Verdict.FAILED for one in self.checked)

    @property
    def skipped(self) -> bool:
        """Whether all assertions were skipped."""
        return all(one.verdict is Verdict.SKIPPED for one in self.checked)


def count(cases: Iterable[CaseResult], verdict: Verdict) -> int:
    """Return the number of assertions of *cases* with *verdict*."""
    return sum(one.verdict is verdict for case in cases for one in case.checked)


def problems_of(cases: Iterable[CaseResult]) -> Iterator[Problem]:
    """Yield a problem for each failed assertion; a failed render of a test, which fails all of them, only once."""
    for case in cases:
        described = f" ({case.description.rstrip('.')})" if case.description else ""
        faults: set[str] = set()
        for one in case.checked:
            fault = one.message.removeprefix(RENDER_FAILS)
            if one.verdict is Verdict.FAILED and not (fault in faults and one.message.startswith(RENDER_FAILS)):
                faults.add(fault)
                fails = f"the test {case.name!r}{described} fails: {one.title}"
                if one.causes:
                    # The line to correct is that of the template, not that of the test.
                    yield from (
                        msgspec.structs.replace(cause, message=f"{fails}: {cause.message}") for cause in one.causes
                    )
                    continue
                yield Problem(
                    message=f"{fails}: {one.message}",
                    source=one.source or case.source,
                    line=one.line or case.line,
                    path=f"validationTests.{case.name}.assertions[{one.index}]",
                    excerpt=one.diff,
                )


def difference(what: str, expected: object, found: object) -> str:
    """Return the reason of a failure in one line: what was expected of *what*, and what was found."""
    return f"{what}: expected {expected}, found {found}"


def text_diff(expected: str, found: str, *, limit: int = 200) -> str:
    """Return a unified diff with at most *limit* lines."""
    lines = list(difflib.unified_diff(expected.splitlines(), found.splitlines(), "expected", "found", n=2, lineterm=""))
    if len(lines) > limit:
        lines[limit:] = [f"… {len(lines) - limit} more lines"]
    return "\n".join(lines)
