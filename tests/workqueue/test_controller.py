"""Requeueing and configuration of a controller, on a virtual clock."""

from collections import Counter
from collections.abc import Callable

import pytest
import structlog
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from haptic_trio.logs import Logger
from haptic_trio.workqueue.controller import Controller, PermanentError, RequeueAfter, requeue_now
from haptic_trio.workqueue.limiter import ExponentialLimiter
from haptic_trio.workqueue.work_queue import WorkQueue
from tests.workqueue.fakes import Gate, Recorder, make_controller


class CountingQueue(WorkQueue[str]):
    """The real queue, with its calls counted."""

    def __init__(self, base: float, longest: float) -> None:
        super().__init__(limiter=ExponentialLimiter(base, longest))
        self.calls: Counter[str] = Counter()

    def done(self, key: str) -> None:
        self.calls["done"] += 1
        super().done(key)

    def add_after(self, key: str, delay: float, *, override: bool = False, priority: int = 0) -> None:
        self.calls["add_after"] += 1
        super().add_after(key, delay, override=override, priority=priority)

    def add_rate_limited(self, key: str, *, priority: int = 0) -> None:
        self.calls["add_rate_limited"] += 1
        super().add_rate_limited(key, priority=priority)

    def forget(self, key: str) -> None:
        self.calls["forget"] += 1
        super().forget(key)


class TestRequeue:
    async def run_once(self, *script: Exception | RequeueAfter | None) -> tuple[Recorder, CountingQueue]:
        recorder = Recorder()
        recorder.script = list(script)
        queues: list[CountingQueue] = []

        def factory(base: float, longest: float) -> CountingQueue:
            queues.append(CountingQueue(base, longest))
            return queues[-1]

        controller = make_controller(recorder).with_queue_factory(factory).with_backoff(1.0, 8.0).with_workers(-1)
        async with trio.open_nursery() as nursery:
            await nursery.start(controller.run)
            controller.enqueue("a")
            await trio.sleep(100)
            nursery.cancel_scope.cancel()
        assert len(queues) == 1
        return recorder, queues[0]

    async def test_success_means_one_done_and_no_requeue(self, autojump_clock: MockClock) -> None:
        recorder, queue = await self.run_once()
        assert recorder.keys == ["a"]
        assert queue.calls == {"done": 1, "forget": 1}

    async def test_an_error_means_one_rate_limited_add_and_then_success(self, autojump_clock: MockClock) -> None:
        recorder, queue = await self.run_once(OSError("broken"))
        assert recorder.runs == [(0.0, "a"), (1.0, "a")]
        assert (queue.calls["add_rate_limited"], queue.calls["done"], queue.calls["forget"]) == (1, 2, 1)

    async def test_requeue_now_means_one_delayed_add_of_zero_and_a_second_run(self, autojump_clock: MockClock) -> None:
        recorder, queue = await self.run_once(requeue_now())
        assert recorder.runs == [(0.0, "a"), (0.0, "a")]
        assert queue.calls == {"add_after": 1, "done": 2, "forget": 2}

    async def test_errors_back_off_to_the_cap_and_a_request_resets_that(self, autojump_clock: MockClock) -> None:
        errors = [OSError("broken") for _ in range(5)]
        recorder, _ = await self.run_once(*errors, RequeueAfter(5.0), OSError("broken"))
        assert [at for at, _ in recorder.runs] == [0.0, 1.0, 3.0, 7.0, 15.0, 23.0, 28.0, 29.0]

    @pytest.mark.parametrize("raised", [True, False])
    async def test_a_request_can_be_returned_raised_or_wrapped(self, autojump_clock: MockClock, raised: bool) -> None:
        wrapped = OSError("wrapped")
        wrapped.__cause__ = RequeueAfter(7.0)
        recorder, queue = await self.run_once(wrapped if raised else RequeueAfter(7.0))
        assert recorder.runs == [(0.0, "a"), (7.0, "a")]
        assert queue.calls["add_rate_limited"] == 0

    async def test_a_permanent_error_is_not_retried_until_the_key_is_added_again(
        self, nursery: trio.Nursery, autojump_clock: MockClock
    ) -> None:
        recorder = Recorder()
        recorder.script = [PermanentError("rejected")]
        controller = make_controller(recorder)
        await nursery.start(controller.run)
        controller.enqueue("a")
        await trio.sleep(5000)
        assert recorder.runs == [(0.0, "a")]
        controller.enqueue("a")
        await wait_all_tasks_blocked()
        assert recorder.keys == ["a", "a"]

    async def test_a_reconciliation_past_the_time_limit_is_cancelled_and_retried(
        self, nursery: trio.Nursery, autojump_clock: MockClock
    ) -> None:
        recorder = Recorder(duration=10.0)
        controller = make_controller(recorder).with_timeout(2.0).with_backoff(1.0, 8.0)
        await nursery.start(controller.run)
        controller.enqueue("a")
        await trio.sleep(6.5)
        assert [at for at, _ in recorder.runs] == [0.0, 3.0]

    async def test_a_retried_key_keeps_its_priority(self, nursery: trio.Nursery, autojump_clock: MockClock) -> None:
        recorder = Recorder(duration=1.0)
        recorder.script = [OSError("broken")]
        controller = make_controller(recorder)
        controller.enqueue("low", priority=-100)
        await nursery.start(controller.run)
        await trio.sleep(0.5)
        controller.enqueue("a", "b")
        await trio.sleep(20)
        assert recorder.keys == ["low", "a", "b", "low"]

    async def test_a_failing_key_delays_no_other_key(self, nursery: trio.Nursery, autojump_clock: MockClock) -> None:
        seen: list[str] = []

        async def reconcile(key: str) -> None:
            await trio.lowlevel.checkpoint()
            if key == "dead":
                raise OSError("down")
            seen.append(key)

        controller = make_controller(reconcile)
        await nursery.start(controller.run)
        controller.enqueue("dead", "a", "b")
        await wait_all_tasks_blocked()
        assert seen == ["a", "b"]

    async def test_ten_changes_while_a_key_runs_collapse_into_one_more_run(
        self, nursery: trio.Nursery, autojump_clock: MockClock
    ) -> None:
        recorder = Recorder(duration=1.0)
        controller = make_controller(recorder).with_workers(4)
        await nursery.start(controller.run)
        controller.enqueue("a")
        for _ in range(10):
            await trio.sleep(0.05)
            controller.enqueue("a")
        await trio.sleep(10)
        assert recorder.runs == [(0.0, "a"), (1.0, "a")]
        assert recorder.most_running == 1


