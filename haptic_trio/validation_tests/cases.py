"""Test cases of a configuration, and the assertions that need no HAProxy."""

import time
from collections.abc import Callable, Iterable, Iterator

import msgspec

from haptic_trio.config.assertions import Assertion, Behaviour, Equals, HaproxyValid, type_of
from haptic_trio.config.model import ValidationTest
from haptic_trio.config.suites import Suite
from haptic_trio.errors import Problem, ProblemsError
from haptic_trio.validation_tests.assertion_titles import title_of
from haptic_trio.validation_tests.rendering import CaseRenderer, RenderedTest
from haptic_trio.validation_tests.results import CaseResult, Checked, Verdict
from haptic_trio.validation_tests.static import Fault, check, describe_problems
from haptic_trio.yaml.paths import item_path, key_path


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A test with its suite."""

    suite: Suite
    name: str

    @property
    def test(self) -> ValidationTest:
        """Assertions and fixtures."""
        return self.suite.tests[self.name]


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """A case after rendering and the checks without HAProxy."""

    case: Case
    rendered: RenderedTest | None
    """None if its templates do not compile."""
    checked: tuple[Checked, ...]
    open: tuple[tuple[int, Assertion], ...]
    """Indices of assertions that HAProxy must check, too; the checks without HAProxy passed."""
    seconds: float


def find_cases(suites: Iterable[Suite], wanted: Callable[[str], bool] = lambda _name: True) -> list[Case]:
    """Return the tests of *suites* with assertions whose name (`SUITE/TEST`) is *wanted*."""
    return [
        Case(suite=suite, name=name)
        for suite in suites
        for name, test in suite.tests.items()
        if test.assertions and wanted(f"{suite.name}/{name}")
    ]


def examine(case: Case, renderer: CaseRenderer) -> Examined:
    """Render the case and check the assertions that need no HAProxy; blocking."""
    began = time.perf_counter()
    checked: list[Checked] = []
    waiting: list[tuple[int, Assertion]] = []
    rendered: RenderedTest | None = None
    failure: Fault | None = None
    try:
        rendered = renderer.render(case.test)
    except ProblemsError as exc:
        failure = Fault(describe_problems(exc.problems))
    for index, assertion in enumerate(case.test.assertions):
        start = time.perf_counter()
        fault = failure
        if rendered is not None and not isinstance(assertion, Behaviour):
            fault = check(assertion, rendered)
        if fault is None and isinstance(assertion, Behaviour | HaproxyValid):
            waiting.append((index, assertion))
        else:
            checked.append(judged(case, index, fault, time.perf_counter() - start))
    return Examined(
        case=case,
        rendered=rendered,
        checked=tuple(checked),
        open=tuple(waiting),
        seconds=time.perf_counter() - began,
    )


def judged(case: Case, index: int, fault: Fault | None, seconds: float) -> Checked:
    """Return the result of the assertion *index* of *case*: failed with *fault*, or passed."""
    verdict = Verdict.PASSED if fault is None else Verdict.FAILED
    fault = fault or Fault("")
    return _outcome(case, index, verdict, fault, seconds)


def skipped(case: Case, index: int, why: str) -> Checked:
    """Return the result of the assertion *index* of *case*: skipped."""
    return _outcome(case, index, Verdict.SKIPPED, Fault(why), 0.0)


def finish(examined: Examined, more: Iterable[Checked], seconds: float) -> CaseResult:
    """Return the result of the case, of which HAProxy took *seconds*."""
    case = examined.case
    place = case.suite.locate(Problem(message="", path=key_path("validationTests", case.name)))
    return CaseResult(
        suite=case.suite.name,
        name=case.name,
        description=case.test.description,
        source=place.source,
        line=place.line,
        checked=tuple(sorted([*examined.checked, *more], key=lambda one: one.index)),
        seconds=examined.seconds + seconds,
    )


def updates_of(results: Iterable[CaseResult]) -> Iterator[tuple[CaseResult, Checked]]:
    """Yield the assertions whose `expected` can be updated."""
    for result in results:
        for one in result.checked:
            if one.type == type_of(Equals(expected="")) and one.actual is not None:
                yield result, one


def _outcome(case: Case, index: int, verdict: Verdict, fault: Fault, seconds: float) -> Checked:
    assertion = case.test.assertions[index]
    path = item_path(f"{key_path('validationTests', case.name)}.assertions", index)
    place = case.suite.locate(Problem(message="", path=path))
    return Checked(
        index=index,
        type=type_of(assertion),
        title=title_of(assertion),
        verdict=verdict,
        message=fault.message,
        diff=fault.diff,
        causes=fault.causes,
        actual=fault.actual,
        seconds=seconds,
        source=place.source,
        line=place.line,
    )
