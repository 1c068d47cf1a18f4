"""Planner: comparisons of generations off the event loop, one at a time, and once for identical endpoints."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias, TypeVar

import trio

from haptic_trio.haproxy.model import Generation
from haptic_trio.haproxy.plan.capabilities import NEWEST, Capabilities
from haptic_trio.haproxy.plan.kept_servers import keep_servers, move_servers, undo_files
from haptic_trio.haproxy.plan.operations import Plan
from haptic_trio.haproxy.plan.plan import MAX_CHANGED_SERVERS, make_plan
from haptic_trio.haproxy.plan.shares import SERVERS_AT_ONCE
from haptic_trio.haproxy.plan.split import SplitPlan, is_near, split_plan

KNOWN_SPLITS: Final = 4
"""Splits that are kept for other endpoints. Each may refer to a generation."""

OnlyData: TypeAlias = Callable[[Generation, Generation], Awaitable[bool]]
"""See `Planner.is_only_data`."""
AddData: TypeAlias = Callable[[Generation, Generation], Awaitable[Generation]]
"""See `Planner.add_data`."""
KeepServers: TypeAlias = Callable[[Generation, Generation, Generation, str], Awaitable[tuple[Generation, ...]]]
"""See `Planner.keep_servers`."""
T = TypeVar("T")


class Planner:
    """Compares generations for deployments, the schedule and the checker.

    A comparison of generations that share almost all of their chunks takes
    about a millisecond and runs at once. Any other one takes up to seconds at
    thousands of sections and runs in a thread. These comparisons take turns:
    parallel ones would only compete for the interpreter with the event loop.
    A cancelled caller leaves its thread behind; the next one waits for it.
    """

    def __init__(self) -> None:
        self._turn = trio.Lock()
        self._threads = trio.CapacityLimiter(1)
        # By the ids of both generations: endpoints with equal states get equal plans.
        self._splits: dict[tuple[str, str, Capabilities, int, frozenset[str]], SplitPlan] = {}

    def split_at_once(
        self,
        running: Generation | None,
        desired: Generation,
        capabilities: Capabilities,
        room: int = SERVERS_AT_ONCE,
        withheld: frozenset[str] = frozenset(),
    ) -> SplitPlan | None:
        """Return `split_plan` of the arguments; None if that takes so long that a thread has to do it."""
        if running is None or is_near(running, desired):
            return split_plan(running, desired, capabilities, room, withheld)
        return None

    async def split(
        self,
        running: Generation | None,
        desired: Generation,
        capabilities: Capabilities,
        room: int = SERVERS_AT_ONCE,
        withheld: frozenset[str] = frozenset(),
    ) -> SplitPlan:
        """Return `split_plan` of the arguments, computed once for equal arguments; safe to cancel."""
        if (split := self.split_at_once(running, desired, capabilities, room, withheld)) is not None:
            return split
        assert running is not None
        key = running.id, desired.id, capabilities, room, withheld
        # Callers with equal arguments wait here for the first one. If it is cancelled, the next one computes.
        async with self._turn:
            known = self._splits.get(key)
            if known is None:
                known = await self._run(partial(split_plan, running, desired, capabilities, room, withheld))
                self._splits[key] = known
                if len(self._splits) > KNOWN_SPLITS:
                    del self._splits[next(iter(self._splits))]
            return known

    async def plan(self, running: Generation, desired: Generation, capabilities: Capabilities) -> Plan:
        """Return `make_plan` of the arguments; safe to cancel."""
        compare = partial(make_plan, running, desired, capabilities=capabilities)
        if is_near(running, desired):
            return compare()
        async with self._turn:
            return await self._run(compare)

    async def add_data(self, valid: Generation, prepared: Generation) -> Generation:
        """Return *valid* with those changes of *prepared* that some supported HAProxy version applies at runtime.

        An endpoint with an older HAProxy may need a reload for such a change.
        The change is still only data, and safe without a check.
        """
        if valid.id == prepared.id:
            return prepared
        # Endpoints may have all of it: a reload with only a part would take back the rest.
        return (await self.split(valid, prepared, NEWEST, MAX_CHANGED_SERVERS)).effective or valid

    async def keep_servers(
        self, valid: Generation, rejected: Generation, part: Generation, output: str
    ) -> tuple[Generation, ...]:
        """Return *part*, *valid* with data of *rejected*, after `undo_files`, then `keep_servers`; safe to cancel."""

        def make() -> tuple[Generation, ...]:
            return undo_files(valid, part, output), *keep_servers(valid, rejected)

        async with self._turn:
            return await self._run(make)

    async def follow(
        self, running: Generation, before: Generation, after: Generation, capabilities: Capabilities
    ) -> SplitPlan:
        """Return how a process with *running* gets the servers that differ between *before* and *after*.

        The result has no reasons. Safe to cancel.
        """
        if is_near(before, after):
            moved = move_servers(running, before, after)
        else:
            async with self._turn:
                moved = await self._run(partial(move_servers, running, before, after))
        if moved is running:
            return SplitPlan(None, (), ())
        return (await self.split(running, moved, capabilities))._replace(reasons=())

    async def with_servers(self, generation: Generation, newer: Generation) -> Generation:
        """Return *generation* with the servers of *newer*; safe to cancel."""
        if newer is generation:
            return generation
        move = partial(move_servers, generation, generation, newer)
        if is_near(generation, newer):
            return move()
        async with self._turn:
            return await self._run(move)

    async def is_only_data(self, valid: Generation, prepared: Generation) -> bool:
        """Whether some supported HAProxy version applies all changes from *valid* to *prepared* without a reload."""
        return not (await self.plan(valid, prepared, NEWEST)).reloads

    async def _run(self, compare: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(compare, abandon_on_cancel=True, limiter=self._threads)
