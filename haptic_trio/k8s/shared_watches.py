"""Watches that several readers share: a later reader gets the known objects without another list request."""

import math
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import trio

from haptic_trio.errors import HapticError
from haptic_trio.k8s.client import Client, Deleted, Listed, Listing, Selection, Upserted, WatchEvent
from haptic_trio.k8s.resource import Resource, ResourceRef, ResourceType, ref_of
from haptic_trio.k8s.watch_feed import Drainable

BUFFER: Final = 5000
"""Events that a reader may be behind before it gets the list of all objects instead."""


class SharedWatches:
    """One watch of the cluster for each selection, for as long as any session reads it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._watches: dict[Selection, _SharedWatch] = {}
        self._opened_in, self._opened_out = trio.open_memory_channel[_SharedWatch](math.inf)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the cluster until cancelled; to be called once.

        An error of a watch is raised in its readers. Without readers, an error
        that no retry can solve is raised here.
        """
        async with trio.open_nursery() as nursery:
            task_status.started()
            async for watch in self._opened_out:
                nursery.start_soon(self._follow, watch)

    def open_session(self) -> "WatchSession":
        """Return a session; the caller closes it."""
        return WatchSession(self)

    def join(self, selection: Selection) -> "Reader":
        """Return a new reader of *selection*; the caller closes it."""
        watch = self._watches.get(selection)
        if watch is None or not watch.readers:
            # The last reader has left, and the watch is ending.
            watch = self._watches[selection] = _SharedWatch(selection)
            self._opened_in.send_nowait(watch)
        return Reader(watch)

    async def _follow(self, watch: "_SharedWatch") -> None:
        failure: Exception | None = None
        with watch.scope:
            try:
                async with self.client.watch(watch.selection) as events:
                    async for event in events:
                        watch.take([event, *(events.drain() if isinstance(events, Drainable) else ())])
            except Exception as exc:  # noqa: BLE001  raised in the readers
                failure = exc
        if self._watches.get(watch.selection) is watch:
            del self._watches[watch.selection]
        if failure is not None and not watch.readers and not isinstance(failure, HapticError | OSError):
            raise failure
        watch.end(failure)


class WatchSession:
    """A `Client` whose watches go on when they are opened again, until `close`.

    What a reader missed between two openings is not lost. One reader at a
    time may open a selection.
    """

    def __init__(self, watches: SharedWatches) -> None:
        self._watches = watches
        self._readers: dict[Selection, Reader] = {}

    @asynccontextmanager
    async def watch(self, selection: Selection) -> AsyncIterator["Reader"]:
        """See `Client.watch`. A watch that goes on does not begin with `Listed`; see `Resumable`."""
        reader = self._readers.get(selection)
        if reader is None:
            reader = self._readers[selection] = self._watches.join(selection)
        else:
            reader.resume()
        yield reader

    def go_on_after(self, former: "WatchSession", selection: Selection) -> None:
        """Have the watch of *selection*, not opened yet, begin after the events that *former* has processed so far.

        Its stores must have the content that those of *former* have now.
        Does nothing if *former* has not processed a list: this watch then
        begins with a list of its own.
        """
        reader = former._readers.get(selection)  # noqa: SLF001  the two are of one class
        if reader is not None and reader.is_resumed:
            self._readers[selection] = reader.copied()

    @property
    def listing(self) -> Listing:
        """See `Client.listing`."""
        return self._watches.client.listing

    async def get(self, resource_type: ResourceType, namespace: str, name: str) -> Resource:
        """See `Client.get`."""
        return await self._watches.client.get(resource_type, namespace, name)

    def close(self) -> None:
        """End the readers of this session, and each watch that no other session reads."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()


class _SharedWatch:
    """State of one watch: the known objects and the readers."""

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        self.scope = trio.CancelScope()
        self.readers: set[Reader] = set()
        self.known: dict[ResourceRef, Resource] | None = None
        """None before the first list."""
        self.has_ended = False
        self.failure: Exception | None = None

    def take(self, events: Sequence[WatchEvent]) -> None:
        """Pass *events* on to all readers."""
        for event in events:
            match event:
                case Listed(objects):
                    self.known = {ref_of(resource): resource for resource in objects}
                case Upserted(resource) if self.known is not None:
                    self.known[ref_of(resource)] = resource
                case Deleted(resource) if self.known is not None:
                    self.known.pop(ref_of(resource), None)
        for reader in self.readers:
            reader.offer(events)

    def end(self, failure: Exception | None) -> None:
        """Let all readers end, with *failure* if it is given."""
        self.has_ended, self.failure = True, failure
        for reader in self.readers:
            reader.wake()


class Reader:
    """An asynchronous iterator over the events of a shared watch.

    Begins with `Listed`. An event counts as processed when the next one is
    requested.
    """

    def __init__(self, watch: _SharedWatch) -> None:
        self._watch = watch
        self._events: deque[WatchEvent] = deque()
        self._lists = watch.known is not None
        """Whether the next event is the list of all known objects."""
        self._has_list = self._is_resumed = False
        self._is_taking_list = False
        """Whether a list was handed out, and may be in the stores in part."""
        self._arrived = trio.Event()
        watch.readers.add(self)

    @property
    def is_resumed(self) -> bool:
        """See `Resumable`."""
        return self._is_resumed

    def copied(self) -> "Reader":
        """Return a reader that has processed the same events; the caller closes it.

        If a list is being processed, the copy gets the list of all known objects again.
        """
        copy = Reader(self._watch)
        copy._lists = self._lists or self._is_taking_list
        copy._events = deque(() if copy._lists else self._events)
        copy._has_list, copy._is_resumed = self._has_list, self._is_resumed
        return copy

    def resume(self) -> None:
        """Begin another iteration, after the last processed event."""
        if self._has_list and (self._is_taking_list or not self._is_resumed):
            self._events.clear()
            self._lists = True

    def close(self) -> None:
        """Leave the watch, which ends without readers."""
        self._watch.readers.discard(self)
        if not self._watch.readers:
            self._watch.scope.cancel(reason="nothing reads this watch any more")

    def offer(self, events: Iterable[WatchEvent]) -> None:
        """Buffer *events*; never waits."""
        if not self._lists:
            self._events.extend(events)
            if len(self._events) > BUFFER:
                self._events.clear()
                self._lists = True
        self.wake()

    def wake(self) -> None:
        """Wake the iteration, which then drains this watch."""
        self._arrived.set()

    def drain(self) -> Sequence[WatchEvent]:
        """See `Drainable.drain`."""
        events = tuple(self._events)
        self._events.clear()
        self._is_taking_list |= any(type(event) is Listed for event in events)
        return events

    def __aiter__(self) -> "Reader":
        return self

    async def __anext__(self) -> WatchEvent:
        self._is_resumed, self._is_taking_list = self._has_list, False
        if self._events or self._lists or self._watch.has_ended or self._watch.failure is not None:
            await trio.lowlevel.checkpoint()
        while True:
            self._arrived = trio.Event()
            if self._lists and self._watch.known is not None:
                self._lists, self._has_list, self._is_taking_list = False, True, True
                return Listed(tuple(self._watch.known.values()))
            if self._events:
                self._has_list = True
                event = self._events.popleft()
                self._is_taking_list = type(event) is Listed
                return event
            if self._watch.failure is not None:
                raise self._watch.failure
            if self._watch.has_ended:
                raise StopAsyncIteration
            await self._arrived.wait()
