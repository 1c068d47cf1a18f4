from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from haptic_trio.config.load import LoadedConfig, load_config
from haptic_trio.config.yaml.errors import ConfigInvalidError
from haptic_trio.errors import Problem
from haptic_trio.k8s.resource import Resource
from haptic_trio.validation_tests.gate import GuardedLoad, run_gate, suite_of
from tests.validation_tests.builders import SITES, config_map, load

GOOD = "good: {assertions: [{type: contains, text: maxconn 100}, {type: haproxy_valid}]}\n"
BAD = """\
bad:
  description: What must hold.
  assertions:
    - type: contains
      text: maxconn 100
    - type: contains
      text: maxconn 200
"""

pytestmark = pytest.mark.haproxy


async def in_thread(load: Callable[..., Any], *arguments: Any) -> Any:
    with trio.fail_after(30):
        return await trio.to_thread.run_sync(load, *arguments)


async def test_a_configuration_whose_tests_pass_is_loaded(haproxy_binary: Path) -> None:
    loaded = await in_thread(GuardedLoad(load_config, haproxy_binary), config_map(GOOD), None)

    assert loaded == load_config(config_map(GOOD), None)


async def test_a_configuration_whose_tests_fail_is_rejected_with_their_places(haproxy_binary: Path) -> None:
    given = config_map(GOOD + BAD)
    with pytest.raises(ConfigInvalidError) as rejected:
        await in_thread(GuardedLoad(load_config, haproxy_binary), given, None)

    (problem,) = rejected.value.problems
    assert "the test 'bad' (What must hold) fails: haproxy.cfg contains 'maxconn 200'" in problem.message
    assert problem.source == "ConfigMap default/haptic-trio"
    lines = given["data"]["config"].splitlines()
    assert lines[problem.line - 1 : problem.line + 1] == ["      - type: contains", "        text: maxconn 200"]
    assert problem.hint == ""


async def test_what_haproxy_rejects_is_rejected(haproxy_binary: Path) -> None:
    base = SITES.replace("bind *:8080", "bind *:8080\n        http-request deny if { path_reg (( }")
    with pytest.raises(ConfigInvalidError, match=r"haproxy -c: haproxy\.cfg:"):
        await in_thread(GuardedLoad(load_config, haproxy_binary), config_map(GOOD, base=base), None)


async def test_behaviour_is_not_checked(haproxy_binary: Path) -> None:
    tests = "wrong: {assertions: [{type: behaviour, request: {host: x}, expect: {status: 999}}]}\n".replace(
        "999", "204"
    )

    await in_thread(GuardedLoad(load_config, haproxy_binary), config_map(tests), None)


async def test_what_has_passed_is_not_tested_again(haproxy_binary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []

    def count(suite: Any, *_: Any, **__: Any) -> list[Problem]:
        runs.append(suite.name)
        return []

    monkeypatch.setattr("haptic_trio.validation_tests.gate.run_gate", count)
    guarded = GuardedLoad(load_config, haproxy_binary)
    for version in ("1", "1", "2", "2"):
        await in_thread(guarded, config_map(GOOD, version=version), None)

    assert len(runs) == 2


async def test_tests_that_take_too_long_are_a_problem(haproxy_binary: Path) -> None:
    suite = suite_of(load(GOOD))
    problems = await in_thread(lambda: list(run_gate(suite, haproxy_binary, limit=-1)))

    assert "the tests take longer than -1 s" in problems[0].message
    assert "--tests FILE" in problems[0].hint


async def test_a_load_that_is_cancelled_ends(haproxy_binary: Path) -> None:
    entered = trio.Event()

    def load_slowly(config: Resource, secret: Resource | None) -> LoadedConfig:
        trio.from_thread.run_sync(entered.set)
        return load_config(config, secret)

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(in_thread, GuardedLoad(load_slowly, haproxy_binary), config_map(GOOD), None)
            await entered.wait()
            nursery.cancel_scope.cancel()


async def test_without_haproxy_everything_else_is_still_tested() -> None:
    suite = suite_of(load(GOOD + BAD))
    problems = await in_thread(lambda: list(run_gate(suite, None)))

    assert len(problems) == 1
