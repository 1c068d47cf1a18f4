"""Model of the fleet: groups, records, events and provider reports.

Times are wall-clock seconds, since records outlive the process that wrote
them.
"""

import hashlib
from enum import StrEnum

import msgspec

from haptic_trio.errors import HapticError


class FleetError(HapticError):
    """Something about an instance failed; the subclass says whether trying again helps."""


class RetryableError(FleetError):
    """A provider could not do what it was asked this time; trying again later is fine."""


class NotLeaderError(FleetError):
    """The leadership ended before a side effect; only the present leader may try again."""


class GroupKey(msgspec.Struct, frozen=True, order=True):
    """Identifies a group of interchangeable instances."""

    group: str
    tenant: str = ""

    def __str__(self) -> str:
        return f"{self.tenant}/{self.group}" if self.tenant else self.group


class InstanceState(StrEnum):
    """How far the life of an instance has come; it never goes back."""

    PENDING = "pending"
    """Recorded; whether the provider has made it is not known yet."""
    STARTING = "starting"
    """The provider has made it; it has not answered yet."""
    READY = "ready"
    """It has answered."""
    DRAINING = "draining"
    """It takes nothing new and finishes what it has."""
    DELETING = "deleting"
    """The provider was asked, or is about to be asked, to remove it; its record goes when that has succeeded."""


LIVING = frozenset({InstanceState.PENDING, InstanceState.STARTING, InstanceState.READY})
"""States of instances that serve, or will."""


class ProviderStatus(StrEnum):
    """What the provider says about an instance."""

    RUNNING = "running"
    """It is there and answers."""
    UNRESPONSIVE = "unresponsive"
    """It is there and does not answer."""
    STARTING = "starting"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    NOT_FOUND = "not_found"
    UNKNOWN = "unknown"
    """The provider could not say. Nothing follows from it: an outage of a provider is no death of an instance."""


TERMINAL = frozenset({ProviderStatus.STOPPED, ProviderStatus.FAILED, ProviderStatus.NOT_FOUND})
"""What an instance does not come back from."""


class Reason(StrEnum):
    """Why an instance was made, is drained, or is removed."""

    SCALE_UP = "scale-up"
    SCALE_DOWN = "scale-down"
    REPLACEMENT = "replacement"
    DRIFT = "config-drift"
    """It was made from another configuration hash: other settings, or another binary."""
    ELIGIBLE_EXPIRY = "eligible-expiry"
    FORCED_EXPIRY = "forced-expiry"
    UNHEALTHY = "unhealthy"
    REQUESTED = "requested"
    """Somebody has asked for another one in its place."""
    TERMINATING = "terminating"
    """Somebody else is going to end it."""
    DEAD = "dead"
    NOT_STARTED = "not-started"
    DRAINED = "drained"
    DRAIN_DEADLINE = "drain-deadline"
    CREATE_FAILED = "create-failed"


class GroupSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a group shall be. Durations are seconds; an age of 0 is no limit."""

    key: GroupKey
    size: int
    """Instances that shall be ready."""
    surge: int = 1
    """Instances above `size` that a rotation may use at once; at least 1."""
    cap: int = 0
    """Instances at most, draining ones included; 0 is twice the size and the surge."""
    config_hash: str = ""
    """What an instance is made from: one with another hash is rotated out."""
    drain_timeout: float = 300.0
    """How long an instance may finish what it has; 0 cuts it off."""
    start_timeout: float = 60.0
    """An instance that has not answered by then counts as dead."""
    eligible_age: float = 0.0
    """Instances are rotated out from this age on, one at a time, when nothing else is going on."""
    forced_age: float = 0.0
    """Instances are rotated out at this age, whatever else is going on."""
    age_jitter: float = 0.1
    """Share of an age by which single instances are rotated earlier, so that those of one age do not go together."""
    health_interval: float = 10.0
    """Between two looks at each instance."""
    missed: int = 3
    """Looks without an answer after which an instance is replaced."""

    def __post_init__(self) -> None:
        if self.size < 0 or self.surge < 1 or self.missed < 1 or self.health_interval <= 0:
            raise ValueError("size must be at least 0; surge and missed at least 1; health_interval above 0")
        if not 0 <= self.age_jitter <= 1:
            raise ValueError(f"age_jitter must be in 0..1, not {self.age_jitter}")
        if 0 < self.cap < self.size + self.surge:
            raise ValueError("cap must leave room for size and surge")

    @property
    def limit(self) -> int:
        """Instances at most, draining ones included."""
        return self.cap or 2 * self.size + self.surge


class InstanceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one instance; survives the controller."""

    id: str
    """Unique for ever."""
    key: GroupKey
    state: InstanceState
    created_at: float
    config_hash: str = ""
    provider_id: str = ""
    """The provider's own name of it; empty until it is made."""
    status: ProviderStatus = ProviderStatus.UNKNOWN
    """What the provider said last."""
    ready_at: float | None = None
    heartbeat_at: float | None = None
    """When it answered last."""
    drain_started_at: float | None = None
    drain_deadline: float | None = None
    drain_reason: Reason | None = None
    drain_acked_at: float | None = None
    doomed_at: float | None = None
    """When it became known that somebody else will end it."""
    doomed_until: float | None = None
    """When that will be, if it is known."""
    unwanted_at: float | None = None
    """When somebody asked for another one in its place."""

    @property
    def is_doomed(self) -> bool:
        """Whether somebody else will end it."""
        return self.doomed_at is not None


class ProviderInstance(msgspec.Struct, frozen=True, kw_only=True):
    """An instance as a provider lists it."""

    id: str
    """The id that it was made for; empty when the provider's mark does not say."""
    provider_id: str
    key: GroupKey | None
    status: ProviderStatus
    created_at: float
    config_hash: str = ""


class EventType(StrEnum):
    """What may have happened. An event is a hint to look; what is done follows from what is found."""

    CHECK_INSTANCE = "CheckInstance"
    GROUP_CHANGED = "GroupChanged"
    INSTANCE_DELETED = "InstanceDeleted"
    DRAIN_ACKED = "DrainAcked"
    TERMINATION_NOTICE = "TerminationNotice"
    INITIAL_RECONCILE = "InitialReconcile"
    ROTATION_REQUESTED = "RotationRequested"


class ReconcileEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A hint that a group should be looked at."""

    type: EventType
    group: str = ""
    tenant: str = ""
    instance_id: str = ""
    timestamp: float = 0.0
    prevent_duplicate: bool = False
    """Ignore it if the same was handled a short while ago."""
    cause: str = ""
    """For the log."""
    attempt: int = 0
    """Above 0 it is a repetition, which is never taken for a duplicate."""
    deadline: float | None = None
    """Of a termination notice: when the instance will be ended."""


def share_of(instance_id: str) -> float:
    """Return a number in 0..1 that belongs to *instance_id*, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(instance_id.encode(), digest_size=4).digest(), "big") / 0xFFFFFFFF
