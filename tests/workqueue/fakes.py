"""Fakes for the surroundings of a controller: a source, a lease, and a cancellation at a chosen step."""

from bisect import bisect
from collections.abc import AsyncIterator, Callable
from typing import Literal

import trio

from haptic_trio.workqueue.controller import Controller, Reconcile, RequeueAfter
from haptic_trio.workqueue.extras.source_controller import SourceController
from haptic_trio.workqueue.extras.subscription import Event, EventKind


class FakeSource:
    """Keeps a history of its objects and sends it to each stream; streams can be broken."""

    def __init__(self, *objects: str) -> None:
        self.objects = dict.fromkeys(objects, 0)
        self.changes: list[Event[str]] = []
        self.index = 1
        self.oldest = 0
        self.streams = 0
        self.error: Exception | None = None
        self._changed = trio.lowlevel.ParkingLot()

    def put(self, obj: str) -> None:
        self._append(EventKind.UPSERT, obj)
        self.objects[obj] = self.index

    def delete(self, obj: str) -> None:
        self._append(EventKind.DELETE, obj)
        del self.objects[obj]

    def break_streams(self, error: Exception) -> None:
        self.error = error
        self._changed.unpark_all()

    def forget_history(self) -> None:
        """End streams that are behind, and force those that come back to list."""
        self.oldest = self.index
        self._changed.unpark_all()

    async def events(self, from_index: int | None) -> AsyncIterator[Event[str]]:
        self.streams += 1
        sent = from_index
        if sent is None or sent < self.oldest:
            sent = self.index
            yield Event(sent, EventKind.SNAPSHOT_START)
            for obj in list(self.objects):
                yield Event(sent, EventKind.UPSERT, obj)
            yield Event(sent, EventKind.SNAPSHOT_END)
        while True:
            if sent < self.oldest:
                raise OSError("history is gone")
            for event in self.changes[bisect(self.changes, sent, key=lambda event: event.index) :]:
                sent = event.index
                yield event
            if self.error is not None:
                error, self.error = self.error, None
                raise error
            if sent == self.index:
                await self._changed.park()

    def _append(self, kind: EventKind, obj: str) -> None:
        self.index += 1
        self.changes.append(Event(self.index, kind, obj))
        self._changed.unpark_all()


class Gate:
    """A lease that the test gives and takes."""

    def __init__(self) -> None:
        self.is_held = False
        self._changed = trio.lowlevel.ParkingLot()

    def flip(self, is_held: bool) -> None:
        self.is_held = is_held
        self._changed.unpark_all()

    async def wait_held(self) -> None:
        await trio.lowlevel.checkpoint()
        while not self.is_held:
            await self._changed.park()

    async def wait_lost(self) -> None:
        await trio.lowlevel.checkpoint()
        while self.is_held:
            await self._changed.park()


class CancelAtStep(trio.abc.Instrument):
    """Cancels a scope at the *number*-th step of the tasks whose name contains *name*."""

    def __init__(self, name: str, cancel: Callable[[], object], number: int, when: Literal["before", "after"]) -> None:
        self.name = name
        self.cancel = cancel
        self.number = number
        self.when = when
        self.seen = 0

    def _step(self, task: trio.lowlevel.Task) -> None:
        if self.name in task.name:
            self.seen += 1
            if self.seen == self.number:
                self.cancel()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if self.when == "before":
            self._step(task)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self.when == "after":
            self._step(task)


class Recorder:
    """A reconciler that records when each key ran; *script* has the results of its next runs."""

    def __init__(self, duration: float = 0.0) -> None:
        self.duration = duration
        self.runs: list[tuple[float, str]] = []
        self.script: list[Exception | RequeueAfter | None] = []
        self.running = 0
        self.most_running = 0

    @property
    def keys(self) -> list[str]:
        return [key for _, key in self.runs]

    async def __call__(self, key: str) -> RequeueAfter | None:
        self.runs.append((trio.current_time(), key))
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await trio.sleep(self.duration)
        finally:
            self.running -= 1
        step = self.script.pop(0) if self.script else None
        if isinstance(step, RequeueAfter):
            return step
        if step is not None:
            raise step
        return None


def make_controller(reconcile: Reconcile[str]) -> Controller[str]:
    """Return a controller without sources."""
    return Controller(reconcile, name="demo")


def make_source_controller(reconcile: Reconcile[str]) -> SourceController[str]:
    """Return a controller whose sources' objects are their own keys."""
    return SourceController(reconcile, name="demo", key_of=str)
