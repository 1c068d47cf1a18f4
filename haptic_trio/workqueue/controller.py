"""Controller: one reconciliation per key at a time, for keys from callers; retries with backoff.

It is level-triggered: only the key is kept, and the reconciler reads the
newest state itself.
"""

import math
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar

import msgspec
import trio

from haptic_trio.errors import HapticError, text_of
from haptic_trio.logs import Logger, get_logger
from haptic_trio.workqueue.limiter import ExponentialLimiter
from haptic_trio.workqueue.metrics import WorkQueueMetrics
from haptic_trio.workqueue.outcome import PermanentError, RequeueAfter, contained, read_error, requeue_now
from haptic_trio.workqueue.work_queue import QueueShutdown, QueueSnapshot, WorkQueue

__all__ = [
    "Controller",
    "LeaderGate",
    "PermanentError",
    "Reconcile",
    "RequeueAfter",
    "requeue_now",
]

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

Reconcile: TypeAlias = Callable[[K], Awaitable[RequeueAfter | None]]
"""Brings the observed state of one key in line with the desired state; RequeueAfter asks for another run."""


class LeaderGate(Protocol):
    """Permission to work, such as a lease."""

    async def wait_held(self) -> None:
        """Wait until work may be done; return at once while it may."""
        ...

    async def wait_lost(self) -> None:
        """Wait until work may no longer be done; return at once while it may not."""
        ...


class _AlwaysHeld:
    async def wait_held(self) -> None:
        await trio.lowlevel.checkpoint()

    async def wait_lost(self) -> None:
        await trio.sleep_forever()


class _Outcome(msgspec.Struct, frozen=True):
    result: str
    after: float = 0.0
    error: Exception | None = None


