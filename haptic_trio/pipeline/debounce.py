"""Debouncer: turns bursts of changes into few triggers, by a leading edge and a refractory period.

The first change after a quiet time triggers at once. Later changes within the
interval wait for its end, do not extend it, and together become one trigger.
Index synchronisation and suspected drift do not wait.
"""

from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Final

import trio

from haptic_trio.channels import AttemptDue, Change, EventBuffer, pass_on
from haptic_trio.heartbeat import Heartbeat
from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.messages import (
    DriftSuspected,
    HttpContentChanged,
    IndexSynchronized,
    Reason,
    ReconcileTriggered,
    ResourceChanged,
)

MOST_NAMED: Final = 10
"""Objects that a trigger names."""


class Debounce:
    """Decides when a trigger is due and how many changes it includes.

    Has no clock: times are seconds of any monotonic clock.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._last: float | None = None
        self._pending = 0
        self._first = 0.0

    @property
    def pending(self) -> int:
        """Number of changes that wait for the end of the refractory period."""
        return self._pending

    @property
    def first(self) -> float:
        """Time of the first waiting change; undefined while no change waits."""
        return self._first

    def add_change(self, now: float, count: int = 1) -> None:
        """Add *count* changes that arrived *now*."""
        if not self._pending:
            self._first = now
        self._pending += count

    def drop_pending(self) -> None:
        """Forget waiting changes, because the next trigger covers them."""
        self._pending = 0

    def due(self) -> float | None:
        """Return the time at which a trigger is due; None while no change waits. A past time means now."""
        if not self._pending:
            return None
        return float("-inf") if self._last is None else self._last + self._interval

    def trigger(self, now: float) -> int:
        """Start a refractory period at *now*; return the number of changes that the trigger includes."""
        self._last = now
        taken, self._pending = self._pending, 0
        return taken


async def run_debouncer(
    changes: trio.MemoryReceiveChannel[Change],
    triggers: trio.MemorySendChannel[ReconcileTriggered],
    *,
    interval: float,
    next_correlation: Callable[[], str],
    events: EventBuffer,
    heartbeat: Heartbeat,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Turn changes into triggers until *changes* ends; changes that wait then trigger at once.

    Takes ownership of both channel ends.
    """
    debounce = Debounce(interval)
    named: dict[ResourceRef, None] = {}

    async def trigger(reason: Reason) -> None:
        now = trio.current_time()
        seen = debounce.first if debounce.pending else now
        taken = debounce.trigger(now)
        message = ReconcileTriggered(
            correlation=next_correlation(), reason=reason, changes=taken, seen=seen, objects=tuple(named)
        )
        named.clear()
        events.record(message)
        await pass_on(triggers, message)

    with changes, triggers:
        task_status.started()
        while True:
            try:
                change = await _receive(changes, debounce.due())
            except trio.EndOfChannel:
                break
            with heartbeat.busy():
                match change:
                    case None:
                        await trigger(Reason.CHANGED)
                    case ResourceChanged(initial=True):
                        pass
                    case ResourceChanged():
                        debounce.add_change(trio.current_time())
                        named |= dict.fromkeys(change.refs[: MOST_NAMED - len(named)])
                    case IndexSynchronized():
                        debounce.drop_pending()
                        named.clear()
                        await trigger(Reason.SYNCHRONIZED)
                    case HttpContentChanged() | AttemptDue():
                        debounce.add_change(trio.current_time())
                    case DriftSuspected():
                        await trigger(Reason.DRIFT)
        if debounce.pending:
            await trigger(Reason.CHANGED)


async def _receive(changes: trio.MemoryReceiveChannel[Change], due: float | None) -> Change | None:
    """Return the next change, or None when none waits and it is *due*."""
    # Waiting changes come before a trigger that is due: objects that were written together arrive from several
    # reflectors at once, and the stores already contain all of them.
    with suppress(trio.WouldBlock):
        return changes.receive_nowait()
    # Safe to cancel: a memory channel never loses an item to cancellation.
    if due is not None and due <= trio.current_time():
        # Reflectors that are about to send have their turn first.
        await trio.lowlevel.checkpoint()
        with suppress(trio.WouldBlock):
            return changes.receive_nowait()
        return None
    with trio.move_on_at(inf if due is None else due):
        return await changes.receive()
    return None
