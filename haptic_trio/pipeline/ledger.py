"""Ledger of open reconciliations; reports the outcome of each.

A cycle ends when it fails, when its last deployment is completed and no
endpoint holds back a part of it, when it has changed nothing, when a newer one
supersedes it, or, on a follower, when it is validated.
"""

import trio

from haptic_trio.channels import CycleEvent, EventBuffer
from haptic_trio.messages import (
    ConfigPrepared,
    ConfigValidated,
    DeploymentCompleted,
    LeadershipChanged,
    Outcome,
    ReconcileCompleted,
    ReconcileTriggered,
    ValidationFailed,
)


class CycleLedger:
    """The decision which cycles an event ends. Times are seconds of any monotonic clock."""

    def __init__(self, *, is_leader: bool) -> None:
        self._is_leader = is_leader
        # In order of triggering.
        self._open: dict[str, float] = {}
        # Cycles that made a configuration, and cycles whose configuration is valid.
        self._made: set[str] = set()
        self._validated: set[str] = set()

    @property
    def open(self) -> tuple[str, ...]:
        """The correlation ids of the cycles that have not ended, oldest first."""
        return tuple(self._open)

    def take(self, event: CycleEvent, now: float) -> list[ReconcileCompleted]:
        """Take in *event*; return the outcomes of the cycles that it ends."""
        match event:
            case ReconcileTriggered():
                self._open[event.correlation] = now
                return []
            case LeadershipChanged():
                self._is_leader = event.is_leader
                return [] if event.is_leader else self._end_validated(now)
            case DeploymentCompleted():
                return self._end_through(event, now)
            case _:
                # The check of an ended cycle finished after its runtime changes were deployed.
                return self._take_outcome(event, now) if event.correlation in self._open else []

    def _take_outcome(
        self, event: ConfigPrepared | ConfigValidated | ValidationFailed, now: float
    ) -> list[ReconcileCompleted]:
        merged = self._end_merged(event.correlation, now)
        if isinstance(event, ValidationFailed):
            self._forget(event.correlation)
            return merged
        self._made.add(event.correlation)
        if isinstance(event, ConfigPrepared):
            return merged
        self._validated.add(event.correlation)
        if not self._is_leader:
            return merged + self._end_validated(now)
        return merged + self._end_older(event.correlation, now, Outcome.UNCHANGED) if event.is_deployed else merged

    def _end_merged(self, correlation: str, now: float) -> list[ReconcileCompleted]:
        """End the triggers that the coordinator took together with *correlation*."""
        older = []
        for name in self._open:
            if name == correlation:
                break
            older.append(name)
        return [self._end(name, Outcome.SUPERSEDED, now) for name in older if name not in self._made]

    def _end_validated(self, now: float) -> list[ReconcileCompleted]:
        names = tuple(self._open)
        last = max((place for place, name in enumerate(names) if name in self._validated), default=-1)
        return [
            self._end(name, Outcome.VALIDATED if place == last else Outcome.SUPERSEDED, now)
            for place, name in enumerate(names[: last + 1])
            if name in self._made
        ]

    def _end_through(self, event: DeploymentCompleted, now: float) -> list[ReconcileCompleted]:
        if event.correlation not in self._open:
            # A retry, or a deployment to a new endpoint: its cycle ended before.
            return []
        is_open = _is_held(event) or event.is_continued
        return self._end_older(event.correlation, now, None if is_open else _outcome_of(event))

    def _end_older(self, newest: str, now: float, outcome: Outcome | None) -> list[ReconcileCompleted]:
        """End all cycles before *newest*, and *newest* itself if it has an *outcome*."""
        ended = []
        for correlation in tuple(self._open):
            if correlation == newest:
                if outcome is not None:
                    ended.append(self._end(correlation, outcome, now))
                break
            ended.append(self._end(correlation, Outcome.SUPERSEDED, now))
        return ended

    def _end(self, correlation: str, outcome: Outcome, now: float) -> ReconcileCompleted:
        started = self._open[correlation]
        self._forget(correlation)
        return ReconcileCompleted(correlation=correlation, outcome=outcome, seconds=now - started)

    def _forget(self, correlation: str) -> None:
        self._open.pop(correlation, None)
        self._made.discard(correlation)
        self._validated.discard(correlation)


def _is_held(event: DeploymentCompleted) -> bool:
    return any(result.endpoint in event.state.held for result in event.results)


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
    events: EventBuffer,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Report the outcome of each reconciliation until *cycles* ends. Takes ownership of *cycles*."""
    ledger = CycleLedger(is_leader=is_leader)
    with cycles:
        task_status.started()
        async for event in cycles:
            for message in ledger.take(event, trio.current_time()):
                events.record(message)
