"""A queue gives each key to one worker at a time, in the order of priority and arrival; on a virtual clock."""

import gc
import weakref

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from haptic_trio.workqueue.limiter import ExponentialLimiter
from haptic_trio.workqueue.work_queue import NotProcessing, QueueShutdown, WorkQueue


def take_all(queue: WorkQueue[str]) -> list[str]:
    """Take and finish all ready keys."""
    keys = []
    while len(queue):
        keys.append(queue.get_nowait())
        queue.done(keys[-1])
    return keys


async def test_many_producers_and_consumers_hand_over_everything_and_never_one_key_twice_at_once(
    autojump_clock: MockClock,
) -> None:
    queue = WorkQueue[str]()
    in_hand: set[str] = set()
    seen: set[str] = set()

    async def produce(number: int) -> None:
        for _ in range(50):
            queue.add(f"key-{number}")
            await trio.sleep(0.001)

    async def consume() -> None:
        while True:
            try:
                key = await queue.get()
            except QueueShutdown:
                return
            assert key not in in_hand
            in_hand.add(key)
            await trio.sleep(0.003)
            seen.add(key)
            in_hand.remove(key)
            queue.done(key)

    async with trio.open_nursery() as consumers:
        for _ in range(10):
            consumers.start_soon(consume)
        async with trio.open_nursery() as producers:
            for number in range(50):
                producers.start_soon(produce, number)
        queue.shutdown(drain=True)
        queue.add("too late")
    assert seen == {f"key-{number}" for number in range(50)}


async def test_a_key_added_while_processing_is_ready_again_only_after_done_and_only_once() -> None:
    queue = WorkQueue[str]()
    queue.add("foo")
    assert await queue.get() == "foo"
    queue.add("foo")
    queue.add("foo")
    assert len(queue) == 0
    queue.done("foo")
    assert len(queue) == 1
    assert await queue.get() == "foo"
    queue.done("foo")
    assert len(queue) == 0


def test_len_counts_ready_keys_once() -> None:
    queue = WorkQueue[str](clock=lambda: 0.0)
    queue.add("foo")
    assert len(queue) == 1
    queue.add("bar")
    assert len(queue) == 2
    queue.add("foo")
    assert len(queue) == 2


async def test_a_key_readded_while_processing_goes_to_the_tail() -> None:
    queue = WorkQueue[str]()
    for key in ("a", "b"):
        queue.add(key)
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("c")
    queue.done("a")
    assert take_all(queue) == ["b", "c", "a"]


def test_repeated_adds_collapse_into_one_and_keep_the_first_place() -> None:
    queue = WorkQueue[str](clock=lambda: 0.0)
    for key in ("bar", "foo", "bar", "bar"):
        queue.add(key)
    assert take_all(queue) == ["bar", "foo"]


async def test_a_second_worker_waits_for_done_and_gets_exactly_one_rerun(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    queue = WorkQueue[str]()
    queue.add("bar")
    assert await queue.get() == "bar"
    runs: list[float] = []

    async def second_worker() -> None:
        while True:
            async with queue.item():
                runs.append(trio.current_time())

    nursery.start_soon(second_worker)
    for _ in range(3):
        queue.add("bar")
    await trio.sleep(1)
    assert runs == []
    queue.done("bar")
    await wait_all_tasks_blocked()
    assert runs == [1.0]


def test_keys_are_distinguished_by_value_not_by_identity() -> None:
    queue = WorkQueue[tuple[str, str]](clock=lambda: 0.0)
    queue.add(("ns", str(b"name", "ascii")))
    queue.add(("ns", "name"))
    assert len(queue) == 1


def test_done_for_a_key_that_is_not_processing_is_an_error_and_changes_nothing() -> None:
    queue = WorkQueue[str](clock=lambda: 0.0)
    queue.add("a")
    for key in ("a", "unknown"):
        with pytest.raises(NotProcessing, match=key):
            queue.done(key)
    assert len(queue) == 1
    with pytest.raises(NotProcessing):
        queue.priority("a")


def test_get_nowait_would_block_on_an_empty_queue() -> None:
    with pytest.raises(trio.WouldBlock):
        WorkQueue[str](clock=lambda: 0.0).get_nowait()


def test_higher_priorities_first_and_a_readd_can_only_raise() -> None:
    queue = WorkQueue[str](clock=lambda: 0.0)
    queue.add("snapshot", priority=-100)
    queue.add("raised", priority=-100)
    queue.add("normal")
    queue.add("raised")
    queue.add("normal", priority=-100)
    assert take_all(queue) == ["normal", "raised", "snapshot"]


def test_the_highest_priority_of_adds_while_processing_counts_and_a_worker_can_ask_for_it() -> None:
    queue = WorkQueue[str](clock=lambda: 0.0)
    queue.add("a", priority=3)
    key = queue.get_nowait()
    assert queue.priority(key) == 3
    queue.add("a", priority=-5)
    queue.add("a", priority=7)
    queue.add("a", priority=2)
    queue.done("a")
    assert queue.snapshot().ready[0].priority == 7


class TestItem:
    async def test_the_key_is_given_back_when_the_block_fails(self) -> None:
        queue = WorkQueue[str]()
        queue.add("foo")
        with pytest.raises(OSError, match="broken"):
            async with queue.item():
                raise OSError("broken")
        assert queue.snapshot().processing == ()

    async def test_the_key_is_given_back_but_not_readded_when_the_block_is_cancelled(
        self, autojump_clock: MockClock
    ) -> None:
        queue = WorkQueue[str]()
        queue.add("foo")
        with trio.move_on_after(1):
            async with queue.item():
                await trio.sleep_forever()
        assert queue.snapshot().processing == ()
        assert len(queue) == 0


async def test_a_key_that_was_done_is_not_kept_alive() -> None:
    class Key:
        pass

    queue = WorkQueue[Key]()
    key = Key()
    is_collected = weakref.ref(key)
    queue.add(key)
    queue.add(key, priority=5)
    queue.done(await queue.get())
    del key
    gc.collect()
    assert is_collected() is None


async def test_get_is_a_checkpoint_even_when_keys_are_ready() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    with trio.testing.assert_checkpoints():
        await queue.get()
    with trio.CancelScope() as scope:
        scope.cancel()
        queue.add("b")
        await queue.get()
    assert scope.cancelled_caught
    assert len(queue) == 1


async def test_snapshot_shows_everything_in_the_order_of_service(autojump_clock: MockClock) -> None:
    queue = WorkQueue[str](name="demo", limiter=ExponentialLimiter(5.0, 60.0))
    queue.add("in hand")
    queue.get_nowait()
    queue.add("in hand")
    queue.add("low", priority=-1)
    queue.add_rate_limited("failed")
    queue.add_after("later", 7.0)
    await trio.sleep(2)
    queue.add("high", priority=1)

    snapshot = queue.snapshot()

    assert snapshot.name == "demo"
    assert [(item.key, item.priority, item.age) for item in snapshot.ready] == [("high", 1, 0.0), ("low", -1, 2.0)]
    assert [(item.key, item.age, item.is_dirty) for item in snapshot.processing] == [("in hand", 2.0, True)]
    assert [(item.key, item.due_in) for item in snapshot.deferred] == [("failed", 3.0), ("later", 5.0)]
    assert snapshot.failures == {"failed": 1}
