"""Log of controller events that the demo waits for."""

from collections.abc import Callable
from typing import TypeVar

import msgspec
import trio

Fact = TypeVar("Fact", bound=msgspec.Struct)


class FactLog:
    """Every fact that was told, in order."""

    def __init__(self) -> None:
        self._facts: list[msgspec.Struct] = []
        self._changed = trio.Event()

    def __len__(self) -> int:
        return len(self._facts)

    def take(self, fact: msgspec.Struct) -> None:
        """Note *fact* and wake all who wait for one."""
        self._facts.append(fact)
        self._changed.set()
        self._changed = trio.Event()

    async def wait_for(self, kind: type[Fact], where: Callable[[Fact], bool], *, since: int) -> Fact:
        """Return the first fact of *kind* that fulfils *where*, of those told after the first *since*."""
        position = since
        while True:
            for fact in self._facts[position:]:
                if isinstance(fact, kind) and where(fact):
                    return fact
            position = len(self._facts)
            await self._changed.wait()

    def find_last(self, kind: type[Fact]) -> Fact | None:
        """Return the newest fact of *kind*, or None."""
        return next((fact for fact in reversed(self._facts) if isinstance(fact, kind)), None)

    def all(self, kind: type[Fact], *, since: int = 0) -> list[Fact]:
        """Return every fact of *kind* told after the first *since*, in order."""
        return [fact for fact in self._facts[since:] if isinstance(fact, kind)]
