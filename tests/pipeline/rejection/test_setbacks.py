"""A tenant who makes HAProxy crash again and again waits longer each time, and others do not wait at all."""

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from haptic_trio.channels import AttemptDue, Change
from haptic_trio.errors import Problem
from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.pipeline.rejection.crash_search import MOST_OF_GROUP
from haptic_trio.pipeline.rejection.errors import RejectedError
from haptic_trio.pipeline.rejection.setbacks import (
    FIRST_HOLD,
    GOOD_PERIOD,
    LONGEST_HOLD,
    NAMESPACE_FINDINGS,
    NAMESPACE_REJECTIONS,
    OBJECT_REJECTIONS,
    Setbacks,
    run_attempts,
)
from haptic_trio.templating.values.subjects import FragmentKey
from tests.pipeline.rejection.test_crashes import CRASH, TEMPLATE, Checks, backends, web
from tests.support.components.pipeline import Bench

PROBLEM = Problem(message="HAProxy crashes on it (SIGSEGV)")
A = ResourceRef("Service", "evil", "a")
# HAProxy ends at the first `.alert`, so that each check names one object.
REJECTED = TEMPLATE.replace(CRASH, ".if 1\n.alert no\n.endif\n")
KEY_OF_A = FragmentKey("web", "Service", "evil", "a")


@pytest.fixture
def bench(haproxy_binary: Path, mock_clock: MockClock) -> Bench:
    """A pipeline with the real HAProxy, in which something is served already."""
    bench = Bench(haproxy_binary, TEMPLATE)
    bench.put(*(web(f"victim/n{number}") for number in range(5)))
    return bench


@pytest.fixture
def rejecting(haproxy_binary: Path, mock_clock: MockClock) -> Bench:
    """A pipeline as `bench`, where HAProxy rejects one by one the objects on which it crashes there."""
    bench = Bench(haproxy_binary, REJECTED)
    bench.put(*(web(f"victim/n{number}") for number in range(5)))
    return bench


class Attacker:
    """Writes a crashing Service before each check, in its own namespace."""

    def __init__(self, bench: Bench, *, new_names: bool) -> None:
        self._bench = bench
        self._new_names = new_names
        self._number = 0
        self.checks = 0
        self._check = bench.validator.check
        bench.validator.check = self.check  # type: ignore[method-assign]

    def attack(self) -> None:
        """Replace the object by another one on which HAProxy crashes."""
        former, self._number = self._number, self._number + 1
        if self._new_names:
            if former:
                self._bench.services.delete(ResourceRef("Service", "evil", f"n{former}"))
            self._bench.put(web(f"evil/n{self._number}", crashes=True, version=str(self._number)))
        else:
            # Another output each time.
            balance, version = f"hdr(x{self._number})", str(self._number)
            self._bench.put(web("evil/same", crashes=True, balance=balance, version=version))

    async def check(self, *args: Any, **more: Any) -> tuple[Problem, ...]:
        self.checks += 1
        self.attack()
        return await self._check(*args, **more)


async def try_run(bench: Bench) -> str | None:
    try:
        return (await bench.run()).generation.text
    except RejectedError:
        return None


@pytest.mark.haproxy
@pytest.mark.parametrize("new_names", [True, False])
async def test_who_recreates_a_crashing_object_again_and_again_does_not_hold_up_others(
    bench: Bench, new_names: bool, mock_clock: MockClock
) -> None:
    await bench.run()
    attacker = Attacker(bench, new_names=new_names)
    attacker.attack()
    served = []
    for number in range(12):
        attacker.checks = 0
        bench.put(web(f"victim/new{number}"))
        text = None
        while text is None:
            assert attacker.checks < 40
            text = await try_run(bench)
        assert f"victim_new{number}" in backends(text)
        assert not any(name.startswith("evil") for name in backends(text))
        served.append(attacker.checks)
        mock_clock.jump(5.0)

    # During a hold of the namespace or the object, one check is enough.
    assert served[1:] == [1] * 11
    [held] = bench.quarantine.objects
    assert "new versions are held back until" in held.problem.message
    assert "HAProxy crashes on it (SIGSEGV)" in held.problem.message
    assert "the next attempt follows automatically at that time" in held.problem.hint


@pytest.mark.haproxy
@pytest.mark.parametrize("new_names", [True, False])
async def test_who_writes_rejected_objects_again_and_again_does_not_hold_up_others(
    rejecting: Bench, new_names: bool
) -> None:
    await rejecting.run()
    attacker = Attacker(rejecting, new_names=new_names)
    attacker.attack()
    served = []
    for number in range(3):
        attacker.checks = 0
        rejecting.put(web(f"victim/new{number}"))
        text = (await rejecting.run()).generation.text
        assert f"victim_new{number}" in backends(text)
        assert not any(name.startswith("evil") for name in backends(text))
        served.append(attacker.checks)

    assert served == [(NAMESPACE_REJECTIONS if new_names else OBJECT_REJECTIONS) + 1, 1, 1]
    [held] = rejecting.quarantine.objects
    assert "new versions are held back until" in held.problem.message


