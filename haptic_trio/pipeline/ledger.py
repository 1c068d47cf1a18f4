"""Which reconciliations are open, and how each ends.

A cycle ends when it fails, when its deployment is completed, when a newer
one takes its place, or, where another replica deploys, with its validation.
"""

import trio

from haptic_trio.channels import CycleEvent, Facts
from haptic_trio.messages import (
    ConfigValidated,
    DeploymentCompleted,
    LeadershipChanged,
    Outcome,
    ReconcileCompleted,
    ReconcileTriggered,
    ValidationFailed,
)


class CycleLedger:
    """The decision: which cycles does an event end? Times are seconds of any monotonic clock."""

    def __init__(self, *, is_leader: bool) -> None:
        self._is_leader = is_leader
        # In order of triggering; dicts keep it.
        self._open: dict[str, float] = {}
        self._validated: set[str] = set()

    @property
    def open(self) -> tuple[str, ...]:
        """The correlation ids of the cycles that have not ended, oldest first."""
        return tuple(self._open)

    def take(self, event: CycleEvent, now: float) -> list[ReconcileCompleted]:
        """Take in *event*; return how cycles ended by it."""
        match event:
            case ReconcileTriggered():
                self._open[event.correlation] = now
                return []
            case ValidationFailed():
                merged = self._end_merged(event.correlation, now)
                self._forget(event.correlation)
                return merged
            case LeadershipChanged():
                self._is_leader = event.is_leader
                return [] if event.is_leader else self._end_validated(now)
            case ConfigValidated():
                merged = self._end_merged(event.correlation, now)
                self._validated.add(event.correlation)
                return merged if self._is_leader else merged + self._end_validated(now)
            case DeploymentCompleted():
                return self._end_through(event, now)

    def _end_merged(self, correlation: str, now: float) -> list[ReconcileCompleted]:
        """End the triggers that the coordinator took together with *correlation*."""
        older = []
        for name in self._open:
            if name == correlation:
                break
            older.append(name)
        return [self._end(name, Outcome.SUPERSEDED, now) for name in older if name not in self._validated]

    def _end_validated(self, now: float) -> list[ReconcileCompleted]:
        ended = [correlation for correlation in self._open if correlation in self._validated]
        outcomes = [Outcome.SUPERSEDED] * (len(ended) - 1) + [Outcome.VALIDATED]
        return [self._end(name, outcome, now) for name, outcome in zip(ended, outcomes, strict=False)]

    def _end_through(self, event: DeploymentCompleted, now: float) -> list[ReconcileCompleted]:
        if event.correlation not in self._open:
            # A retry, or a deployment to a new endpoint: its cycle ended before.
            return []
        ended = []
        for correlation in tuple(self._open):
            if correlation == event.correlation:
                ended.append(self._end(correlation, _outcome_of(event), now))
                break
            ended.append(self._end(correlation, Outcome.SUPERSEDED, now))
        return ended

    def _end(self, correlation: str, outcome: Outcome, now: float) -> ReconcileCompleted:
        started = self._open[correlation]
        self._forget(correlation)
        return ReconcileCompleted(correlation=correlation, outcome=outcome, seconds=now - started)

    def _forget(self, correlation: str) -> None:
        self._open.pop(correlation, None)
        self._validated.discard(correlation)


def _outcome_of(event: DeploymentCompleted) -> Outcome:
    if event.failed:
        return Outcome.INCOMPLETE
    if event.superseded and not event.results:
        return Outcome.SUPERSEDED
    return Outcome.DEPLOYED if any(result.changed for result in event.results) else Outcome.UNCHANGED


async def run_ledger(
    cycles: trio.MemoryReceiveChannel[CycleEvent],
    *,
    is_leader: bool,
    facts: Facts,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Tell how each reconciliation ends, until *cycles* does. Takes ownership of *cycles*."""
    ledger = CycleLedger(is_leader=is_leader)
    with cycles:
        task_status.started()
        async for event in cycles:
            for message in ledger.take(event, trio.current_time()):
                facts.tell(message)
