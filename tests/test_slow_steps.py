"""A task that keeps the event loop busy is named, with its place."""

import time
from functools import partial

import pytest
import trio
from structlog.testing import capture_logs

from haptic_trio import slow_steps
from haptic_trio.channels import Latest
from haptic_trio.messages import LeadershipChanged
from haptic_trio.slow_steps import LIMIT, SlowStep, SlowSteps, log_slow_steps
from haptic_trio.terms import run_terms

BUSY = LIMIT + 0.05


def keep_busy() -> None:
    end = time.thread_time() + BUSY
    while time.thread_time() < end:
        pass


async def lead() -> None:
    keep_busy()
    await trio.sleep_forever()


async def notify(_state: LeadershipChanged) -> None:
    keep_busy()


async def run_for_a_moment(*, busy: bool) -> None:
    leadership = Latest[LeadershipChanged]()
    leadership.put(LeadershipChanged(is_leader=False, identity="me", transitions=1, term=1))
    async with trio.open_nursery() as nursery:
        terms = partial(run_terms, leadership, lead, notify=notify) if busy else partial(run_terms, leadership, lead)
        nursery.start_soon(terms)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


def test_slow_step_is_reported_with_task_and_place() -> None:
    found: list[SlowStep] = []
    with pytest.warns(UserWarning, match=r"slow step of terms\.run_terms before channels:\d+ wait_newer"):
        trio.run(partial(run_for_a_moment, busy=True), instruments=[SlowSteps(found.append)])

    [step] = found
    assert step.task == "terms.run_terms"
    assert step.place.endswith(" wait_newer")
    assert step.seconds >= BUSY


def test_short_steps_and_other_packages_are_not_reported() -> None:
    found: list[SlowStep] = []
    trio.run(partial(run_for_a_moment, busy=False), instruments=[SlowSteps(found.append)])
    trio.run(lead_outside, instruments=[SlowSteps(found.append)])

    assert found == []


async def lead_outside() -> None:
    with trio.move_on_after(0):
        await lead()


def test_waiting_threads_and_sleeps_are_not_slow_steps() -> None:
    found: list[SlowStep] = []

    async def wait() -> None:
        await trio.to_thread.run_sync(keep_busy)

    trio.run(wait, instruments=[SlowSteps(found.append, prefix="trio.")])

    assert found == []


@pytest.mark.parametrize(("freeze", "level"), [(100.0, "debug"), (LIMIT, "warning")])
def test_slow_step_is_logged_by_its_length(monkeypatch: pytest.MonkeyPatch, freeze: float, level: str) -> None:
    monkeypatch.setattr(slow_steps, "FREEZE", freeze)
    with capture_logs() as logs, pytest.warns(UserWarning, match="slow step"):
        trio.run(partial(run_for_a_moment, busy=True), instruments=[log_slow_steps()])

    [entry] = [entry for entry in logs if entry["event"] == "a task kept the event loop busy"]
    assert (entry["task"], entry["log_level"]) == ("terms.run_terms", level)
    assert entry["seconds"] >= LIMIT
