"""Work queue of keys: each key is held once, processed by one worker at a time, delayed and retried.

A key that is added while a worker has it becomes *dirty* and is ready again as
soon as the worker is done. Keys are compared by value and should identify the
work, not carry it: the worker reads the newest state when it runs.

Everything that decides is plain synchronous code on a clock; get(), run() and
wait_drained() only wait.
"""

import math
from collections.abc import AsyncIterator, Callable, Hashable, Mapping
from contextlib import asynccontextmanager
from enum import IntEnum
from typing import Generic, TypeVar

import msgspec
import trio

from haptic_trio.errors import HapticError
from haptic_trio.workqueue.defer_queue import DeferQueue
from haptic_trio.workqueue.limiter import ExponentialLimiter, Limiter
from haptic_trio.workqueue.metrics import QueueLevels, WorkQueueMetrics
from haptic_trio.workqueue.ready_list import Entry, ReadyList

K = TypeVar("K", bound=Hashable)


class QueueShutdown(HapticError):  # noqa: N818 - the end of the queue is a fact, not a fault
    """The queue was shut down and returns no more keys; a permanent error."""


class NotProcessing(RuntimeError):  # noqa: N818 - named by what is the case
    """done() was called for a key that no worker has: a programming error, and permanent."""

    def __init__(self, key: Hashable) -> None:
        self.key = key
        super().__init__(f"{key!r} is not being processed")


class ReadyKey(msgspec.Struct, Generic[K], frozen=True, kw_only=True):
    """A key that waits for a worker."""

    key: K
    priority: int
    age: float
    """Seconds since it became ready."""


class KeyInHand(msgspec.Struct, Generic[K], frozen=True, kw_only=True):
    """A key that a worker has."""

    key: K
    age: float
    """Seconds since it was taken."""
    is_dirty: bool
    """It was added again and will be ready as soon as it is done."""


class DeferredKey(msgspec.Struct, Generic[K], frozen=True, kw_only=True):
    """A key that is due later."""

    key: K
    due_in: float
    """Seconds from now; at most 0 when it is due but not released yet."""


class QueueSnapshot(msgspec.Struct, Generic[K], frozen=True, kw_only=True):
    """Content of a queue at one moment, in the order of service."""

    name: str
    ready: tuple[ReadyKey[K], ...]
    processing: tuple[KeyInHand[K], ...]
    deferred: tuple[DeferredKey[K], ...]
    failures: Mapping[K, int]
    """Failures since the last forget(), of the keys above that have any."""


class _Phase(IntEnum):
    OPEN = 0
    DRAINING = 1
    CLOSED = 2


