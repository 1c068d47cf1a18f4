"""The registry shows the metrics of queues and controllers."""

import gc

import trio
from prometheus_client import CollectorRegistry, generate_latest
from trio.testing import MockClock

from haptic_trio.workqueue.controller import PermanentError, RequeueAfter
from haptic_trio.workqueue.extras.source_controller import SourceController
from haptic_trio.workqueue.limiter import ExponentialLimiter
from haptic_trio.workqueue.metrics import WorkQueueMetrics
from haptic_trio.workqueue.work_queue import WorkQueue


class Scrape:
    """Samples of one registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

    def __call__(self, sample: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(sample, {"name": "demo", **labels})


async def test_depth_latency_and_work_duration_of_a_queue(autojump_clock: MockClock) -> None:
    scrape = Scrape()
    queue = WorkQueue[str](name="demo", metrics=WorkQueueMetrics(scrape.registry))
    assert scrape("workqueue_depth", priority="0") == 0

    queue.add("foo")
    queue.add("foo")
    queue.add("bar", priority=5)
    assert scrape("workqueue_adds_total") == 2
    assert scrape("workqueue_depth", priority="0") == 1
    assert scrape("workqueue_depth", priority="5") == 1

    await trio.sleep(0.05)
    assert await queue.get() == "bar"
    assert scrape("workqueue_depth", priority="5") is None
    assert scrape("workqueue_queue_duration_seconds_count") == 1
    assert scrape("workqueue_queue_duration_seconds_sum") == 0.05

    await queue.get()
    queue.add("foo")
    queue.add("foo")
    assert scrape("workqueue_adds_total") == 3
    await trio.sleep(0.1)
    queue.done("bar")
    assert scrape("workqueue_work_duration_seconds_count") == 1
    assert (scrape("workqueue_work_duration_seconds_sum") or 0) - 0.1 < 1e-9


async def test_ages_of_keys_in_hand_grow_until_they_are_done(autojump_clock: MockClock) -> None:
    scrape = Scrape()
    queue = WorkQueue[str](name="demo", metrics=WorkQueueMetrics(scrape.registry))
    for key in ("a", "b"):
        queue.add(key)
        queue.get_nowait()
        await trio.sleep(1)
    assert scrape("workqueue_unfinished_work_seconds") == 3
    assert scrape("workqueue_longest_running_processor_seconds") == 2
    queue.done("a")
    queue.done("b")
    assert scrape("workqueue_unfinished_work_seconds") == 0
    assert scrape("workqueue_longest_running_processor_seconds") == 0


def test_retries_rejections_and_deferrals_are_counted() -> None:
    scrape = Scrape()
    queue = WorkQueue[str](name="demo", metrics=WorkQueueMetrics(scrape.registry), clock=lambda: 0.0)
    for _ in range(3):
        queue.add_rate_limited("foo")
    assert scrape("workqueue_retries_total") == 3
    assert scrape("workqueue_deferred") == 1
    queue.shutdown()
    queue.add("a")
    queue.add_after("b", 1.0)
    queue.add_rate_limited("c")
    assert scrape("workqueue_rejected_total") == 3
    assert scrape("workqueue_deferred") == 0


def test_levels_of_a_queue_vanish_with_it_and_a_new_one_takes_its_name() -> None:
    scrape = Scrape()
    metrics = WorkQueueMetrics(scrape.registry)
    queue = WorkQueue[str](name="demo", metrics=metrics, clock=lambda: 0.0)
    queue.add("a")
    newer = WorkQueue[str](name="demo", metrics=metrics, clock=lambda: 0.0)
    assert scrape("workqueue_depth", priority="0") == 0
    del queue, newer
    gc.collect()
    assert scrape("workqueue_depth", priority="0") is None


async def test_a_controller_counts_its_results_and_active_workers(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    scrape = Scrape()
    metrics = WorkQueueMetrics(scrape.registry)

    async def reconcile(key: str) -> RequeueAfter | None:
        match key:
            case "fails" if not failed:
                failed.append(key)
                raise OSError("broken")
            case "again" if not again:
                again.append(key)
                return RequeueAfter(1.0)
            case "never":
                raise PermanentError("rejected")
            case "slow" if not slow:
                slow.append(key)
                await trio.sleep_forever()
            case "last":
                assert scrape("controller_active_workers") == 1
        return None

    failed: list[str] = []
    again: list[str] = []
    slow: list[str] = []
    controller: SourceController[str] = SourceController(reconcile, name="demo", metrics=metrics).with_timeout(3.0)
    await nursery.start(controller.run)
    controller.enqueue("fails", "again", "never", "slow", "last")

    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise OSError("no")

    controller.add_trigger("trigger", fail)
    await trio.sleep(10)

    results = {
        result: scrape("controller_reconcile_total", result=result)
        for result in ("success", "error", "requeue_after", "permanent", "timeout")
    }
    assert results == {"success": 5, "error": 1, "requeue_after": 1, "permanent": 1, "timeout": 1}
    assert scrape("controller_active_workers") == 0
    assert scrape("controller_feed_errors_total", origin="trigger") == 1
    assert scrape("workqueue_retries_total") == 2


def test_the_registry_can_be_rendered() -> None:
    registry = CollectorRegistry()
    queue = WorkQueue[str](
        name="demo", metrics=WorkQueueMetrics(registry), limiter=ExponentialLimiter(), clock=lambda: 0.0
    )
    queue.add("a")
    text = generate_latest(registry).decode()
    assert 'workqueue_depth{name="demo",priority="0"} 1.0' in text
