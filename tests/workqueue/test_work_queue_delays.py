"""Delays, retries and their limits in one queue, on a virtual clock."""

import math

import pytest
import trio
from trio.testing import MockClock

from haptic_trio.workqueue.limiter import ExponentialLimiter
from haptic_trio.workqueue.work_queue import WorkQueue


async def test_a_delayed_key_becomes_ready_when_it_is_due(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    queue = WorkQueue[str]()
    await nursery.start(queue.run)
    queue.add_after("foo", 0.05)
    assert len(queue) == 0
    async with queue.item() as key:
        assert (key, trio.current_time()) == ("foo", 0.05)


@pytest.mark.parametrize("delay", [0.0, -1.0])
def test_no_delay_is_a_plain_add(delay: float) -> None:
    queue = WorkQueue[str](clock=lambda: 0.0)
    queue.add_after("foo", delay)
    assert len(queue) == 1


@pytest.mark.parametrize("delay", [math.nan, math.inf, -math.inf])
def test_a_delay_that_is_not_a_number_is_rejected(delay: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        WorkQueue[str](clock=lambda: 0.0).add_after("foo", delay)


@pytest.mark.parametrize("second", [0.07, 0.03])
async def test_two_delays_of_a_key_give_one_run_at_the_earlier(
    nursery: trio.Nursery, autojump_clock: MockClock, second: float
) -> None:
    queue = WorkQueue[str]()
    await nursery.start(queue.run)
    queue.add_after("foo", 0.05)
    queue.add_after("foo", second)
    queue.done(await queue.get())
    assert trio.current_time() == min(0.05, second)
    await trio.sleep(1)
    assert len(queue) == 0


async def test_a_later_key_does_not_hold_back_an_earlier_one(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    queue = WorkQueue[str]()
    await nursery.start(queue.run)
    queue.add_after("foo", 1.0)
    queue.add_after("bar", 0.05)
    assert (await queue.get(), trio.current_time()) == ("bar", 0.05)
    assert (await queue.get(), trio.current_time()) == ("foo", 1.0)


async def test_an_add_of_a_deferred_key_runs_now_and_again_when_it_is_due(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    queue = WorkQueue[str]()
    await nursery.start(queue.run)
    queue.add_after("foo", 5.0)
    queue.add("foo")
    for expected in (0.0, 5.0):
        async with queue.item():
            assert trio.current_time() == expected


async def test_collapsed_an_add_takes_the_place_of_the_deferral(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    queue = WorkQueue[str](collapse_deferred=True)
    await nursery.start(queue.run)
    queue.add_after("foo", 5.0)
    queue.add("foo")
    queue.add_after("foo", 7.0)
    assert queue.snapshot().deferred == ()
    queue.done(await queue.get())
    await trio.sleep(10)
    assert len(queue) == 0


def test_collapsed_a_key_in_hand_can_be_deferred_until_it_is_dirty() -> None:
    queue = WorkQueue[str](collapse_deferred=True, clock=lambda: 0.0)
    queue.add("foo")
    queue.get_nowait()
    queue.add_after("foo", 5.0)
    assert len(queue.snapshot().deferred) == 1
    queue.add_after("foo", 0.0)
    assert queue.snapshot().processing[0].is_dirty
    queue.add_after("foo", 5.0)
    assert queue.snapshot().deferred == ()


def test_override_moves_a_deferral_either_way() -> None:
    queue = WorkQueue[str](clock=lambda: 0.0)
    for delay in (5.0, 9.0, 2.0):
        queue.add_after("foo", delay, override=True)
        assert [item.due_in for item in queue.snapshot().deferred] == [delay]
    queue.add_after("foo", 0.0, override=True)
    assert queue.snapshot().deferred == ()
    assert len(queue) == 1


@pytest.mark.parametrize(("first", "second", "expected"), [(-5, 0, 0), (0, -5, 0), (3, 1, 3), (1, 3, 3), (-5, -2, -2)])
async def test_a_deferred_key_keeps_the_highest_priority_it_was_given(
    autojump_clock: MockClock, first: int, second: int, expected: int
) -> None:
    queue = WorkQueue[str]()
    queue.add_after("foo", 1.0, priority=first)
    queue.add_after("foo", 2.0, priority=second)
    await trio.sleep(3)
    assert queue.release_due() == 1
    assert queue.snapshot().ready[0].priority == expected


async def test_failures_delay_a_key_longer_each_time_until_it_is_forgotten(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    queue = WorkQueue[str](limiter=ExponentialLimiter(1.0, 60.0))
    await nursery.start(queue.run)
    times = []
    for _ in range(4):
        queue.add_rate_limited("foo")
        queue.done(await queue.get())
        times.append(trio.current_time())
    assert times == [1.0, 3.0, 7.0, 15.0]
    assert queue.retries("foo") == 4
    queue.forget("foo")
    assert queue.retries("foo") == 0
    queue.add_rate_limited("foo")
    await queue.get()
    assert trio.current_time() == 16.0


async def test_forget_cancels_no_deferral(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    queue = WorkQueue[str]()
    await nursery.start(queue.run)
    queue.add_after("foo", 2.0)
    queue.forget("foo")
    assert await queue.get() == "foo"


async def test_run_ends_at_shutdown_and_rejects_to_run_twice(autojump_clock: MockClock) -> None:
    queue = WorkQueue[str]()
    async with trio.open_nursery() as nursery:
        await nursery.start(queue.run)
        with pytest.raises(RuntimeError, match="already"):
            await queue.run()
        queue.shutdown()
    with trio.fail_after(1):
        await queue.run()


async def test_run_cancelled_leaves_keys_deferred(autojump_clock: MockClock) -> None:
    queue = WorkQueue[str]()
    queue.add_after("foo", 5.0)
    with trio.move_on_after(1):
        await queue.run()
    await trio.sleep(10)
    assert len(queue) == 0
    assert len(queue.snapshot().deferred) == 1
