"""State of a group during a leadership term, beside its records."""

import math

import msgspec

from haptic_trio.fleet.model import GroupKey, GroupSpec, InstanceRecord, InstanceState, ProviderStatus
from haptic_trio.workqueue.limiter import ExponentialLimiter

RETRY_BASE, RETRY_MAX, RETRY_JITTER = 5.0, 120.0, 0.25
"""Delays between tries of one thing: doubled from the first to the last, and up to a quarter longer by chance."""
STABLE_AFTER = 10.0
"""Seconds of readiness after which a death is no longer taken for a consequence of the start."""
CREATION = ""
"""What creations are called among the things that are tried again; the others are ids."""


class Fact(msgspec.Struct, kw_only=True):
    """What somebody has said about an instance, until a pass records it."""

    acked: bool = False
    unwanted: bool = False
    doomed: bool = False
    doomed_until: float | None = None

    def merge(self, other: "Fact") -> None:
        """Take in what *other* says, too."""
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
        # While one is under way nobody knows when it will succeed.
        return max(self._open_at - now, self.interval if self._is_busy else 0.0, 0.0)

    def begin(self) -> None:
        """Note that a creation begins."""
        self._is_busy = True

    def end(self, now: float | None) -> None:
        """Note that it has ended: with success at *now*, or without."""
        self._is_busy = False
        if now is not None:
            self._open_at = now + self.interval


class GroupState:
    """A group as one term of leadership knows it."""

    def __init__(self, key: GroupKey) -> None:
        self.key = key
        self.records: dict[str, InstanceRecord] = {}
        self.facts: dict[str, Fact] = {}
        self.begun: set[str] = set()
        """Ids of those whose drain has begun in this term."""
        self.spec: GroupSpec | None = None
        """What the group was to be when it was wanted last."""
        self.parked: GroupSpec | None = None
        """With this, creations fail for good."""
        self._limiter = ExponentialLimiter[str](RETRY_BASE, RETRY_MAX, RETRY_JITTER)
        self._not_before: dict[str, float] = {}
        self._failed_at = -math.inf

    def keep(self, record: InstanceRecord, now: float) -> None:
        """Begin to look after *record*, which an earlier term has left or the provider has shown."""
        # Nobody has looked at it for a while; that was not its fault.
        heartbeat = now if record.state is InstanceState.READY else record.heartbeat_at
        self.records[record.id] = msgspec.structs.replace(record, heartbeat_at=heartbeat, status=ProviderStatus.UNKNOWN)

    def drop(self, instance_id: str) -> None:
        """Forget everything about an instance."""
        self.records.pop(instance_id, None)
        self.begun.discard(instance_id)
        self.note_success(instance_id)

    def note_fact(self, instance_id: str) -> Fact:
        """Return what was said about an instance, for more to be noted."""
        return self.facts.setdefault(instance_id, Fact())

    def may_try(self, what: str, now: float) -> bool:
        """Whether *what* need not wait after an earlier failure."""
        return self._not_before.get(what, -math.inf) <= now

    def next_try(self, now: float) -> float:
        """Return when something may be tried again; infinity when nothing waits."""
        return min((time for time in self._not_before.values() if time > now), default=math.inf)

    def note_failure(self, what: str, now: float) -> None:
        """Have *what* wait before it is tried again."""
        self._not_before[what] = now + self._limiter.next_retry(what)
        if what == CREATION:
            self._failed_at = now

    def note_success(self, what: str) -> None:
        """Forget the failures of *what*."""
        self._limiter.forget(what)
        self._not_before.pop(what, None)

    def note_death(self, record: InstanceRecord, now: float) -> None:
        """Have the next creation wait if *record* died so early that its successor may do the same."""
        if record.ready_at is None or now - record.ready_at < STABLE_AFTER:
            self.note_failure(CREATION, now)

    def note_stability(self, record: InstanceRecord, now: float) -> None:
        """Forget failed creations once one that was made after them has lasted."""
        if (
            record.ready_at is not None
            and record.created_at > self._failed_at
            and now - record.ready_at >= STABLE_AFTER
        ):
            self.note_success(CREATION)
