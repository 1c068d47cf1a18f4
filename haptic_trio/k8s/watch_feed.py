"""Bounded buffer between watches and the reader of a store, which merges namespaces."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol, runtime_checkable

import trio

from haptic_trio.k8s.client import Deleted, Listed, Upserted, WatchEvent
from haptic_trio.k8s.resource import Resource, ResourceRef, ref_of

BUFFER: Final = 5000
"""Events that the reader may be behind before the watch is no longer read."""


@runtime_checkable
class Drainable(Protocol):
    """A source of watch events that can hand over at once what has arrived."""

    def drain(self) -> Sequence[WatchEvent]:
        """Return the events that can be had without waiting, in order; they are not returned again."""
        ...


@runtime_checkable
class Resumable(Protocol):
    """A source of watch events that may go on where another reader of the same stores has ended."""

    @property
    def is_resumed(self) -> bool:
        """Whether the stores hold the first list already, so that the next event need not be `Listed`."""
        ...


class Feed:
    """An asynchronous iterator over what `put` has given it, until it is closed."""

    def __init__(self, *, buffer: int = BUFFER) -> None:
        self._buffer = buffer
        self._events: deque[WatchEvent] = deque()
        self._closed = False
        self._changed = trio.Event()

    async def put(self, events: Iterable[WatchEvent]) -> None:
        """Append *events*, then wait for as long as the reader is too far behind."""
        self._events.extend(events)
        self._wake()
        while len(self._events) > self._buffer and not self._closed:
            await self._changed.wait()

    def close(self) -> None:
        """End the iteration after what is buffered."""
        self._closed = True
        self._wake()

    def drain(self) -> Sequence[WatchEvent]:
        """See `Drainable.drain`."""
        events = tuple(self._events)
        self._events.clear()
        self._wake()
        return events

    def __aiter__(self) -> "Feed":
        return self

    async def __anext__(self) -> WatchEvent:
        if self._events:
            await trio.lowlevel.checkpoint()
        while not self._events:
            if self._closed:
                raise StopAsyncIteration
            await self._changed.wait()
        event = self._events.popleft()
        if len(self._events) == self._buffer:
            self._wake()
        return event

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


class NamespaceMerge:
    """Makes one stream of events of the streams of several namespaces.

    Begins with `Listed` once every namespace has its first list; a later
    list of one namespace becomes the changes that it amounts to, because
    `Listed` would replace the other namespaces, too.
    """

    def __init__(self, namespaces: Iterable[str]) -> None:
        self._known: dict[str, dict[ResourceRef, Resource] | None] = dict.fromkeys(namespaces)
        self._is_complete = False

    def take(self, namespace: str, events: Iterable[WatchEvent]) -> list[WatchEvent]:
        """Return what *events* of *namespace* mean for the reader."""
        merged: list[WatchEvent] = []
        for event in events:
            match event:
                case Listed(objects):
                    merged += self._list(namespace, {ref_of(resource): resource for resource in objects})
                    continue
                case Upserted(resource):
                    self._of(namespace)[ref_of(resource)] = resource
                case Deleted(resource):
                    self._of(namespace).pop(ref_of(resource), None)
            if self._is_complete:
                merged.append(event)
        return merged

    def _of(self, namespace: str) -> dict[ResourceRef, Resource]:
        known = self._known[namespace]
        assert known is not None, "a list comes first"
        return known

    def _list(self, namespace: str, listed: dict[ResourceRef, Resource]) -> list[WatchEvent]:
        before = self._known[namespace] or {}
        self._known[namespace] = listed
        if self._is_complete:
            return _difference(before, listed)
        complete = [known for known in self._known.values() if known is not None]
        if len(complete) < len(self._known):
            return []
        self._is_complete = True
        return [Listed(tuple(resource for known in complete for resource in known.values()))]


def _difference(before: Mapping[ResourceRef, Resource], after: Mapping[ResourceRef, Resource]) -> list[WatchEvent]:
    gone: list[WatchEvent] = [Deleted(resource) for ref, resource in before.items() if ref not in after]
    return gone + [Upserted(resource) for ref, resource in after.items() if before.get(ref) != resource]
