"""Measure the work queue: operations a second, lateness of deferred keys, and bytes a key.

python tools/bench/workqueue.py [--keys N] [--json]
"""

import argparse
import gc
import json
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable

import trio
from prometheus_client import CollectorRegistry

from haptic_trio.workqueue.metrics import WorkQueueMetrics
from haptic_trio.workqueue.work_queue import WorkQueue

Queue = WorkQueue[str]
Results = dict[str, float]


def make_keys(count: int) -> list[str]:
    """Return keys like those of objects; their own size is not counted as the queue's."""
    return [f"namespace/object-{number}" for number in range(count)]


async def measure_cycles(keys: list[str], metrics: WorkQueueMetrics | None) -> float:
    """Return calls of add, get and done a second, in one task."""
    queue = Queue(name="bench", metrics=metrics)
    begin = time.perf_counter()
    for key in keys:
        queue.add(key)
    for _ in keys:
        queue.done(await queue.get())
    return 3 * len(keys) / (time.perf_counter() - begin)


def measure_nowait(keys: list[str]) -> float:
    """Return calls a second without a checkpoint at each get."""
    queue = Queue(name="bench")
    begin = time.perf_counter()
    for key in keys:
        queue.add(key)
    for _ in keys:
        queue.done(queue.get_nowait())
    return 3 * len(keys) / (time.perf_counter() - begin)


async def measure_deferral(keys: list[str], spread: float) -> Results:
    """Defer all keys over a few seconds of real time; return the cost of deferring and how late they were taken."""
    queue = Queue(name="bench")
    step = spread / len(keys)
    head_start = 0.1 + len(keys) / 50_000
    begin = time.perf_counter()
    for number, key in enumerate(keys):
        # The first key is due when all are deferred for certain, so that only the firing is measured.
        queue.add_after(key, head_start + number * step)
    deferred_in = time.perf_counter() - begin
    now = trio.current_time()
    planned = queue.snapshot().deferred
    due = {item.key: now + item.due_in for item in planned}
    gc.collect()
    lateness: list[float] = []
    order: list[str] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(queue.run)
        while len(order) < len(keys):
            key = await queue.get()
            lateness.append(trio.current_time() - due[key])
            order.append(key)
            queue.done(key)
        nursery.cancel_scope.cancel()
    lateness.sort()
    return {
        "add_after_per_second": len(keys) / deferred_in,
        "fired_in_order": float(order == [item.key for item in planned]),
        "lateness_p50_ms": 1000 * statistics.median(lateness),
        "lateness_p99_ms": 1000 * lateness[len(lateness) * 99 // 100],
        "lateness_max_ms": 1000 * lateness[-1],
    }


async def measure_rest(count: int = 200) -> Results:
    """Return how late single keys are when nothing else happens."""
    queue = Queue(name="bench")
    lateness: list[float] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(queue.run)
        for number in range(count):
            due = trio.current_time() + 0.0051 + number * 0.000013
            queue.add_after("key", due - trio.current_time())
            queue.done(await queue.get())
            lateness.append(trio.current_time() - due)
        nursery.cancel_scope.cancel()
    return {
        "rest_lateness_p50_ms": 1000 * statistics.median(lateness),
        "rest_lateness_p99_ms": 1000 * sorted(lateness)[len(lateness) * 99 // 100],
        "rest_lateness_max_ms": 1000 * max(lateness),
    }


def measure_bytes(keys: list[str], fill: Callable[[Queue], None]) -> float:
    """Return what *fill* makes a queue grow by, in bytes a key."""
    queue = Queue(name="bench")
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    fill(queue)
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return (after - before) / len(keys)


def measure_memory(keys: list[str]) -> Results:
    """Return bytes a key in each state; the key itself is not counted."""

    def ready(queue: Queue) -> None:
        for key in keys:
            queue.add(key)

    def in_hand(queue: Queue) -> None:
        ready(queue)
        for _ in keys:
            queue.get_nowait()

    def deferred(queue: Queue) -> None:
        for key in keys:
            queue.add_after(key, 60.0)

    def failing(queue: Queue) -> None:
        for key in keys:
            queue.add_rate_limited(key)

    def idle(queue: Queue) -> None:
        for key in keys:
            queue.add(key)
            queue.done(queue.get_nowait())
            queue.forget(key)

    states = {"idle": idle, "ready": ready, "in_hand": in_hand, "deferred": deferred, "failing": failing}
    return {f"bytes_{state}": measure_bytes(keys, fill) for state, fill in states.items()}


async def measure(count: int, spread: float) -> Results:
    """Run all measurements one after another."""
    keys = make_keys(count)
    results = {
        "keys": float(count),
        "operations_per_second": max([await measure_cycles(keys, None) for _ in range(3)]),
        "operations_per_second_nowait": max([measure_nowait(keys) for _ in range(3)]),
        "operations_per_second_metrics": max(
            [await measure_cycles(keys, WorkQueueMetrics(CollectorRegistry())) for _ in range(3)]
        ),
    }
    results |= await measure_deferral(keys, spread)
    results |= await measure_rest()
    results |= measure_memory(keys)
    return results


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--spread", type=float, default=5.0, help="seconds over which the deferred keys fall due")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args(arguments)
    results = trio.run(measure, options.keys, options.spread)
    if options.json:
        json.dump(results, sys.stdout, indent=2)
        print()
        return
    for name, value in results.items():
        print(f"{name.replace('_', ' '):32} {value:14,.3f}")


if __name__ == "__main__":
    main()
