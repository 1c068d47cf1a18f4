"""Pool of HAProxy instances that tests with equal configurations share."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from haptic_trio.errors import leaves_of
from haptic_trio.haproxy.model import Generation
from haptic_trio.validation_tests.live.instance import Instance, InstanceError, running


class _Entry:
    def __init__(self) -> None:
        self.settled = trio.Event()
        self.leave = trio.Event()
        self.instance: Instance | None = None
        self.why = ""
        self.users = 0


class InstancePool:
    """Keeps a few instances running in the caller's nursery."""

    def __init__(self, binary: Path, *, most_idle: int, scratch: Path | None = None) -> None:
        """At most *most_idle* unused instances keep running."""
        self._binary = binary
        self._most_idle = most_idle
        self._scratch = scratch
        # Least recently used first.
        self._entries: dict[str, _Entry] = {}

    @asynccontextmanager
    async def borrow(self, generation: Generation, *, nursery: trio.Nursery) -> AsyncIterator[Instance]:
        """Yield an instance that runs *generation*, starting it in *nursery* if necessary; raises InstanceError."""
        entry = self._entries.pop(generation.id, None)
        if entry is None:
            entry = _Entry()
            nursery.start_soon(self._run, generation, entry)
        self._entries[generation.id] = entry
        entry.users += 1
        try:
            await entry.settled.wait()
            if entry.instance is None:
                raise InstanceError(f"HAProxy could not be started: {entry.why}")
            yield entry.instance
        finally:
            entry.users -= 1
            self._trim()

    async def _run(self, generation: Generation, entry: _Entry) -> None:
        try:
            async with running(self._binary, generation, scratch=self._scratch) as instance:
                entry.instance = instance
                entry.settled.set()
                await entry.leave.wait()
        except* OSError as group:
            entry.why = "; ".join(str(error) for error in leaves_of(group))
            entry.settled.set()

    def _trim(self) -> None:
        idle = [key for key, entry in self._entries.items() if not entry.users]
        for key in idle[: max(0, len(idle) - self._most_idle)]:
            self._entries.pop(key).leave.set()
