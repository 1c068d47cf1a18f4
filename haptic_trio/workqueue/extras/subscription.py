"""Event sources of a controller, mapped to keys and resumed after an error."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable, Iterable
from contextlib import aclosing, asynccontextmanager
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec
import trio

from haptic_trio.workqueue.limiter import ExponentialLimiter
from haptic_trio.workqueue.outcome import contained

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

SNAPSHOT_PRIORITY = -100
"""Keys of a listing run after those of live changes."""


class EventKind(StrEnum):
    """The kind of an event."""

    UPSERT = "upsert"
    DELETE = "delete"
    SNAPSHOT_START = "snapshot_start"
    """A complete listing begins; indices are reset."""
    SNAPSHOT_END = "snapshot_end"
    """The listing is complete; changes continue at its index."""


class Event(msgspec.Struct, Generic[T], frozen=True):
    """One change at a source, or a boundary of a listing."""

    index: int
    """Position in the source's history; changes of one transaction may share it."""
    kind: EventKind
    obj: T | None = None
    """The object; None at boundaries."""


class Source(Protocol[T]):
    """Something that lists objects and then reports their changes."""

    def events(self, from_index: int | None, /) -> AsyncIterator[Event[T]]:
        """Stream what happened after *from_index*, or everything if that is None.

        A source that cannot resume there, or is asked for everything, sends
        a listing between the two boundaries first. An async generator is
        closed when it is left.
        """
        ...


class EventMapper(Generic[K]):
    """Turns the events of one subscription into keys, and knows where to resume.

    Every key gets through that may have changed: those of upserts and deletes
    alike, and after a listing also the keys that were known before and are
    not in it, since their deletion was missed.
    """

    def __init__(self, map_object: Callable[[Any], Iterable[K]], *, one_to_one: bool) -> None:
        """With *one_to_one* no two objects have a key in common, so a deleted object's keys can be forgotten."""
        self._map_object = map_object
        self._one_to_one = one_to_one
        self._known: set[K] = set()
        self._listed: set[K] | None = None
        self._floor: int | None = None
        self.index: int | None = None
        """Index at which a new stream should resume; None for a listing."""

    def begin_stream(self) -> None:
        """Record that a stream begins at `index`; an incomplete listing of the last stream is dropped."""
        self._listed = None
        self._floor = self.index

    def apply(self, event: Event[Any]) -> list[tuple[K, int]]:
        """Return the keys to enqueue and their priorities; errors of the mapping pass."""
        if event.kind is EventKind.SNAPSHOT_START:
            self._listed = set()
            self.index = self._floor = None
            return []
        if event.kind is EventKind.SNAPSHOT_END:
            return self._end_listing(event.index)
        if self._listed is None:
            if self._is_old(event.index):
                return []
            self.index = event.index
        keys = list(self._map_object(event.obj))
        if event.kind is EventKind.DELETE:
            if self._one_to_one:
                self._known.difference_update(keys)
        else:
            self._known.update(keys)
            if self._listed is not None:
                self._listed.update(keys)
        priority = 0 if self._listed is None else SNAPSHOT_PRIORITY
        return [(key, priority) for key in keys]

    def _is_old(self, index: int) -> bool:
        # Equal to the index resumed from is old; equal to one reached in this stream is the same transaction.
        return (self._floor is not None and index <= self._floor) or (self.index is not None and index < self.index)

    def _end_listing(self, index: int) -> list[tuple[K, int]]:
        self.index = index if self.index is None else max(index, self.index)
        if self._listed is None:
            return []
        missed = self._known - self._listed
        self._known, self._listed = self._listed, None
        return [(key, 0) for key in missed]


class Subscription(Generic[K]):
    """One source, whose events are mapped to keys."""

    def __init__(self, source: Source[Any], mapper: EventMapper[K]) -> None:
        self._source = source
        self._mapper = mapper
        self._backoff: ExponentialLimiter[None] = ExponentialLimiter(0.5, 30.0)

    async def run(
        self,
        enqueue: Callable[[K, int], None],
        *,
        on_source_error: Callable[[Exception], None],
        on_event_error: Callable[[Exception], None],
    ) -> None:
        """Enqueue the keys of all events until cancelled.

        A stream that ends, or fails and has its error taken by
        *on_source_error*, is opened again where it left off, after 0.5 s, and
        twice that for each further stream without an event, up to 30 s.
        """
        while True:
            with contained(on_source_error):
                await self._follow(enqueue, on_event_error)
            await trio.sleep(self._backoff.next_retry(None))

    async def _follow(self, enqueue: Callable[[K, int], None], on_event_error: Callable[[Exception], None]) -> None:
        self._mapper.begin_stream()
        async with _closing(self._source.events(self._mapper.index)) as events:
            async for event in events:
                self._backoff.forget(None)
                with contained(on_event_error):
                    for key, priority in self._mapper.apply(event):
                        enqueue(key, priority)


@asynccontextmanager
async def _closing(events: AsyncIterator[Event[T]]) -> AsyncIterator[AsyncIterator[Event[T]]]:
    if hasattr(events, "aclose"):
        async with aclosing(cast("AsyncGenerator[Event[T], None]", events)):
            yield events
    else:
        yield events
