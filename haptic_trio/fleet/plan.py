"""Fleet plan: a pure decision from desired and observed state to actions on instances.

The rules, in the order in which they are applied:

R1  A draining instance is removed when its drain was acknowledged, its
    deadline has passed, or the provider reports that it is gone.
R2  A dead instance is removed immediately.
R3  An instance that is terminated from outside is drained immediately. It no
    longer counts towards the size, so the same pass creates its replacement.
R4  Instances are rotated by rank: 0 unresponsive, detached, or of forced age,
    1 with an outdated configuration hash or a requested replacement, 2 of
    eligible age.
    A rotation creates one instance above the size, then drains the first
    instance in the order of ranks. The old and the new instance are not
    linked, so a crash between the two steps loses nothing.
R5  Missing instances are created, up to the cap.
R6  Surplus instances leave: ready ones are drained as long as enough others
    are ready; those that are not ready yet are removed.

Draining instances count towards the cap only.
"""

import math
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

from haptic_trio.fleet.model import (
    LIVING,
    TERMINAL,
    GroupSpec,
    InstanceRecord,
    InstanceState,
    ProviderStatus,
    Reason,
    share_of,
)

PADDING = 1.0
"""Seconds between the time at which an instance reaches an age and the pass for it."""

ROTATION_REASONS = frozenset({Reason.DRIFT, Reason.REQUESTED, Reason.ELIGIBLE_EXPIRY})
"""Reasons of drains that are not urgent; one instance at a time is drained for them."""

_BROKEN = frozenset({Reason.UNHEALTHY, Reason.FILES_LOST})
_NO_RANK = 3


class Create(msgspec.Struct, frozen=True):
    """Create an instance."""

    reason: Reason
    heir_of: str = ""
    """Id of the instance that it will probably replace; empty for none."""


class Drain(msgspec.Struct, frozen=True):
    """Begin to drain an instance."""

    id: str
    reason: Reason
    deadline: float


class Delete(msgspec.Struct, frozen=True):
    """Remove an instance."""

    id: str
    reason: Reason


Action: TypeAlias = Create | Drain | Delete


def plan(spec: GroupSpec, records: Iterable[InstanceRecord], now: float) -> list[Action]:
    """Return the actions due at *now* (wall-clock seconds), removals first and creations last.

    The order of *records* is irrelevant. A removed group is one of size 0.
    """
    ordered = sorted(records, key=lambda record: (record.created_at, record.id))
    actions: list[Action] = []
    active: list[InstanceRecord] = []
    total = 0
    for record in ordered:
        action = _judge(spec, record, now)
        if action is not None:
            actions.append(action)
        if not isinstance(action, Delete):
            total += 1
            if action is None and record.state in LIVING:
                active.append(record)
    draining = [record for record in ordered if record.state is InstanceState.DRAINING]
    actions += _level(spec, active, draining, total, now)
    return actions


def _judge(spec: GroupSpec, record: InstanceRecord, now: float) -> Action | None:
    """Apply R1 to R3, which concern each instance by itself."""
    if record.state is InstanceState.DELETING:
        return Delete(record.id, Reason.DRAINED if record.drain_started_at is not None else Reason.DEAD)
    if record.state is InstanceState.DRAINING:
        return _judge_draining(record, now)
    reason = death_of(spec, record, now)
    if reason is not None:
        return Delete(record.id, reason)
    if record.is_doomed:
        if record.state is not InstanceState.READY:
            return Delete(record.id, Reason.TERMINATING)
        latest = math.inf if record.doomed_until is None else record.doomed_until
        return Drain(record.id, Reason.TERMINATING, max(now, min(now + spec.drain_timeout, latest)))
    return None


def _judge_draining(record: InstanceRecord, now: float) -> Delete | None:
    if record.drain_acked_at is not None or record.status in TERMINAL:
        return Delete(record.id, Reason.DRAINED)
    if record.drain_deadline is None or record.drain_deadline <= now:
        return Delete(record.id, Reason.DRAIN_DEADLINE)
    return None


def death_of(spec: GroupSpec, record: InstanceRecord, now: float) -> Reason | None:
    """Return why *record*, of a living state, counts as dead (R2); None if it does not."""
    if record.status in TERMINAL:
        return Reason.DEAD
    if record.state is not InstanceState.READY:
        return Reason.NOT_STARTED if now - record.created_at >= spec.start_timeout else None
    is_away = record.status in {ProviderStatus.STARTING, ProviderStatus.STOPPING}
    return Reason.DEAD if is_away and _has_missed(spec, record, now) else None


def _has_missed(spec: GroupSpec, record: InstanceRecord, now: float) -> bool:
    return now >= _heartbeat_deadline(spec, record)


def _heartbeat_deadline(spec: GroupSpec, record: InstanceRecord) -> float:
    """Return when *record* has missed too many health checks, unless it answers before."""
    last = record.created_at if record.heartbeat_at is None else record.heartbeat_at
    return last + spec.missed * spec.health_interval


