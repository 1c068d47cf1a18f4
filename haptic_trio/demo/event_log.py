"""Log of controller events that the demo waits for."""

from collections.abc import Callable
from typing import TypeVar

import msgspec
import trio

Fact = TypeVar("Fact", bound=msgspec.Struct)


class FactLog:
    """All recorded events, in order."""

    def __init__(self) -> None:
        self._events: list[msgspec.Struct] = []
        self._changed = trio.Event()

    def __len__(self) -> int:
        return len(self._events)

    def take(self, fact: msgspec.Struct) -> None:
        """Record *fact* and wake the tasks that wait for events."""
        self._events.append(fact)
        self._changed.set()
        self._changed = trio.Event()

    async def wait_for(self, kind: type[Fact], where: Callable[[Fact], bool], *, since: int) -> Fact:
        """Wait for and return the first event of *kind* after the first *since* events for which *where* is true."""
        position = since
        while True:
            for fact in self._events[position:]:
                if isinstance(fact, kind) and where(fact):
                    return fact
            position = len(self._events)
            await self._changed.wait()

    def find_last(self, kind: type[Fact]) -> Fact | None:
        """Return the newest event of *kind*, or None."""
        return next((fact for fact in reversed(self._events) if isinstance(fact, kind)), None)

    def all(self, kind: type[Fact], *, since: int = 0) -> list[Fact]:
        """Return all events of *kind* after the first *since* events, in order."""
        return [fact for fact in self._events[since:] if isinstance(fact, kind)]
