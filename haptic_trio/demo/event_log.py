"""Log of controller events that the demo waits for."""

from collections.abc import Callable
from typing import TypeVar

import msgspec
import trio

EventType = TypeVar("EventType", bound=msgspec.Struct)


class EventLog:
    """All recorded events, in order."""

    def __init__(self) -> None:
        self._events: list[msgspec.Struct] = []
        self._changed = trio.Event()

    def __len__(self) -> int:
        return len(self._events)

    def take(self, event: msgspec.Struct) -> None:
        """Record *event* and wake the tasks that wait for events."""
        self._events.append(event)
        self._changed.set()
        self._changed = trio.Event()

    async def wait_for(self, kind: type[EventType], where: Callable[[EventType], bool], *, since: int) -> EventType:
        """Wait for and return the first event of *kind* after the first *since* events for which *where* is true."""
        position = since
        while True:
            for event in self._events[position:]:
                if isinstance(event, kind) and where(event):
                    return event
            position = len(self._events)
            await self._changed.wait()

    def find_last(self, kind: type[EventType]) -> EventType | None:
        """Return the newest event of *kind*, or None."""
        return next((event for event in reversed(self._events) if isinstance(event, kind)), None)

    def all(self, kind: type[EventType], *, since: int = 0) -> list[EventType]:
        """Return all events of *kind* after the first *since* events, in order."""
        return [event for event in self._events[since:] if isinstance(event, kind)]
