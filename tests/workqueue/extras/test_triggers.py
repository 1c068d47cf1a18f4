"""Waits that make a key run once they return."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from haptic_trio.workqueue.extras.triggers import Triggers
from haptic_trio.workqueue.limiter import ExponentialLimiter


class Stage:
    """Triggers at work, and what they fired."""

    def __init__(self) -> None:
        self.triggers = Triggers[str](ExponentialLimiter(1.0, 60.0))
        self.fired: list[tuple[str, float]] = []
        self.errors: list[str] = []

    async def run(self) -> None:
        await self.triggers.run(
            lambda key, delay: self.fired.append((key, delay)),
            on_error=lambda key, error: self.errors.append(f"{key}: {error}"),
        )


async def test_a_trigger_fires_once_and_is_then_disarmed(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    stage = Stage()
    nursery.start_soon(stage.run)
    ready = trio.Event()
    stage.triggers.add("a", ready.wait)
    await wait_all_tasks_blocked()
    assert stage.fired == []
    assert "a" in stage.triggers
    ready.set()
    await wait_all_tasks_blocked()
    assert stage.fired == [("a", 0.0)]
    assert "a" not in stage.triggers
    assert stage.triggers.remove("a") is False


async def test_a_trigger_can_be_added_before_run(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    stage = Stage()
    stage.triggers.add("a", trio.lowlevel.checkpoint)
    nursery.start_soon(stage.run)
    await wait_all_tasks_blocked()
    assert stage.fired == [("a", 0.0)]


@pytest.mark.parametrize("removes", [False, True])
@pytest.mark.parametrize("is_running", [False, True])
async def test_a_trigger_that_is_replaced_before_it_starts_is_started_once(
    nursery: trio.Nursery, autojump_clock: MockClock, removes: bool, is_running: bool
) -> None:
    stage = Stage()
    if is_running:
        nursery.start_soon(stage.run)
        await wait_all_tasks_blocked()
    ready = trio.Event()
    stage.triggers.add("a", trio.sleep_forever)
    if removes:
        stage.triggers.remove("a")
    stage.triggers.add("a", ready.wait)
    if not is_running:
        nursery.start_soon(stage.run)
    await wait_all_tasks_blocked()
    assert (stage.fired, stage.errors) == ([], [])
    ready.set()
    await wait_all_tasks_blocked()
    assert (stage.fired, stage.errors) == ([("a", 0.0)], [])


async def test_a_replaced_trigger_fires_no_more(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    stage = Stage()
    nursery.start_soon(stage.run)
    first, second = trio.Event(), trio.Event()
    stage.triggers.add("a", first.wait)
    await wait_all_tasks_blocked()
    # The first has returned, but its task has not run on.
    first.set()
    stage.triggers.add("a", second.wait)
    await wait_all_tasks_blocked()
    assert stage.fired == []
    second.set()
    await wait_all_tasks_blocked()
    assert stage.fired == [("a", 0.0)]


async def test_a_removed_trigger_fires_no_more_even_if_its_wait_has_just_returned(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    stage = Stage()
    nursery.start_soon(stage.run)
    ready = trio.Event()
    stage.triggers.add("a", ready.wait)
    await wait_all_tasks_blocked()
    ready.set()
    assert stage.triggers.remove("a") is True
    await wait_all_tasks_blocked()
    assert stage.fired == []


async def test_a_trigger_removed_before_its_task_began_is_never_called(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    stage = Stage()
    nursery.start_soon(stage.run)
    await wait_all_tasks_blocked()
    calls: list[str] = []

    async def wait() -> None:
        await trio.lowlevel.checkpoint()
        calls.append("called")

    stage.triggers.add("a", wait)
    stage.triggers.remove("a")
    await wait_all_tasks_blocked()
    assert calls == []


async def test_failing_triggers_back_off_on_their_own_until_one_returns(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    stage = Stage()
    nursery.start_soon(stage.run)

    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise OSError("no")

    for _ in range(3):
        stage.triggers.add("a", fail)
        await wait_all_tasks_blocked()
    stage.triggers.add("a", trio.lowlevel.checkpoint)
    await wait_all_tasks_blocked()
    stage.triggers.add("a", fail)
    await wait_all_tasks_blocked()
    assert stage.fired == [("a", 1.0), ("a", 2.0), ("a", 4.0), ("a", 0.0), ("a", 1.0)]
    assert stage.errors == ["a: no"] * 4


async def test_a_trigger_that_fails_while_it_is_removed_neither_fires_nor_harms_the_others(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    stage = Stage()
    nursery.start_soon(stage.run)

    async def fail_late() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise OSError("cleanup")

    other = trio.Event()
    stage.triggers.add("a", fail_late)
    stage.triggers.add("b", other.wait)
    await wait_all_tasks_blocked()
    stage.triggers.remove("a")
    await wait_all_tasks_blocked()
    other.set()
    await wait_all_tasks_blocked()
    assert stage.fired == [("b", 0.0)]
    assert stage.errors == ["a: cleanup"]


async def test_cancelled_run_fires_nothing(autojump_clock: MockClock) -> None:
    stage = Stage()
    ready = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stage.run)
        stage.triggers.add("a", ready.wait)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert stage.fired == []
