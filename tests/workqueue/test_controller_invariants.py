"""Q9: however events, errors, terms and cancellations fall, each key's last run began after its last event."""

from collections.abc import Iterator
from typing import Any, Literal

import pytest
import structlog
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from trio.testing import MockClock, wait_all_tasks_blocked

from haptic_trio.workqueue.controller import PermanentError, RequeueAfter
from haptic_trio.workqueue.extras.source_controller import SourceController
from tests.support.histories import HISTORIES
from tests.workqueue.fakes import CancelAtStep, FakeSource, Gate

KEYS = st.sampled_from("abc")
# A whole controller runs in each example; the queue below it is searched more densely by its own machines.
OUTCOMES = ("ok", "ok", "error", "again", "again now", "slow", "stuck")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Failures are the subject here, their log lines are not."""
    with structlog.testing.capture_logs():
        yield


class World:
    """A reconciler with scripted outcomes, and the times of events and of runs."""

    def __init__(self, outcomes: list[str], workers: int) -> None:
        self.outcomes = list(outcomes)
        self.workers = workers
        self.steps = 0
        self.events: dict[str, int] = {}
        self.completed: dict[str, int] = {}
        self.running: list[str] = []
        self.source = FakeSource()
        self.gate = Gate()
        self.gate.flip(True)
        self.controller: SourceController[str] = (
            SourceController(self.reconcile, name="demo", key_of=str)
            .with_workers(workers)
            .with_backoff(0.5, 4.0)
            .with_timeout(5.0)
            .with_leader(self.gate)
            .subscribe(self.source)
        )

    def stamp(self) -> int:
        self.steps += 1
        return self.steps

    def change(self, key: str) -> None:
        self.events[key] = self.stamp()
        self.source.put(key)

    def enqueue(self, key: str) -> None:
        self.events[key] = self.stamp()
        self.controller.enqueue(key)

    async def reconcile(self, key: str) -> RequeueAfter | None:
        begun = self.stamp()
        assert key not in self.running
        self.running.append(key)
        assert len(self.running) <= self.workers
        try:
            match self.outcomes.pop(0) if self.outcomes else "ok":
                case "error":
                    await trio.sleep(0.25)
                    raise OSError("broken")
                case "again":
                    return RequeueAfter(1.0)
                case "again now":
                    raise RequeueAfter(0.0)
                case "slow":
                    await trio.sleep(1.0)
                case "stuck":
                    await trio.sleep_forever()
                case "rejected":
                    raise PermanentError("rejected")
            self.completed[key] = begun
        finally:
            self.running.remove(key)
        return None

    def assert_settled(self) -> None:
        assert not self.running
        behind = [key for key, event in self.events.items() if self.completed.get(key, 0) < event]
        assert not behind


class ControllerMachine(RuleBasedStateMachine):
    """Writes a script; the end plays it in one Trio run on a virtual clock."""

    def __init__(self) -> None:
        super().__init__()
        self.script: list[tuple[Any, ...]] = []

    @initialize(outcomes=st.lists(st.sampled_from(OUTCOMES), max_size=12), workers=st.integers(1, 3))
    def begin(self, outcomes: list[str], workers: int) -> None:
        self.outcomes, self.workers = outcomes, workers

    @rule(key=KEYS, verb=st.sampled_from(["change", "enqueue"]))
    def feed(self, key: str, verb: str) -> None:
        self.script.append((verb, key))

    @rule(is_held=st.booleans())
    def flip(self, is_held: bool) -> None:
        self.script.append(("flip", is_held))

    @rule(relist=st.booleans())
    def break_stream(self, relist: bool) -> None:
        self.script.append(("break", relist))

    @rule()
    def settle(self) -> None:
        self.script.append(("settle",))

    @rule(seconds=st.sampled_from([0.25, 1.0]))
    def sleep(self, seconds: float) -> None:
        self.script.append(("sleep", seconds))

    def teardown(self) -> None:
        trio.run(self.play, clock=MockClock(autojump_threshold=0))

    async def play(self) -> None:
        world = World(self.outcomes, self.workers)
        async with trio.open_nursery() as nursery:
            await nursery.start(world.controller.run)
            for step in self.script:
                await self.perform(world, step)
            world.gate.flip(True)
            # Longer than all delays, limits and resumptions that are left.
            await trio.sleep(1_000)
            world.assert_settled()
            nursery.cancel_scope.cancel()

    async def perform(self, world: World, step: tuple[Any, ...]) -> None:
        match step:
            case "change", key:
                world.change(key)
            case "enqueue", key:
                world.enqueue(key)
            case "flip", is_held:
                world.gate.flip(is_held)
            case "break", relist:
                if relist:
                    world.source.forget_history()
                world.source.break_streams(OSError("reset"))
            case ("settle",):
                await wait_all_tasks_blocked()
            case "sleep", seconds:
                await trio.sleep(seconds)


TestController = pytest.mark.slow(ControllerMachine.TestCase)
TestController.settings = settings(max_examples=HISTORIES, stateful_step_count=20)


async def lose_the_lease_at_step(number: int, when: Literal["before", "after"]) -> bool:
    """Let the lease be lost for a moment at the *number*-th step of a worker; False if there were fewer."""
    world = World(["slow", "error", "again", "slow"], 2)
    instrument = CancelAtStep("Controller._work", lambda: world.gate.flip(False), number, when)
    trio.lowlevel.add_instrument(instrument)
    async with trio.open_nursery() as nursery:
        await nursery.start(world.controller.run)
        for key in "aba":
            world.change(key)
            world.enqueue("c")
            await trio.sleep(0.5)
        world.gate.flip(True)
        await trio.sleep(50)
        trio.lowlevel.remove_instrument(instrument)
        world.gate.flip(True)
        await trio.sleep(50)
        world.assert_settled()
        nursery.cancel_scope.cancel()
    return instrument.seen >= number


async def stop_at_step(number: int, when: Literal["before", "after"]) -> bool:
    """Cancel run() at the *number*-th step of any of its tasks; False if there were fewer."""
    world = World(["slow", "error", "stuck"], 2)
    begin = trio.current_time()
    with trio.CancelScope() as scope:
        instrument = CancelAtStep("Controller.", scope.cancel, number, when)
        trio.lowlevel.add_instrument(instrument)
        world.change("a")
        world.enqueue("b")
        world.controller.add_trigger("c", trio.lowlevel.checkpoint)
        scope.deadline = begin + 20
        await world.controller.run()
    trio.lowlevel.remove_instrument(instrument)
    assert not world.running
    # The longest run, its time limit, or the grace time, whichever ends first.
    assert trio.current_time() <= begin + 20 + 5
    snapshot = world.controller.snapshot()
    assert snapshot is None or not snapshot.processing
    return instrument.seen >= number


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_lease_can_be_lost_at_each_await_of_a_worker_without_losing_a_key(
    when: Literal["before", "after"],
) -> None:
    number = 1
    while trio.run(lose_the_lease_at_step, number, when, clock=MockClock(autojump_threshold=0)):
        number += 1
    assert number > 10


@pytest.mark.parametrize("when", ["before", "after"])
def test_run_can_be_cancelled_at_each_await_of_its_tasks_and_always_ends_cleanly(
    when: Literal["before", "after"],
) -> None:
    number = 1
    while trio.run(stop_at_step, number, when, clock=MockClock(autojump_threshold=0)):
        number += 1
    assert number > 20