class Controller(Generic[K]):
    """Runs *reconcile* for every key that was enqueued.

    Configure it, then call run() once. Two tasks never have the same key; a
    key that is enqueued while it runs, runs again. After an Exception from
    *reconcile* the key runs again after its backoff.
    """

    def __init__(
        self,
        reconcile: Reconcile[K],
        *,
        name: str,
        metrics: WorkQueueMetrics | None = None,
    ) -> None:
        self.name = name
        self._reconcile = reconcile
        self._metrics = metrics
        self._log = get_logger(name)
        self._base, self._max = 0.005, 1000.0
        self._workers = 1
        self._limit = math.inf
        self._grace, self._drain = 5.0, False
        self._gate: LeaderGate = _AlwaysHeld()
        self._queue_factory: Callable[[float, float], WorkQueue[K]] = self._make_queue
        self._early: list[tuple[K, int]] = []
        self._queue: WorkQueue[K] | None = None
        self._is_begun = False
        self._is_stopping = False
        self._grace_scope: trio.CancelScope | None = None

    def with_backoff(self, base: float, max: float) -> Self:  # noqa: A002 - the field's word for a backoff's cap
        """Delay retries by *base* seconds, doubled for each failure up to *max* (default 5 ms, 1000 s)."""
        self._require_not_begun()
        self._base, self._max = base, max
        return self

    def with_workers(self, n: int) -> Self:
        """Reconcile up to *n* keys at the same time (default, and for anything below, 1)."""
        self._require_not_begun()
        self._workers = max(1, n)
        return self

    def with_queue_factory(self, factory: Callable[[float, float], WorkQueue[K]]) -> Self:
        """Let run() make its queue by *factory*, called once with the backoff's base and cap."""
        self._require_not_begun()
        self._queue_factory = factory
        return self

    def with_logger(self, logger: Logger) -> Self:
        """Log to *logger* instead of the one named like the controller."""
        self._require_not_begun()
        self._log = logger
        return self

    def with_timeout(self, seconds: float) -> Self:
        """Cancel a reconciliation that takes longer than *seconds* and treat it as an error."""
        self._require_not_begun()
        self._limit = seconds
        return self

    def with_leader(self, gate: LeaderGate) -> Self:
        """Reconcile only while *gate* is held; keys are still accepted, and wait.

        When *gate* is lost, keys being processed are cancelled and run again in the
        next term.
        """
        self._require_not_begun()
        self._gate = gate
        return self

    def with_shutdown(self, grace: float, *, drain: bool = False) -> Self:
        """Give active keys *grace* seconds (default 5) when run() is cancelled; with *drain*, ready ones too."""
        self._require_not_begun()
        self._grace, self._drain = grace, drain
        return self

    def enqueue(self, *keys: K, priority: int = 0) -> None:
        """Reconcile *keys*; before run() they are kept for it, once it stops they are ignored."""
        if self._queue is None:
            self._early.extend((key, priority) for key in keys)
        else:
            for key in keys:
                self._queue.add(key, priority=priority)

    def snapshot(self) -> QueueSnapshot[K] | None:
        """Return what the queue holds; None before run()."""
        return None if self._queue is None else self._queue.snapshot()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Work until cancelled; then give keys being processed the grace time, and return.

        started() means that keys are accepted and all tasks run. A second
        call raises RuntimeError.
        """
        self._require_not_begun()
        self._is_begun = True
        self._queue = queue = self._queue_factory(self._base, self._max)
        for key, priority in self._early:
            queue.add(key, priority=priority)
        self._early.clear()
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(queue.run)
                nursery.start_soon(self._stop_when_cancelled, queue)
                self._start_feeds(queue, nursery=nursery)
                nursery.start_soon(self._run_terms, queue)
                task_status.started()
        finally:
            self._stop(queue)

    def _start_feeds(self, queue: WorkQueue[K], *, nursery: trio.Nursery) -> None:
        """Start the tasks that add keys by themselves; for subclasses."""

    def _require_not_begun(self) -> None:
        if self._is_begun:
            raise RuntimeError(f"controller {self.name!r} runs, or has run")

    def _make_queue(self, base: float, max: float) -> WorkQueue[K]:  # noqa: A002 - as in with_backoff
        return WorkQueue(name=self.name, limiter=ExponentialLimiter(base, max), metrics=self._metrics)

    async def _stop_when_cancelled(self, queue: WorkQueue[K]) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self._stop(queue)

    def _stop(self, queue: WorkQueue[K]) -> None:
        if self._is_stopping:
            return
        self._is_stopping = True
        queue.shutdown(drain=self._drain)
        if self._grace_scope is not None:
            self._grace_scope.deadline = trio.current_time() + self._grace

    async def _run_terms(self, queue: WorkQueue[K]) -> None:
        """Run the workers of one term of leadership after another, shielded for the grace time."""
        while await self._wait_term():
            with trio.CancelScope(shield=True) as self._grace_scope:
                async with trio.open_nursery() as term:
                    term.start_soon(self._run_workers, queue, term.cancel_scope)
                    await self._gate.wait_lost()
                    term.cancel_scope.cancel(reason="leadership lost")

    async def _wait_term(self) -> bool:
        """Wait for a term; False after a stop, whose grace time would not end a term that opens now."""
        if not self._is_stopping:
            await self._gate.wait_held()
        return not self._is_stopping

    async def _run_workers(self, queue: WorkQueue[K], term: trio.CancelScope) -> None:
        async with trio.open_nursery() as workers:
            for _ in range(self._workers):
                workers.start_soon(self._work, queue)
        term.cancel(reason="queue shut down")

    async def _work(self, queue: WorkQueue[K]) -> None:
        active = self._metrics.active_workers.labels(self.name) if self._metrics else None
        while True:
            try:
                key = await queue.get()
            except QueueShutdown:
                return
            if active is not None:
                active.inc()
            try:
                await self._handle(queue, key)
            finally:
                if active is not None:
                    active.dec()

    async def _handle(self, queue: WorkQueue[K], key: K) -> None:
        priority = queue.priority(key)
        errors: list[Exception] = []
        is_settled = False
        try:
            outcome = await self._attempt(key, errors)
            self._settle(queue, key, outcome, priority)
            is_settled = True
        finally:
            if not is_settled:
                for error in errors:
                    self._warn("reconciliation failed while it was cancelled", error, key=key)
                if not self._is_stopping:
                    queue.add(key, priority=priority)
            queue.done(key)

    async def _attempt(self, key: K, errors: list[Exception]) -> _Outcome:
        """Reconcile *key* once; *errors* gets the error, also if this is cancelled."""
        answer: RequeueAfter | None = None
        with contained(errors.append), trio.move_on_after(self._limit) as scope:
            answer = await self._reconcile(key)
        if scope.cancelled_caught:
            return _Outcome("timeout", error=errors[0] if errors else None)
        if errors:
            reading = read_error(errors[0])
            if reading is None:
                return _Outcome("error", error=errors[0])
            if isinstance(reading, PermanentError):
                return _Outcome("permanent", error=errors[0])
            answer = reading
        if answer is None:
            return _Outcome("success")
        return _Outcome("requeue_after", after=answer.after)

    def _settle(self, queue: WorkQueue[K], key: K, outcome: _Outcome, priority: int) -> None:
        """Decide whether and when *key* runs again; before done(), so that "now" makes it dirty."""
        if self._metrics:
            self._metrics.reconciles.labels(self.name, outcome.result).inc()
        match outcome.result:
            case "error" | "timeout":
                queue.add_rate_limited(key, priority=priority)
                self._warn("reconciliation failed", outcome.error, key=key, failures=queue.retries(key))
            case "requeue_after":
                queue.forget(key)
                queue.add_after(key, outcome.after, priority=priority)
            case _:
                queue.forget(key)
                if outcome.error is not None:
                    self._warn("reconciliation failed permanently", outcome.error, key=key)

    def _warn(self, message: str, error: Exception | None, **fields: Any) -> None:
        # Other errors are bugs, which need a traceback.
        is_expected = error is None or isinstance(error, HapticError | OSError)
        self._log.warning(
            message,
            controller=self.name,
            error="time limit exceeded" if error is None else text_of(error),
            exc_info=None if is_expected else error,
            **fields,
        )
