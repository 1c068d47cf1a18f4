"""The tests that ship pass, and what the example promises is there."""

from pathlib import Path

import pytest
import trio
import yaml

from haptic_trio.config.libraries import library_names
from haptic_trio.config.load import load_config
from haptic_trio.config.suites import Suite, read_library_suites
from haptic_trio.validation_tests.cases import find_cases
from haptic_trio.validation_tests.coverage import measure, total
from haptic_trio.validation_tests.gate import suite_of
from haptic_trio.validation_tests.rendering import Tracing
from haptic_trio.validation_tests.results import CaseResult, problems_of
from haptic_trio.validation_tests.runner import Runner, RunOptions
from haptic_trio.validation_tests.tracing import TemplateTracer

pytestmark = pytest.mark.haproxy

THOUSAND = Path(__file__).parents[2] / "examples" / "thousand" / "config.yaml"


async def run(suites: list[Suite], binary: Path, tracing: Tracing | None = None) -> list[CaseResult]:
    # Minutes beside other tests: it ends a run that hangs.
    with trio.fail_after(600):
        runner = Runner(RunOptions(binary=binary), tracing=tracing)
        return await runner.run(find_cases(suites), lambda _result: None)


async def test_the_tests_of_all_libraries_pass_and_render_nearly_all_of_them(haproxy_binary: Path) -> None:
    suites = [suite for name in library_names() for suite in read_library_suites(name)]
    tracer = TemplateTracer(lines=True)

    results = await run(suites, haproxy_binary, tracer.tracing)

    assert [str(problem) for problem in problems_of(results)] == []
    assert total(measure(tracer)) > 0.9


def test_every_library_has_tests_of_behaviour() -> None:
    for name in ("base", "ssl", "ingress"):
        cases = find_cases(read_library_suites(name))
        assert any(assertion.description for case in cases for assertion in case.test.assertions), name


async def test_the_example_has_thirty_tests_of_a_thousand_ingresses_and_they_pass(haproxy_binary: Path) -> None:
    suite = suite_of(load_config(yaml.safe_load(THOUSAND.read_text()), None))

    results = await run([suite], haproxy_binary)

    assert [str(problem) for problem in problems_of(results)] == []
    assert len(results) >= 30
    assert suite.tests["thousand"].fixtures["ingresses"][0]["repeat"] == 1000
