"""OpenMetrics families of work queues and controllers; distinguished by the label `name`.

Counts and durations are recorded as things happen. Depths and ages are read
from the living queues when the registry is scraped, which must happen in the
thread that runs Trio.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol
from weakref import WeakValueDictionary

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from haptic_trio.metrics import Families, Family

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


_LEVELS = (
    Family("workqueue_depth", "gauge", "Keys ready to be taken.", ("name", "priority")),
    Family("workqueue_deferred", "gauge", "Keys that are due later.", ("name",)),
    Family("workqueue_unfinished_work_seconds", "gauge", "Sum of the ages of keys being processed.", ("name",)),
    Family("workqueue_longest_running_processor_seconds", "gauge", "Age of the oldest key being processed.", ("name",)),
)


class QueueLevels(msgspec.Struct, frozen=True, kw_only=True):
    """Levels of a queue at this moment."""

    depths: Mapping[int, int]
    """Ready keys of each priority."""
    deferred: int
    unfinished: float
    """Sum of the ages of the keys being processed, in seconds."""
    longest: float
    """Age of the oldest key being processed, in seconds."""


class MeasuredQueue(Protocol):
    """A queue whose levels can be read."""

    def levels(self) -> QueueLevels:
        """Return what the queue holds now."""
        ...


class QueueRecorder:
    """The counters and histograms of one queue."""

    def __init__(self, metrics: "WorkQueueMetrics", name: str) -> None:
        self.adds = metrics.adds.labels(name)
        self.retries = metrics.retries.labels(name)
        self.rejected = metrics.rejected.labels(name)
        self.queue_duration = metrics.queue_duration.labels(name)
        self.work_duration = metrics.work_duration.labels(name)


class WorkQueueMetrics(Collector):
    """All families, in one registry; give one object to every queue and controller that reports there."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.families = Families(registry)
        counter, histogram = self.families.counter, self.families.histogram
        self.adds = counter("workqueue_adds", "Keys accepted, repeats left out.", "name")
        self.retries = counter("workqueue_retries", "Keys added with backoff.", "name")
        self.rejected = counter("workqueue_rejected", "Keys rejected after shutdown.", "name")
        self.queue_duration = histogram(
            "workqueue_queue_duration_seconds", "Time from ready to taken.", "name", buckets=_BUCKETS
        )
        self.work_duration = histogram(
            "workqueue_work_duration_seconds", "Time from taken to done.", "name", buckets=_BUCKETS
        )
        self.reconciles = counter("controller_reconcile", "Reconciliations by their result.", "name", "result")
        self.active_workers = self.families.gauge(
            "controller_active_workers", "Workers with a key being processed.", "name"
        )
        self.feed_errors = counter(
            "controller_feed_errors",
            "Errors of sources, of events that could not be mapped to keys, and of triggers.",
            "name",
            "origin",
        )
        self.families.known += _LEVELS
        # Weak, so that the levels of a queue vanish with it.
        self._queues: WeakValueDictionary[str, MeasuredQueue] = WeakValueDictionary()
        registry.register(self)

    def attach(self, name: str, queue: MeasuredQueue) -> QueueRecorder:
        """Report the levels of *queue* as *name*, instead of an earlier queue of that name."""
        self._queues[name] = queue
        return QueueRecorder(self, name)

    def describe(self) -> Iterable[Metric]:
        """Name the families that collect() yields."""
        return self._level_families()

    def collect(self) -> Iterable[Metric]:
        """Read the levels of the attached queues."""
        depth, deferred, unfinished, longest = families = self._level_families()
        for name, queue in sorted(self._queues.items()):
            levels = queue.levels()
            # A priority that is empty now was reported before: 0 is always there, so that no graph ends.
            for priority, count in sorted({0: 0, **levels.depths}.items()):
                depth.add_metric([name, str(priority)], count)
            deferred.add_metric([name], levels.deferred)
            unfinished.add_metric([name], levels.unfinished)
            longest.add_metric([name], levels.longest)
        return families

    @staticmethod
    def _level_families() -> tuple[GaugeMetricFamily, ...]:
        return tuple(GaugeMetricFamily(one.name, one.text, labels=one.labels) for one in _LEVELS)