class TestConfiguration:
    @pytest.mark.parametrize(
        "configure",
        [
            lambda controller: controller.with_backoff(1.0, 2.0),
            lambda controller: controller.with_workers(2),
            lambda controller: controller.with_queue_factory(CountingQueue),
            lambda controller: controller.with_logger(structlog.get_logger()),
            lambda controller: controller.with_timeout(1.0),
            lambda controller: controller.with_leader(Gate()),
            lambda controller: controller.with_shutdown(1.0),
        ],
    )
    async def test_nothing_can_be_configured_once_run_has_begun(
        self, autojump_clock: MockClock, configure: Callable[[Controller[str]], object]
    ) -> None:
        controller = make_controller(Recorder())
        configure(controller)
        with trio.move_on_after(1):
            await controller.run()
        with pytest.raises(RuntimeError, match="has run"):
            configure(controller)
        with pytest.raises(RuntimeError, match="has run"):
            await controller.run()

    async def test_the_logger_can_be_chosen(self, nursery: trio.Nursery, autojump_clock: MockClock) -> None:
        recorder = Recorder()
        recorder.script = [OSError("expected"), ValueError("a bug")]
        logger: Logger = structlog.get_logger(component="chosen")
        with structlog.testing.capture_logs() as lines:
            controller = make_controller(recorder).with_logger(logger)
            await nursery.start(controller.run)
            controller.enqueue("a")
            await trio.sleep(1)
        assert {line["component"] for line in lines} == {"chosen"}
        assert [(line["failures"], line["exc_info"] is None) for line in lines] == [(1, True), (2, False)]