def expiry_of(spec: GroupSpec, record: InstanceRecord, age: float) -> float:
    """Return when *record* reaches *age*, jitter included; infinity for an age of 0."""
    if age <= 0:
        return math.inf
    return record.created_at + age * (1.0 - spec.age_jitter * share_of(record.id))


def rotation_of(spec: GroupSpec, record: InstanceRecord, now: float) -> tuple[int, Reason] | None:
    """Return rank and reason of the rotation of *record*, a ready instance (R4); None if none is needed."""
    is_hung = record.status is ProviderStatus.UNRESPONSIVE and _has_missed(spec, record, now)
    if is_hung or record.status is ProviderStatus.DETACHED:
        return 0, Reason.UNHEALTHY if is_hung else Reason.FILES_LOST
    if expiry_of(spec, record, spec.forced_age) <= now:
        return 0, Reason.FORCED_EXPIRY
    if record.config_hash != spec.config_hash:
        return 1, Reason.DRIFT
    if record.unwanted_at is not None:
        return 1, Reason.REQUESTED
    if expiry_of(spec, record, spec.eligible_age) <= now:
        return 2, Reason.ELIGIBLE_EXPIRY
    return None


def _level(
    spec: GroupSpec,
    active: Sequence[InstanceRecord],
    draining: Sequence[InstanceRecord],
    total: int,
    now: float,
) -> list[Action]:
    """Apply R4 to R6, which concern the number of instances."""
    ready = [record for record in active if record.state is InstanceState.READY]
    rotations = {record.id: found for record in ready if (found := rotation_of(spec, record, now)) is not None}

    def order(record: InstanceRecord) -> tuple[int, bool, float, str]:
        rank, reason = rotations.get(record.id, (_NO_RANK, None))
        return rank, reason not in _BROKEN, record.created_at, record.id

    victims = sorted(ready, key=order)
    extra = _surge_of(spec, [rank for rank, _ in rotations.values()], draining)
    missing = spec.size + extra - len(active)
    if missing > 0:
        return [*_create(spec, active, victims[:extra], min(missing, spec.limit - total))]
    return _shed(spec, active, victims, rotations, extra, now)


def _surge_of(spec: GroupSpec, ranks: Sequence[int], draining: Sequence[InstanceRecord]) -> int:
    """Return how many instances above its size the group may have now for rotations."""
    if not spec.size or not ranks:
        return 0
    urgent = ranks.count(0)
    if urgent:
        return min(spec.surge, urgent)
    return 0 if any(record.drain_reason in ROTATION_REASONS for record in draining) else 1


def _create(
    spec: GroupSpec, active: Sequence[InstanceRecord], leaving: Sequence[InstanceRecord], count: int
) -> Iterable[Create]:
    lacking = max(0, spec.size - len(active))
    heirs = iter(leaving[max(0, len(active) - spec.size) :])
    for number in range(count):
        if number < lacking:
            yield Create(Reason.SCALE_UP)
        else:
            yield Create(Reason.REPLACEMENT, next(heirs).id)


def _shed(
    spec: GroupSpec,
    active: Sequence[InstanceRecord],
    victims: Sequence[InstanceRecord],
    rotations: dict[str, tuple[int, Reason]],
    extra: int,
    now: float,
) -> list[Action]:
    actions: list[Action] = []
    excess = len(active) - spec.size
    ready = len(victims)
    candidates = len(rotations)
    for record in victims:
        if excess <= 0 or ready <= spec.size:
            break
        reason = Reason.SCALE_DOWN
        if excess <= extra:
            reason = rotations[record.id][1]
            extra -= 1
        # An instance that leaves as a surplus needs no rotation any more.
        candidates -= record.id in rotations
        extra = min(extra, candidates)
        actions.append(Drain(record.id, reason, now + spec.drain_timeout))
        excess -= 1
        ready -= 1
    # Instances that a rotation waits for stay. The newest go first, since they need the most time to become ready.
    unready = [record for record in reversed(active) if record.state is not InstanceState.READY]
    actions += [Delete(record.id, Reason.SCALE_DOWN) for record in unready[: max(0, excess - extra)]]
    return actions


def next_due(spec: GroupSpec, records: Iterable[InstanceRecord], now: float) -> float:
    """Return when the passage of time changes the result of `plan` for *records*; infinity if it never does."""
    times = [math.inf]
    for record in records:
        if record.state is InstanceState.DRAINING and record.drain_deadline is not None:
            times.append(record.drain_deadline)
        elif record.state is InstanceState.READY:
            times += [
                expiry_of(spec, record, age) + PADDING
                for age in (spec.forced_age, spec.eligible_age)
                if expiry_of(spec, record, age) > now
            ]
            if record.status is not ProviderStatus.RUNNING and _heartbeat_deadline(spec, record) > now:
                times.append(_heartbeat_deadline(spec, record))
        elif record.state in LIVING:
            times.append(record.created_at + spec.start_timeout)
    return min(times)
