"""Q3, Q8 and Q10 under cancellation: whichever task is cancelled, and whenever, no key and no wake-up is lost."""

from typing import Any, Literal

import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from trio.testing import MockClock, wait_all_tasks_blocked

from haptic_trio.workqueue.limiter import ExponentialLimiter
from haptic_trio.workqueue.work_queue import QueueShutdown, WorkQueue
from tests.support.histories import HISTORIES
from tests.workqueue.fakes import CancelAtStep

KEYS = st.sampled_from("abc")


class Ledger:
    """Who has which key, and whether every key ran after it was last added."""

    def __init__(self, queue: WorkQueue[str]) -> None:
        self.queue = queue
        self.in_hand: set[str] = set()
        self.steps = 0
        self.added: dict[str, int] = {}
        self.deferred: dict[str, int] = {}
        self.completed: dict[str, int] = {}

    def stamp(self) -> int:
        self.steps += 1
        return self.steps

    def add(self, key: str, delay: float = 0.0) -> None:
        if not self.queue.is_shut_down:
            (self.deferred if delay else self.added)[key] = self.stamp()
        self.queue.add_after(key, delay)

    def give_up(self, key: str) -> None:
        """Add *key* again, unless the queue is shut down: then its run is lost on purpose."""
        if self.queue.is_shut_down:
            self.added.pop(key, None)
            self.deferred.pop(key, None)
        else:
            self.add(key)

    def shut_down(self, *, drain: bool) -> None:
        for item in self.queue.snapshot().deferred:
            del self.deferred[item.key]
        self.queue.shutdown(drain=drain)

    def assert_nothing_lost(self) -> None:
        assert not self.in_hand
        assert not self.queue.snapshot().processing
        stamps = [*self.added.items(), *self.deferred.items()]
        lost = [key for key, stamp in stamps if self.completed.get(key, 0) < stamp]
        assert not lost


class Worker:
    """Works on keys until shutdown; adds the key in hand again if it is cancelled, as a controller does."""

    def __init__(self, ledger: Ledger, duration: float) -> None:
        self.ledger = ledger
        self.duration = duration
        self.scope = trio.CancelScope()
        self.is_waiting = False

    async def run(self) -> None:
        with self.scope:
            while True:
                self.is_waiting = True
                try:
                    async with self.ledger.queue.item() as key:
                        self.is_waiting = False
                        await self._work(key)
                except QueueShutdown:
                    break
        self.is_waiting = False

    async def _work(self, key: str) -> None:
        ledger = self.ledger
        assert key not in ledger.in_hand
        ledger.in_hand.add(key)
        begun = ledger.stamp()
        try:
            await trio.sleep(self.duration)
            ledger.completed[key] = begun
        finally:
            ledger.in_hand.remove(key)
            if ledger.completed.get(key) != begun:
                ledger.give_up(key)


Step = tuple[Any, ...]


class CancellationMachine(RuleBasedStateMachine):
    """Writes a script of calls; the end plays it in one Trio run on a virtual clock.

    Calls without a "settle" between them happen in one tick, so a
    cancellation can meet a worker between any two of its steps.
    """

    def __init__(self) -> None:
        super().__init__()
        self.script: list[Step] = []

    @initialize(durations=st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=3))
    def start_workers(self, durations: list[float]) -> None:
        self.script = [("start", duration) for duration in durations]

    @rule(duration=st.sampled_from([0.0, 1.0]))
    def start_worker(self, duration: float) -> None:
        self.script.append(("start", duration))

    @rule(number=st.integers(0, 3))
    def cancel_worker(self, number: int) -> None:
        self.script.append(("cancel", number))

    @rule(key=KEYS, delay=st.sampled_from([0.0, 0.0, 0.5, 1.0, 2.0]))
    def add(self, key: str, delay: float) -> None:
        self.script.append(("add", key, delay))

    @rule(key=KEYS, number=st.integers(0, 3), add_first=st.booleans())
    def add_and_cancel(self, key: str, number: int, add_first: bool) -> None:
        race: list[Step] = [("add", key, 0.0), ("cancel", number)]
        self.script += [("settle",), *(race if add_first else reversed(race)), ("settle",)]

    @rule()
    def settle(self) -> None:
        self.script.append(("settle",))

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0]))
    def sleep(self, seconds: float) -> None:
        self.script.append(("sleep", seconds))

    @rule()
    def watch_drain(self) -> None:
        self.script.append(("watch",))

    @rule(drain=st.sampled_from([True, True, False]))
    def shut_down(self, drain: bool) -> None:
        # Rarely in the middle, or nothing else would be seen.
        if len(self.script) > 12:
            self.script.append(("shutdown", drain))

    def teardown(self) -> None:
        trio.run(Play(self.script).run, clock=MockClock(autojump_threshold=0))