class WorkQueue(Generic[K]):
    """A deduplicating queue of keys with priorities, delays, retries, and a drain.

    - A key is in the ready list at most once and never while a worker has it.
    - Higher priorities first, first come first served within one; every
      sixteenth get() takes the oldest key of any priority.
    - Adding while a worker has the key makes it run again after done().
    - A deferral and an add() of the same key are independent (both run),
      unless *collapse_deferred*: then there is one entry a key, an add()
      cancels its deferral, and a key that is ready or dirty is not deferred.

    *limiter* decides the delays of add_rate_limited() (default: exponential, 5
    ms to 1000 s); *tick* is the longest single wait of run(). The delays work
    only while run() does.
    """

    def __init__(
        self,
        *,
        name: str = "",
        limiter: Limiter[K] | None = None,
        tick: float = 0.5,
        metrics: WorkQueueMetrics | None = None,
        collapse_deferred: bool = False,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        self.name = name
        self._limiter: Limiter[K] = ExponentialLimiter() if limiter is None else limiter
        self._collapse_deferred = collapse_deferred
        self._clock = clock
        self._ready: ReadyList[K] = ReadyList()
        self._processing: dict[K, Entry[K]] = {}
        self._dirty: dict[K, int] = {}
        self._deferred: DeferQueue[K] = DeferQueue(tick, clock=clock)
        self._deferred_priorities: dict[K, int] = {}
        self._phase = _Phase.OPEN
        self._getters = trio.lowlevel.ParkingLot()
        self._drainers = trio.lowlevel.ParkingLot()
        self._run_scope: trio.CancelScope | None = None
        self._record = None if metrics is None else metrics.attach(name, self)

    def __len__(self) -> int:
        """Return the number of ready keys."""
        return len(self._ready)

    @property
    def is_shut_down(self) -> bool:
        """Whether shutdown() was called: nothing is accepted any more."""
        return self._phase is not _Phase.OPEN

    def add(self, key: K, *, priority: int = 0) -> None:
        """Make *key* ready, or dirty while a worker has it; a repeat can only raise its priority.

        After shutdown() it is ignored and counted as rejected.
        """
        if self._is_closed():
            return
        if self._collapse_deferred:
            self._cancel_deferral(key)
        self._put(key, priority)

    def add_after(self, key: K, delay: float, *, override: bool = False, priority: int = 0) -> None:
        """Add *key* in *delay* seconds, or now if that is not above 0.

        Of several delays of one key the earliest due time wins, and the
        highest priority; *override* replaces both. NaN and infinity raise
        ValueError.
        """
        if not math.isfinite(delay):
            raise ValueError(f"a delay must be finite, not {delay}")
        if self._is_closed():
            return
        if override:
            self._cancel_deferral(key)
        if delay <= 0:
            if self._collapse_deferred:
                self._cancel_deferral(key)
            self._put(key, priority)
        elif not (self._collapse_deferred and (key in self._ready or key in self._dirty)):
            if self._deferred.due(key) is not None:
                priority = max(priority, self._deferred_priorities.pop(key, 0))
            if priority:
                self._deferred_priorities[key] = priority
            self._deferred.defer(key, self._clock() + delay)

    def add_rate_limited(self, key: K, *, priority: int = 0) -> None:
        """Count a failure of *key* and add it after the delay that the limiter decides."""
        if self._is_closed():
            return
        if self._record:
            self._record.retries.inc()
        self.add_after(key, self._limiter.next_retry(key), priority=priority)

    def forget(self, key: K) -> None:
        """Reset the failures of *key*; neither a deferral nor a pending run of it is cancelled."""
        self._limiter.forget(key)

    def retries(self, key: K) -> int:
        """Return the failures of *key* since it was last forgotten."""
        return self._limiter.failures(key)

    def priority(self, key: K) -> int:
        """Return the priority with which the worker that has *key* got it; NotProcessing if none has."""
        entry = self._processing.get(key)
        if entry is None:
            raise NotProcessing(key)
        return entry.priority

    def get_nowait(self) -> K:
        """Take the next key; trio.WouldBlock if none is ready, QueueShutdown if none will be."""
        if self._phase is _Phase.CLOSED or (self._phase is _Phase.DRAINING and not self._ready and not self._dirty):
            raise QueueShutdown(f"work queue {self.name!r} was shut down")
        if not self._ready:
            raise trio.WouldBlock
        entry = self._ready.take()
        now = self._clock()
        if self._record:
            self._record.queue_duration.observe(now - entry.since)
        entry.since = now
        self._processing[entry.key] = entry
        if self._phase is _Phase.DRAINING and not self._ready and not self._dirty:
            # The other getters wait for keys that will not come.
            self._getters.unpark_all()
        return entry.key

    async def get(self) -> K:
        """Wait for the next key and take it; call done() when it was worked on.

        Raises QueueShutdown when nothing is left. A cancelled get() takes
        nothing.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        slept = False
        while True:
            # No checkpoint between wake-up and get_nowait(): a woken getter cannot be cancelled before it took its key.
            try:
                key = self.get_nowait()
            except trio.WouldBlock:
                await self._getters.park()
                slept = True
            else:
                break
        if not slept:
            # Shielded: this getter has taken the key already.
            await trio.lowlevel.cancel_shielded_checkpoint()
        return key

    def done(self, key: K) -> None:
        """Give *key* back; if it was added meanwhile it is ready again, at the tail.

        Raises NotProcessing if no worker has it.
        """
        entry = self._processing.pop(key, None)
        if entry is None:
            raise NotProcessing(key)
        if self._record:
            self._record.work_duration.observe(self._clock() - entry.since)
        priority = self._dirty.pop(key, None)
        if priority is not None:
            self._make_ready(key, priority)
        elif not self._ready and not self._processing:
            self._drainers.unpark_all()

    @asynccontextmanager
    async def item(self) -> AsyncIterator[K]:
        """Take a key as by get() and call done() at the end of the block, also on error and cancellation."""
        key = await self.get()
        try:
            yield key
        finally:
            self.done(key)

    def release_due(self) -> int:
        """Make every deferred key that is due ready and return how many that were; run() does so by itself."""
        return self._deferred.release(self._put_deferred)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Release deferred keys as they fall due, until shutdown(); cancelled, it leaves them deferred.

        A second call while the first runs raises RuntimeError.
        """
        if self._run_scope is not None:
            raise RuntimeError(f"work queue {self.name!r} runs already")
        try:
            with trio.CancelScope() as self._run_scope:
                task_status.started()
                if not self.is_shut_down:
                    await self._deferred.process(self._put_deferred)
        finally:
            self._run_scope = None

    def shutdown(self, *, drain: bool = False) -> None:
        """Accept nothing more and drop the deferrals.

        With *drain*, ready and dirty keys are still handed out; without, get()
        raises QueueShutdown at once, also after an earlier shutdown with
        drain.
        """
        self._phase = max(self._phase, _Phase.DRAINING if drain else _Phase.CLOSED)
        self._deferred.clear()
        self._deferred_priorities.clear()
        self._getters.unpark_all()
        self._drainers.unpark_all()
        if self._run_scope is not None:
            self._run_scope.cancel(reason="work queue shut down")

    async def wait_drained(self) -> None:
        """Wait until nothing is ready, dirty, or being processed.

        Raises QueueShutdown when that cannot come to pass: after a shutdown
        without drain that left keys behind.
        """
        await trio.lowlevel.checkpoint()
        while self._ready or self._processing:
            if self._phase is _Phase.CLOSED and (self._ready or self._dirty):
                raise QueueShutdown(f"work queue {self.name!r} was shut down with keys left")
            await self._drainers.park()

    def levels(self) -> QueueLevels:
        """Return counts and ages, for metrics."""
        now = self._clock() if self._processing else 0.0
        ages = [now - entry.since for entry in self._processing.values()]
        return QueueLevels(
            depths=self._ready.depths(),
            deferred=len(self._deferred),
            unfinished=sum(ages),
            longest=max(ages, default=0.0),
        )

    def snapshot(self) -> QueueSnapshot[K]:
        """Return a copy of everything that the queue holds."""
        now = self._clock()
        ready = tuple(ReadyKey(key=e.key, priority=e.priority, age=now - e.since) for e in self._ready)
        processing = tuple(
            KeyInHand(key=key, age=now - e.since, is_dirty=key in self._dirty) for key, e in self._processing.items()
        )
        deferred = tuple(DeferredKey(key=key, due_in=until - now) for until, key in self._deferred)
        keys = [item.key for items in (ready, processing, deferred) for item in items]
        return QueueSnapshot(
            name=self.name,
            ready=ready,
            processing=processing,
            deferred=deferred,
            failures={key: count for key in keys if (count := self._limiter.failures(key))},
        )

    def _is_closed(self) -> bool:
        if self._phase is _Phase.OPEN:
            return False
        if self._record:
            self._record.rejected.inc()
        return True

    def _put(self, key: K, priority: int) -> None:
        if key in self._processing:
            present = self._dirty.get(key)
            if present is None and self._record:
                self._record.adds.inc()
            if present is None or priority > present:
                self._dirty[key] = priority
        elif self._make_ready(key, priority) and self._record:
            self._record.adds.inc()

    def _make_ready(self, key: K, priority: int) -> bool:
        is_new = self._ready.add(key, priority, self._clock())
        if is_new and self._getters:
            self._getters.unpark()
        return is_new

    def _put_deferred(self, key: K) -> None:
        self._put(key, self._deferred_priorities.pop(key, 0))

    def _cancel_deferral(self, key: K) -> None:
        self._deferred.cancel(key)
        self._deferred_priorities.pop(key, None)
