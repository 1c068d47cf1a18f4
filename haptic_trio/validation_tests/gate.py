"""Gate: a configuration whose own tests fail is rejected.

Asked is what can be said without starting anything that serves: behaviour is
left to `haptic-trio test`.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import trio

from haptic_trio.config.assertions import HaproxyValid
from haptic_trio.config.load import LoadedConfig
from haptic_trio.config.suites import Suite
from haptic_trio.config.yaml.errors import ConfigInvalidError
from haptic_trio.errors import Problem
from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline.validate import target_keywords
from haptic_trio.validation_tests.cases import Case, Examined, examine, find_cases, finish, judged
from haptic_trio.validation_tests.rendering import CaseRenderer
from haptic_trio.validation_tests.results import Checked, problems_of
from haptic_trio.validation_tests.runner import check_with
from haptic_trio.validation_tests.static import Fault
from haptic_trio.yaml.paths import key_path

TIME_LIMIT: Final = 30.0
"""Seconds for all tests of a configuration."""

Load = Callable[[Resource, Resource | None], LoadedConfig]


class GuardedLoad:
    """Loads configurations and runs their tests; a configuration that passed is not tested again."""

    def __init__(self, load: Load, binary: Path, *, scratch: Path | None = None, limit: float = TIME_LIMIT) -> None:
        """*limit* is the time for all tests, in seconds."""
        self._load = load
        self._binary = binary
        self._scratch = scratch
        self._limit = limit
        self._passed = ""

    def __call__(self, config_map: Resource, secret: Resource | None) -> LoadedConfig:
        """Load and test a configuration in a worker thread; raises `ConfigInvalidError`, also for failed tests."""
        loaded = self._load(config_map, secret)
        if loaded.version != self._passed:
            problems = tuple(run_gate(suite_of(loaded), self._binary, scratch=self._scratch, limit=self._limit))
            if problems:
                raise ConfigInvalidError(problems)
            self._passed = loaded.version
        return loaded


def suite_of(loaded: LoadedConfig) -> Suite:
    """Return the tests of the configuration *loaded*."""
    return Suite(name=loaded.config_map_source, config=loaded.config, layers=loaded.layers)


def run_gate(
    suite: Suite, binary: Path | None, *, scratch: Path | None = None, limit: float = TIME_LIMIT
) -> Iterator[Problem]:
    """Run the tests of *suite* that send no requests, and yield failures. Call it in a worker thread of Trio.

    Without a *binary*, checks by HAProxy are skipped. Tests that exceed *limit*
    seconds in total are a problem.
    """
    cases = find_cases([suite])
    if not cases:
        return
    deadline = time.monotonic() + limit
    answers: dict[str, Fault | None] = {}
    keywords = target_keywords(binary) if binary is not None else None
    renderer = CaseRenderer(suite.config, keywords=keywords, own=suite.own_templates)
    for number, case in enumerate(cases):
        # The end of an iteration waits for this thread.
        trio.from_thread.check_cancelled()
        if time.monotonic() > deadline:
            yield _too_slow(suite, case, number, limit)
            return
        examined = examine(case, renderer)
        more = list(_ask_haproxy(examined, binary, scratch, answers)) if binary is not None else []
        yield from problems_of([finish(examined, more, 0.0)])


def _ask_haproxy(
    examined: Examined, binary: Path, scratch: Path | None, answers: dict[str, Fault | None]
) -> Iterator[Checked]:
    rendered = examined.rendered
    for index, assertion in examined.open:
        if not isinstance(assertion, HaproxyValid) or rendered is None or rendered.rendering.generation is None:
            continue
        generation = rendered.rendering.generation
        if generation.id not in answers:
            limit = examined.case.suite.config.validation.check_timeout
            ask = partial(check_with, binary, generation, rendered, limit=limit, scratch=scratch)
            answers[generation.id] = trio.from_thread.run(ask)
        yield judged(examined.case, index, answers[generation.id], 0.0)


def _too_slow(suite: Suite, case: Case, number: int, limit: float) -> Problem:
    return suite.locate(
        Problem(
            message=f"the tests take longer than {limit:g} s; {number} tests ran, this one did not",
            path=key_path("validationTests", case.name),
            hint="keep the slow ones in a file for `haptic-trio test --tests FILE`",
        )
    )
