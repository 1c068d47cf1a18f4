"""Keys that are due later, on a virtual clock."""

import math

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from haptic_trio.workqueue.defer_queue import DeferQueue


class Arrivals:
    """Records keys and the virtual times at which they were released."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, str]] = []

    def __call__(self, key: str) -> None:
        self.seen.append((trio.current_time(), key))


async def test_keys_are_released_in_the_order_of_their_due_times(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    queue, arrivals = DeferQueue[str](), Arrivals()
    nursery.start_soon(queue.process, arrivals)
    for key, until in (("third", 3.0), ("first", 1.0), ("second", 2.25)):
        queue.defer(key, until)
    await trio.sleep(10)
    assert arrivals.seen == [(1.0, "first"), (2.25, "second"), (3.0, "third")]


async def test_a_hundred_thousand_keys_are_released_in_order_and_not_a_millisecond_late(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    queue = DeferQueue[int]()
    seen: list[tuple[float, int]] = []
    # A prime step visits every due time once, in an order far from sorted.
    dues = {number: 1.0 + (number * 7919 % 100_000) // 100 * 0.001 for number in range(100_000)}
    for number, until in dues.items():
        queue.defer(number, until)
    nursery.start_soon(queue.process, lambda key: seen.append((trio.current_time(), key)))
    await trio.sleep(10)
    assert len(seen) == 100_000
    assert all(0 <= at - dues[key] <= 0.001 for at, key in seen)
    assert [dues[key] for _, key in seen] == sorted(dues.values())


async def test_equal_due_times_are_released_in_the_order_of_deferral(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    queue, arrivals = DeferQueue[str](), Arrivals()
    for key in "bca":
        queue.defer(key, 1.0)
    nursery.start_soon(queue.process, arrivals)
    await trio.sleep(2)
    assert [key for _, key in arrivals.seen] == ["b", "c", "a"]


@pytest.mark.parametrize(("first", "second"), [(0.05, 0.07), (0.05, 0.03)])
async def test_of_two_deferrals_of_a_key_the_earlier_one_fires_alone(
    nursery: trio.Nursery, autojump_clock: MockClock, first: float, second: float
) -> None:
    queue, arrivals = DeferQueue[str](), Arrivals()
    nursery.start_soon(queue.process, arrivals)
    queue.defer("key", first)
    await wait_all_tasks_blocked()
    queue.defer("key", second)
    assert len(queue) == 1
    await trio.sleep(1)
    assert arrivals.seen == [(min(first, second), "key")]
    assert len(queue) == 0


async def test_override_replaces_an_earlier_due_time_as_well(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    queue, arrivals = DeferQueue[str](), Arrivals()
    nursery.start_soon(queue.process, arrivals)
    queue.defer("key", 1.0)
    await wait_all_tasks_blocked()
    queue.defer("key", 5.0, override=True)
    assert queue.due("key") == 5.0
    await trio.sleep(10)
    assert arrivals.seen == [(5.0, "key")]


async def test_a_cancelled_deferral_never_fires(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    queue, arrivals = DeferQueue[str](), Arrivals()
    nursery.start_soon(queue.process, arrivals)
    queue.defer("key", 1.0)
    assert queue.cancel("key") is True
    assert queue.cancel("key") is False
    assert queue.due("key") is None
    await trio.sleep(10)
    assert arrivals.seen == []


async def test_a_key_that_is_due_on_arrival_is_released_at_once(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    queue, arrivals = DeferQueue[str](), Arrivals()
    await trio.sleep(5)
    nursery.start_soon(queue.process, arrivals)
    await wait_all_tasks_blocked()
    queue.defer("key", 3.0)
    await wait_all_tasks_blocked()
    assert arrivals.seen == [(5.0, "key")]


async def test_without_deferrals_processing_sleeps_without_a_tick(autojump_clock: MockClock) -> None:
    queue = DeferQueue[str](tick=0.5)
    wake_ups: list[str] = []

    class Steps(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            wake_ups.append(task.name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.process, Arrivals())
        await wait_all_tasks_blocked()
        steps = Steps()
        trio.lowlevel.add_instrument(steps)
        await trio.sleep(3600)
        trio.lowlevel.remove_instrument(steps)
        assert not any("DeferQueue.process" in name for name in wake_ups)
        nursery.cancel_scope.cancel()


async def test_a_second_concurrent_process_is_rejected_and_a_later_one_is_not(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    queue, arrivals = DeferQueue[str](), Arrivals()
    with trio.move_on_after(1):
        async with trio.open_nursery() as first:
            first.start_soon(queue.process, arrivals)
            await wait_all_tasks_blocked()
            with pytest.raises(RuntimeError, match="already"):
                await queue.process(arrivals)
    queue.defer("key", 2.0)
    nursery.start_soon(queue.process, arrivals)
    await trio.sleep(5)
    assert arrivals.seen == [(2.0, "key")]


async def test_cancelled_processing_keeps_what_is_not_due(autojump_clock: MockClock) -> None:
    queue, arrivals = DeferQueue[str](), Arrivals()
    queue.defer("soon", 1.0)
    queue.defer("later", 10.0)
    with trio.move_on_after(2):
        await queue.process(arrivals)
    assert arrivals.seen == [(1.0, "soon")]
    assert list(queue) == [(10.0, "later")]


def test_nan_is_rejected_as_due_time_and_zero_as_tick() -> None:
    with pytest.raises(ValueError, match="NaN"):
        DeferQueue[str]().defer("key", math.nan)
    with pytest.raises(ValueError, match="tick"):
        DeferQueue[str](tick=0.0)


def test_cancelled_and_replaced_entries_do_not_pile_up() -> None:
    queue = DeferQueue[int]()
    for number in range(10_000):
        queue.defer(1, 10_000.0 - number)
        queue.defer(2, 5.0)
        queue.cancel(2)
    assert len(queue) == 1
    assert len(queue._heap) < 100


@settings(max_examples=500)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.integers(0, 9), st.sampled_from(["defer", "override", "cancel", "release"])
        )
    )
)
def test_release_agrees_with_a_plain_table_of_due_times(steps: list[tuple[str, int, str]]) -> None:
    now = 0.0
    queue = DeferQueue[str](clock=lambda: now)
    table: dict[str, float] = {}
    for key, number, verb in steps:
        until = now + number
        if verb == "defer":
            queue.defer(key, until)
            table[key] = min(until, table.get(key, until))
        elif verb == "override":
            queue.defer(key, until, override=True)
            table[key] = until
        elif verb == "cancel":
            assert queue.cancel(key) == (table.pop(key, None) is not None)
        else:
            now += number
            released: list[str] = []
            queue.release(released.append)
            assert sorted(released) == sorted(due for due in table if table[due] <= now)
            assert [table[due] for due in released] == sorted(table[due] for due in released)
            for due in released:
                del table[due]
        assert {due: at for at, due in queue} == table
        assert queue.next_due() == min(table.values(), default=None)