@pytest.mark.haproxy
async def test_very_many_objects_that_are_rejected_one_by_one_cost_others_a_few_checks(
    rejecting: Bench, mock_clock: MockClock
) -> None:
    await rejecting.run()
    checks = Checks(rejecting)
    rejecting.put(*(web(f"evil/n{number}", crashes=True) for number in range(60)), web("evil/good"), web("victim/new"))

    text = (await rejecting.run()).generation.text
    assert checks.count == NAMESPACE_REJECTIONS + 1
    assert "victim_new" in backends(text)
    assert not any(name.startswith("evil") for name in backends(text))

    # Those that are corrected by then are served when the hold ends.
    rejecting.put(*(web(f"evil/n{number}", version="2") for number in range(60)))
    mock_clock.jump(FIRST_HOLD)
    text = (await rejecting.run()).generation.text
    assert {name for name in backends(text) if name.startswith("evil")} == {
        "evil_good",
        *(f"evil_n{number}" for number in range(60)),
    }
    assert rejecting.quarantine.objects == ()


@pytest.mark.haproxy
async def test_a_namespace_with_a_few_rejected_objects_has_its_others_served_at_once(rejecting: Bench) -> None:
    rejecting.put(*(web(f"shop/n{number}", crashes=number < NAMESPACE_REJECTIONS - 1) for number in range(20)))

    text = (await rejecting.run()).generation.text
    assert sum(name.startswith("shop") for name in backends(text)) == 20 - (NAMESPACE_REJECTIONS - 1)


@pytest.mark.haproxy
async def test_what_was_good_stays_while_new_versions_are_held_back_and_a_corrected_one_is_served_then(
    bench: Bench, mock_clock: MockClock
) -> None:
    bench.put(web("evil/a"), web("evil/other"))
    await bench.run()
    for version in "23":
        bench.put(web("evil/a", crashes=True, balance="source" if version == "2" else "leastconn", version=version))
        await bench.run()
    [held] = bench.quarantine.objects
    assert "HAProxy crashes on it" in held.problem.message

    bench.put(web("evil/a", balance="random", version="4"), web("evil/other", balance="source", version="4"))
    checks = Checks(bench)
    text = (await bench.run()).generation.text

    assert checks.count == 1
    assert "random" not in text
    assert "balance source" in text.replace("'", "")
    assert "evil_a" in backends(text)
    [held] = bench.quarantine.objects
    assert held.has_fallback
    assert "held back until" in held.problem.message

    mock_clock.jump(FIRST_HOLD)
    assert "random" in (await bench.run()).generation.text
    assert bench.quarantine.objects == ()


def test_the_time_doubles_up_to_a_bound_and_is_forgotten_after_a_good_period() -> None:
    setbacks, now, holds = Setbacks(), 0.0, []
    for _ in range(9):
        setbacks.record({A: PROBLEM}, now)
        end = setbacks.next_end(now)
        holds.append(0.0 if end is None else end - now)
        now = now + holds[-1] + 1
    assert holds[:6] == [0, 60, 120, 240, 480, 960]
    assert set(holds[6:]) == {LONGEST_HOLD}

    setbacks.record({A: PROBLEM}, now + GOOD_PERIOD + LONGEST_HOLD)
    assert not setbacks.paused(now + GOOD_PERIOD + LONGEST_HOLD)


def test_findings_of_one_search_count_once_for_their_namespace() -> None:
    setbacks = Setbacks()
    found = {ResourceRef("Service", "evil", f"n{number}"): PROBLEM for number in range(MOST_OF_GROUP)}
    setbacks.record(found, 0.0)
    assert not setbacks.paused(0.0)
    for number in range(1, NAMESPACE_FINDINGS):
        setbacks.record({ResourceRef("Service", "evil", f"other{number}"): PROBLEM}, 0.0)
    assert setbacks.paused(0.0).problem_of(KEY_OF_A) is not None
    assert not setbacks.paused(FIRST_HOLD)


def test_an_object_that_is_found_again_and_again_holds_back_no_other_of_its_namespace() -> None:
    setbacks = Setbacks()
    for _ in range(9):
        setbacks.record({A: PROBLEM}, 0.0)
    paused = setbacks.paused(0.0)
    assert paused.problem_of(KEY_OF_A) is not None
    assert paused.problem_of(FragmentKey("web", "Service", "evil", "b")) is None


def test_another_configuration_begins_without_a_hold() -> None:
    setbacks = Setbacks()
    setbacks.record({A: PROBLEM}, 0.0)
    setbacks.record({A: PROBLEM}, 1.0)
    assert setbacks.paused(2.0)
    setbacks = setbacks.released()
    assert not setbacks.paused(2.0)
    setbacks.record({A: PROBLEM}, 3.0)
    assert setbacks.next_end(3.0) == 3.0 + 2 * FIRST_HOLD


async def test_the_end_of_a_hold_triggers_the_next_attempt(autojump_clock: MockClock) -> None:
    setbacks = Setbacks()
    send, receive = trio.open_memory_channel[Change](0)
    async with trio.open_nursery() as nursery:
        await nursery.start(run_attempts, setbacks, send)
        began = trio.current_time()
        setbacks.record({A: PROBLEM}, began)
        setbacks.record({A: PROBLEM}, began)
        assert await receive.receive() == AttemptDue()
        assert trio.current_time() == pytest.approx(began + FIRST_HOLD)
        setbacks.record({A: PROBLEM}, trio.current_time())
        assert await receive.receive() == AttemptDue()
        assert trio.current_time() == pytest.approx(began + FIRST_HOLD + 2 * FIRST_HOLD)
        nursery.cancel_scope.cancel()
