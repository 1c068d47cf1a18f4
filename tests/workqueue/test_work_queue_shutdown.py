"""A queue shuts down with or without a drain, and accepts nothing afterwards; on a virtual clock."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from haptic_trio.workqueue.work_queue import QueueShutdown, WorkQueue


async def test_drain_waits_until_every_key_is_done(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    queue = WorkQueue[str]()
    for key in ("foo", "bar"):
        queue.add(key)
        await queue.get()
    queue.shutdown(drain=True)
    for key in ("foo", "bar"):
        with trio.move_on_after(1) as impatient:
            await queue.wait_drained()
        assert impatient.cancelled_caught
        queue.done(key)
    with trio.fail_after(1):
        await queue.wait_drained()


async def test_a_plain_shutdown_waits_for_nothing() -> None:
    queue = WorkQueue[str]()
    queue.add("in hand")
    await queue.get()
    queue.add("ready")
    queue.shutdown()
    assert queue.is_shut_down
    with pytest.raises(QueueShutdown):
        await queue.get()
    assert len(queue) == 1


async def test_a_second_shutdown_without_drain_ends_the_drain(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    queue = WorkQueue[str]()
    for key in ("in hand", "ready"):
        queue.add(key)
    await queue.get()
    queue.shutdown(drain=True)
    ended: list[str] = []

    async def wait() -> None:
        with pytest.raises(QueueShutdown):
            await queue.wait_drained()
        ended.append("drain")

    nursery.start_soon(wait)
    await wait_all_tasks_blocked()
    assert ended == []
    queue.shutdown()
    await wait_all_tasks_blocked()
    assert ended == ["drain"]
    queue.shutdown(drain=True)
    with pytest.raises(QueueShutdown):
        queue.get_nowait()


async def test_a_dirty_key_is_run_again_before_the_drain_ends(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    queue = WorkQueue[str]()
    queue.add("foo")
    await queue.get()
    queue.add("foo")
    queue.shutdown(drain=True)
    drained = trio.Event()

    async def wait() -> None:
        await queue.wait_drained()
        drained.set()

    nursery.start_soon(wait)
    queue.done("foo")
    await wait_all_tasks_blocked()
    assert not drained.is_set()
    queue.done(await queue.get())
    await wait_all_tasks_blocked()
    assert drained.is_set()
    with pytest.raises(QueueShutdown):
        await queue.get()


async def test_draining_hands_out_what_is_ready_and_dirty_and_then_ends_every_waiting_get(
    autojump_clock: MockClock,
) -> None:
    queue = WorkQueue[str]()
    for key in "abc":
        queue.add(key)
    seen: list[str] = []

    async def work() -> None:
        while True:
            try:
                async with queue.item() as key:
                    seen.append(key)
                    await trio.sleep(1)
            except QueueShutdown:
                return

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(work)
        await trio.sleep(0.5)
        queue.add("b")
        queue.shutdown(drain=True)
    assert sorted(seen) == ["a", "b", "b", "c"]


@pytest.mark.parametrize("drain", [True, False])
async def test_after_shutdown_nothing_is_accepted_and_deferrals_are_gone(
    nursery: trio.Nursery, autojump_clock: MockClock, drain: bool
) -> None:
    queue = WorkQueue[str]()
    await nursery.start(queue.run)
    queue.add_after("deferred", 1.0)
    queue.shutdown(drain=drain)
    queue.add("a")
    queue.add_after("b", 1.0)
    queue.add_rate_limited("c")
    await trio.sleep(5)
    snapshot = queue.snapshot()
    assert (snapshot.ready, snapshot.deferred, queue.retries("c")) == ((), (), 0)
    with pytest.raises(QueueShutdown):
        await queue.get()


@pytest.mark.parametrize("drain", [True, False])
async def test_every_waiting_get_ends_at_shutdown(drain: bool) -> None:
    queue = WorkQueue[str]()
    ended = 0

    async def wait() -> None:
        nonlocal ended
        with pytest.raises(QueueShutdown):
            await queue.get()
        ended += 1

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(wait)
            await wait_all_tasks_blocked()
            queue.shutdown(drain=drain)
    assert ended == 3