class Play:
    """One performance of a script."""

    def __init__(self, script: list[Step]) -> None:
        self.script = script
        self.queue = WorkQueue[str](limiter=ExponentialLimiter(1.0, 4.0))
        self.ledger = Ledger(self.queue)
        self.workers: list[Worker] = []
        self.is_closed = False

    async def run(self) -> None:
        with trio.fail_after(10_000):
            async with trio.open_nursery() as nursery:
                await nursery.start(self.queue.run)
                for verb, *arguments in self.script:
                    await self.perform(verb, arguments, nursery)
                await self.finish(nursery)
        if not self.is_closed:
            self.ledger.assert_nothing_lost()

    async def perform(self, verb: str, arguments: list[Any], nursery: trio.Nursery) -> None:
        match verb, arguments:
            case "start", [duration]:
                self.workers.append(Worker(self.ledger, duration))
                nursery.start_soon(self.workers[-1].run)
            case "cancel", [number]:
                self.workers[number % len(self.workers)].scope.cancel()
            case "add", [key, delay]:
                self.ledger.add(key, delay)
            case "settle", []:
                await self.settle()
            case "sleep", [seconds]:
                await trio.sleep(seconds)
            case "watch", []:
                nursery.start_soon(self.watch_drain)
            case "shutdown", [drain]:
                self.ledger.shut_down(drain=drain)
                self.is_closed |= not drain

    async def settle(self) -> None:
        """Once all sleep, no task may wait for a key while there is one."""
        await wait_all_tasks_blocked()
        if not self.is_closed and any(worker.is_waiting for worker in self.workers):
            assert len(self.queue) == 0
        before = self.queue.snapshot()
        sleeper = Worker(self.ledger, 0.0)
        if not self.queue.is_shut_down:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sleeper.run)
                if not before.ready:
                    await wait_all_tasks_blocked()
                sleeper.scope.cancel()
            after = self.queue.snapshot()
            assert (after.processing, after.deferred) == (before.processing, before.deferred)
            assert {item.key for item in after.ready} == {item.key for item in before.ready}

    async def watch_drain(self) -> None:
        try:
            await self.queue.wait_drained()
        except QueueShutdown:
            assert self.is_closed
            assert len(self.queue) or any(item.is_dirty for item in self.queue.snapshot().processing)
        else:
            # The look and the return share a tick.
            snapshot = self.queue.snapshot()
            assert (snapshot.ready, snapshot.processing) == ((), ())

    async def finish(self, nursery: trio.Nursery) -> None:
        if not self.is_closed:
            for _ in range(2):
                await self.perform("start", [0.0], nursery)
            if not self.queue.is_shut_down:
                # Longer than any delay, and nothing else is added meanwhile.
                await trio.sleep(20)
            self.queue.shutdown(drain=True)
            await self.queue.wait_drained()


TestCancellation = pytest.mark.slow(CancellationMachine.TestCase)
TestCancellation.settings = settings(max_examples=HISTORIES, stateful_step_count=25)


class Victim(Worker):
    """A worker with a task name of its own."""

    async def run_victim(self) -> None:
        await self.run()


async def run_with_cancelled_victim(number: int, when: Literal["before", "after"]) -> bool:
    """Let two workers share three keys, one of them cancelled at its *number*-th step; False if it took fewer."""
    queue = WorkQueue[str]()
    ledger = Ledger(queue)
    victim, survivor = Victim(ledger, 0.5), Worker(ledger, 0.75)
    instrument = CancelAtStep("run_victim", victim.scope.cancel, number, when)
    trio.lowlevel.add_instrument(instrument)
    async with trio.open_nursery() as nursery:
        await nursery.start(queue.run)
        ledger.add("ready")
        nursery.start_soon(victim.run_victim)
        nursery.start_soon(survivor.run)
        for _ in range(3):
            ledger.add("a")
            ledger.add("b")
            await wait_all_tasks_blocked()
            ledger.add("c", delay=0.25)
            ledger.add("a")
            await trio.sleep(1)
        await trio.sleep(10)
        queue.shutdown(drain=True)
        with trio.fail_after(10):
            await queue.wait_drained()
    ledger.assert_nothing_lost()
    return instrument.seen >= number


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_can_be_cancelled_at_each_of_its_awaits_without_losing_a_key(
    when: Literal["before", "after"],
) -> None:
    number = 1
    while trio.run(run_with_cancelled_victim, number, when, clock=MockClock(autojump_threshold=0)):
        number += 1
    assert number > 8


@pytest.mark.parametrize("add_first", [True, False])
async def test_a_wake_up_that_meets_a_cancellation_loses_no_key(autojump_clock: MockClock, add_first: bool) -> None:
    queue = WorkQueue[str]()
    ledger = Ledger(queue)
    first, second = Worker(ledger, 0.0), Worker(ledger, 0.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(first.run)
        await wait_all_tasks_blocked()
        nursery.start_soon(second.run)
        await wait_all_tasks_blocked()
        for step in ("add", "cancel") if add_first else ("cancel", "add"):
            if step == "add":
                ledger.add("a")
            else:
                first.scope.cancel()
        await wait_all_tasks_blocked()
        ledger.assert_nothing_lost()
        nursery.cancel_scope.cancel()


async def test_the_deferral_task_can_be_cancelled_at_each_of_its_awaits_and_run_again(
    autojump_clock: MockClock,
) -> None:
    for number in range(1, 8):
        for when in ("before", "after"):
            queue = WorkQueue[str]()
            start = trio.current_time()
            for position in range(3):
                queue.add_after(f"key-{position}", 1.0 + position)
            async with trio.open_nursery() as nursery:
                instrument = CancelAtStep("WorkQueue.run", nursery.cancel_scope.cancel, number, when)
                trio.lowlevel.add_instrument(instrument)
                nursery.start_soon(queue.run)
                await trio.sleep(2.5)
                nursery.cancel_scope.cancel()
            trio.lowlevel.remove_instrument(instrument)
            async with trio.open_nursery() as nursery:
                await nursery.start(queue.run)
                keys = [await queue.get() for _ in range(3)]
                assert trio.current_time() == start + 3.0
                nursery.cancel_scope.cancel()
            assert keys == ["key-0", "key-1", "key-2"]
