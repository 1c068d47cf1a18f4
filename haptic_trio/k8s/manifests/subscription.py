"""Subscription to a cluster in this process: a bounded buffer that resynchronises on overflow."""

from collections import deque
from collections.abc import Callable, Iterable

import trio

from haptic_trio.k8s.client import Deleted, Listed, Selection, Upserted, WatchEvent
from haptic_trio.k8s.manifests.catalog import ObjectChange, type_of
from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.selectors import parse_field_selector, parse_label_selector


class Matcher:
    """Decides which objects, and therefore which changes, a selection is about."""

    def __init__(self, selection: Selection) -> None:
        """Raises `SelectorError`."""
        self._type = selection.type
        self._namespaces = frozenset(selection.namespaces)
        self._labels = parse_label_selector(selection.label_selector)
        self._fields = parse_field_selector(selection.field_selector)
        self._reduce = selection.reduce or _keep

    def matches(self, resource: Resource) -> bool:
        """Whether *resource* is selected."""
        return (
            type_of(resource) == self._type
            and (not self._namespaces or resource["metadata"].get("namespace", "") in self._namespaces)
            and self._labels.matches(resource)
            and self._fields.matches(resource)
        )

    def select(self, resources: Iterable[Resource]) -> tuple[Resource, ...]:
        """Return those of *resources* that are selected, as the watcher wants them."""
        return tuple(self._reduce(resource) for resource in resources if self.matches(resource))

    def event_for(self, change: ObjectChange) -> WatchEvent | None:
        """Return what *change* looks like to the watcher; an object that no longer matches is deleted for it."""
        if change.new is not None and self.matches(change.new):
            return Upserted(self._reduce(change.new))
        if change.old is not None and self.matches(change.old):
            return Deleted(self._reduce(change.old))
        return None


class Subscription:
    """An asynchronous iterator of watch events for one reader.

    Begins with `Listed`. When the reader has fallen *buffer* events behind,
    these are dropped and the next event is `Listed` again, made at the
    moment it is read.
    """

    def __init__(self, matcher: Matcher, list_now: Callable[[], Iterable[Resource]], *, buffer: int) -> None:
        self._matcher = matcher
        self._list_now = list_now
        self._buffer = buffer
        self._events: deque[WatchEvent] = deque()
        self._resync = True
        self._closed = False
        self._arrived = trio.Event()

    def offer(self, change: ObjectChange) -> None:
        """Buffer *change* if it is selected; never waits."""
        event = None if self._resync else self._matcher.event_for(change)
        if event is None:
            return
        if len(self._events) >= self._buffer:
            self._events.clear()
            self._resync = True
        else:
            self._events.append(event)
        self._arrived.set()

    def close(self) -> None:
        """End the iteration after the events that are buffered."""
        self._closed = True
        self._resync = False
        self._arrived.set()

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> WatchEvent:
        await trio.lowlevel.checkpoint()
        while True:
            if self._resync:
                self._resync = False
                return Listed(self._matcher.select(self._list_now()))
            if self._events:
                return self._events.popleft()
            if self._closed:
                raise StopAsyncIteration
            self._arrived = trio.Event()
            await self._arrived.wait()


def _keep(resource: Resource) -> Resource:
    return resource
