"""State of a group during a leadership term, beside its records."""

import math

import msgspec

from haptic_trio.fleet.model import GroupKey, GroupSpec, InstanceRecord, InstanceState, ProviderStatus
from haptic_trio.workqueue.limiter import ExponentialLimiter

RETRY_BASE, RETRY_MAX, RETRY_JITTER = 5.0, 120.0, 0.25
"""Delays in seconds between attempts of one operation: doubled each time up to the maximum, plus up to a quarter."""
STABLE_AFTER = 10.0
"""An instance that dies within this many seconds of becoming ready counts as a failed creation."""
CREATION = ""
"""Key of creations among the operations that are retried; the other keys are ids of instances."""


class Notice(msgspec.Struct, kw_only=True):
    """Notices about an instance that the next pass records."""

    acked: bool = False
    unwanted: bool = False
    doomed: bool = False
    doomed_until: float | None = None

    def merge(self, other: "Notice") -> None:
        """Add the notices of *other*."""
        self.acked |= other.acked
        self.unwanted |= other.unwanted
        self.doomed |= other.doomed
        times = [time for time in (self.doomed_until, other.doomed_until) if time is not None]
        self.doomed_until = min(times, default=None)


class CreateGate:
    """Keeps successful creations at least *interval* seconds apart, over all groups."""

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self._open_at = -math.inf
        self._is_busy = False

    def delay(self, now: float) -> float:
        """Return how long to wait before the next creation may begin; 0 when it may now."""
        if self.interval <= 0:
            return 0.0
        # It is unknown when a creation in progress will succeed.
        return max(self._open_at - now, self.interval if self._is_busy else 0.0, 0.0)

    def begin(self) -> None:
        """Note that a creation begins."""
        self._is_busy = True

    def end(self, now: float | None) -> None:
        """Note that the creation has ended: successfully at *now*, or failed (None)."""
        self._is_busy = False
        if now is not None:
            self._open_at = now + self.interval


class GroupState:
    """State of a group in one term of leadership."""

    def __init__(self, key: GroupKey) -> None:
        self.key = key
        self.records: dict[str, InstanceRecord] = {}
        self.notices: dict[str, Notice] = {}
        self.begun: set[str] = set()
        """Ids of instances whose drain has begun in this term."""
        self.spec: GroupSpec | None = None
        """Last specification of the group; kept when the group is removed."""
        self.notified: set[str] = set()
        """Ids of instances whose drain was reported in this term."""
        self._parked: dict[str, GroupSpec] = {}
        self._limiter = ExponentialLimiter[str](RETRY_BASE, RETRY_MAX, RETRY_JITTER)
        self._not_before: dict[str, float] = {}
        self._failed_at = -math.inf

    def track(self, record: InstanceRecord, now: float) -> None:
        """Manage *record*, which an earlier term has left or the provider has listed."""
        # The heartbeats that no term has observed do not count as missed.
        heartbeat = now if record.state is InstanceState.READY else record.heartbeat_at
        self.records[record.id] = msgspec.structs.replace(record, heartbeat_at=heartbeat, status=ProviderStatus.UNKNOWN)

    def drop(self, instance_id: str) -> None:
        """Forget everything about an instance."""
        self.records.pop(instance_id, None)
        self.begun.discard(instance_id)
        self.notified.discard(instance_id)
        self.note_success(instance_id)

    def notice_of(self, instance_id: str) -> Notice:
        """Return the mutable notices about an instance."""
        return self.notices.setdefault(instance_id, Notice())

    def may_try(self, what: str, spec: GroupSpec, now: float) -> bool:
        """Whether the retry delay of *what*, if any, is over, and it has not failed permanently with *spec*."""
        return not self.is_parked(what, spec) and self._not_before.get(what, -math.inf) <= now

    def park(self, what: str, spec: GroupSpec) -> None:
        """Do not retry *what*, which failed permanently, until the group has another specification than *spec*."""
        self._parked[what] = spec

    def is_parked(self, what: str, spec: GroupSpec) -> bool:
        """Whether *what* failed permanently with *spec*."""
        return self._parked.get(what) == spec

    def next_try(self, now: float) -> float:
        """Return when the next retry is due; infinity if there is none."""
        return min((time for time in self._not_before.values() if time > now), default=math.inf)

    def note_failure(self, what: str, now: float) -> None:
        """Begin the retry delay of *what*."""
        self._not_before[what] = now + self._limiter.next_retry(what)
        if what == CREATION:
            self._failed_at = now

    def note_success(self, what: str) -> None:
        """Forget the failures of *what*."""
        self._limiter.forget(what)
        self._not_before.pop(what, None)
        self._parked.pop(what, None)

    def note_death(self, record: InstanceRecord, now: float) -> None:
        """Delay the next creation if *record* died so early that its successor may do the same."""
        if record.ready_at is None or now - record.ready_at < STABLE_AFTER:
            self.note_failure(CREATION, now)

    def note_stability(self, record: InstanceRecord, now: float) -> None:
        """Forget failed creations once an instance that was created after them has stayed ready."""
        if (
            record.ready_at is not None
            and record.created_at > self._failed_at
            and now - record.ready_at >= STABLE_AFTER
        ):
            self.note_success(CREATION)
