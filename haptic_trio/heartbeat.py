"""Liveness of long-running components: which one works, since when, and which has stalled.

A component that waits for input is healthy however long it waits; one that
has been busy with the same thing for longer than its limit is stalled. Where it
counts its steps, each step renews the limit, so that work of any size is
healthy as long as it goes on. A timer is the other way round: it is stalled
when it has stopped firing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import trio


class ProgressMade(msgspec.Struct, frozen=True, kw_only=True):
    """The first lists or a render take long and make progress; sent every few seconds."""

    iteration: int
    progress: str
    """Such as `listed 12,000 objects` or `rendered 4,000 of 20,000 fragments`."""


class HeartbeatState(msgspec.Struct, frozen=True, kw_only=True):
    """One component's state at a moment."""

    name: str
    stalled: bool
    busy_for: float
    """Seconds it has been at the present piece of work, or since its newest step was seen; 0 when idle."""
    limit: float
    detail: str = ""


class Heartbeat:
    """The sign of life of one component. *limit* is in seconds.

    *steps* counts the steps of the present work, also those of worker
    threads; a step is seen when `state` is asked for.
    """

    def __init__(
        self,
        name: str,
        limit: float,
        *,
        steps: Callable[[], int] | None = None,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        self.name = name
        # Configured durations are a subclass that encoders do not know.
        self._limit = float(limit)
        self._clock = clock
        self._steps = steps
        self._seen_steps = 0
        # By piece of work: a component may be at several at once.
        self._busy_since: dict[object, float] = {}
        self._beats_until: float | None = None

    @contextmanager
    def busy(self) -> Iterator[Callable[[], None]]:
        """Mark the component as at work within the block; blocks may overlap, and the oldest counts.

        Yields a function to call between pieces of work, from which on the
        limit counts again.
        """
        work = object()

        def begin() -> None:
            self._see_steps()
            self._busy_since[work] = self._clock()

        begin()
        try:
            yield begin
        finally:
            del self._busy_since[work]

    def expect_beat(self, within: float) -> None:
        """Say that the component, a timer, will call this again *within* seconds; late by its limit it is stalled."""
        self._beats_until = self._clock() + within

    def state(self) -> HeartbeatState:
        """Return the state now."""
        self._see_steps()
        now = self._clock()
        busy_for = now - min(self._busy_since.values(), default=now)
        if busy_for > self._limit:
            without = " without progress" if self._steps is not None else ""
            detail = f"busy for {busy_for:.1f} s{without}, limit {self._limit:.1f} s"
        elif self._beats_until is not None and now > self._beats_until + self._limit:
            detail = f"timer is {now - self._beats_until:.1f} s late"
        else:
            detail = ""
        return HeartbeatState(name=self.name, stalled=bool(detail), busy_for=busy_for, limit=self._limit, detail=detail)

    def _see_steps(self) -> None:
        """Let the limit of all present work count again if there were steps since the last call."""
        if self._steps is None:
            return
        steps = self._steps()
        if steps != self._seen_steps:
            self._seen_steps = steps
            self._busy_since = dict.fromkeys(self._busy_since, self._clock())


class Heartbeats:
    """The components of one iteration, by name."""

    def __init__(self) -> None:
        self._heartbeats: dict[str, Heartbeat] = {}

    def add(self, name: str, *, limit: float, steps: Callable[[], int] | None = None) -> Heartbeat:
        """Register a component and return its heartbeat; see `Heartbeat`."""
        heartbeat = self._heartbeats[name] = Heartbeat(name, limit, steps=steps)
        return heartbeat

    def states(self) -> tuple[HeartbeatState, ...]:
        """Return every component's state, in order of registration."""
        return tuple(heartbeat.state() for heartbeat in self._heartbeats.values())
