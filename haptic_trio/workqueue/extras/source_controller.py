"""Controller that takes keys from sources and triggers as well as from callers."""

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Self, TypeVar

import trio

from haptic_trio.workqueue.controller import Controller, Reconcile
from haptic_trio.workqueue.extras.subscription import EventMapper, Source, Subscription
from haptic_trio.workqueue.extras.triggers import Triggers, Wait
from haptic_trio.workqueue.limiter import ExponentialLimiter
from haptic_trio.workqueue.metrics import WorkQueueMetrics
from haptic_trio.workqueue.work_queue import WorkQueue

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class SourceController(Controller[K]):
    """A controller with sources and triggers.

    Both go on while the leader gate is not held, and stop at once when run()
    is cancelled. With *strict*, run() raises an ExceptionGroup with the first
    error of a source.
    """

    def __init__(
        self,
        reconcile: Reconcile[K],
        *,
        name: str,
        key_of: Callable[[Any], K] | None = None,
        metrics: WorkQueueMetrics | None = None,
        strict: bool = False,
    ) -> None:
        """*key_of* gives the key of a source's object; subscriptions with transformers do not need it.

        With *strict* the first error of a source ends run() and is raised
        from it; otherwise the source is opened again.
        """
        super().__init__(reconcile, name=name, metrics=metrics)
        self._key_of = key_of
        self._strict = strict
        self._subscriptions: list[Subscription[K]] = []
        self._triggers: Triggers[K] = Triggers(ExponentialLimiter(self._base, self._max))

    def subscribe(self, source: Source[T], *transformers: Callable[[T], Iterable[K]]) -> Self:
        """Enqueue the keys of the objects of *source*: all that the transformers yield, or the one of key_of.

        An object that a transformer fails for is logged and skipped.
        """
        self._require_not_begun()
        if transformers:

            def map_object(obj: T) -> Iterable[K]:
                return dict.fromkeys(key for transform in transformers for key in transform(obj))

            mapper = EventMapper(map_object, one_to_one=False)
        else:
            key_of = self._key_of
            if key_of is None:
                raise ValueError(f"controller {self.name!r} needs key_of, or the subscription a transformer")
            mapper = EventMapper(lambda obj: (key_of(obj),), one_to_one=True)
        self._subscriptions.append(Subscription(source, mapper))
        return self

    def with_backoff(self, base: float, max: float) -> Self:  # noqa: A002 - as in Controller
        """Set the backoff of retries, and a backoff of the same kind for keys whose triggers fail."""
        super().with_backoff(base, max)
        self._triggers.set_limiter(ExponentialLimiter(base, max))
        return self

    def add_trigger(self, key: K, wait: Wait) -> None:
        """Reconcile *key* once, when *wait* returns; replaces an earlier trigger of the key.

        If *wait* raises, that is logged and the key runs after a backoff of
        the triggers' own.
        """
        if not self._is_stopping:
            self._triggers.add(key, wait)

    def remove_trigger(self, key: K) -> bool:
        """Disarm the trigger of *key*; False if none was armed."""
        return self._triggers.remove(key)

    def _start_feeds(self, queue: WorkQueue[K], *, nursery: trio.Nursery) -> None:
        nursery.start_soon(self._run_triggers, queue)
        for subscription in self._subscriptions:
            nursery.start_soon(self._run_subscription, subscription, queue)

    async def _run_triggers(self, queue: WorkQueue[K]) -> None:
        def report(key: K, error: Exception) -> None:
            self._report_feed("trigger", "trigger failed", error, key=key)

        await self._triggers.run(queue.add_after, on_error=report)

    async def _run_subscription(self, subscription: Subscription[K], queue: WorkQueue[K]) -> None:
        def report_source(error: Exception) -> None:
            self._report_feed("source", "source failed", error)
            if self._strict:
                raise error

        await subscription.run(
            lambda key, priority: queue.add(key, priority=priority),
            on_source_error=report_source,
            on_event_error=lambda error: self._report_feed("event", "event skipped", error),
        )

    def _report_feed(self, origin: str, message: str, error: Exception, **fields: Any) -> None:
        if self._metrics:
            self._metrics.feed_errors.labels(self.name, origin).inc()
        self._warn(message, error, **fields)
