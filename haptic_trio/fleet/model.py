"""Model of the fleet: groups, records, events and provider reports.

Times are wall-clock seconds, since records outlive the process that wrote
them.
"""

import hashlib
from enum import StrEnum

import msgspec

from haptic_trio.errors import HapticError


class FleetError(HapticError):
    """An operation on an instance failed; the subclass says whether a retry helps."""


class RetryableError(FleetError):
    """A provider could not carry out an operation this time; a later retry may succeed."""


class NotLeaderError(FleetError):
    """The leadership ended before a side effect; only the current leader may retry."""


class GroupKey(msgspec.Struct, frozen=True, order=True):
    """Identifies a group of interchangeable instances."""

    group: str
    tenant: str = ""

    def __str__(self) -> str:
        return f"{self.tenant}/{self.group}" if self.tenant else self.group


class InstanceState(StrEnum):
    """Lifecycle state of an instance; an instance never returns to an earlier state."""

    PENDING = "pending"
    """Recorded; it is unknown whether the provider has created it."""
    STARTING = "starting"
    """The provider has created it; it has not answered yet."""
    READY = "ready"
    """It has answered."""
    DRAINING = "draining"
    """It accepts no new connections and finishes those it has."""
    DELETING = "deleting"
    """It is being removed by the provider; its record is dropped when the removal has succeeded."""


LIVING = frozenset({InstanceState.PENDING, InstanceState.STARTING, InstanceState.READY})
"""States of instances that serve, or will serve."""


class ProviderStatus(StrEnum):
    """Status of an instance, as the provider reports it."""

    RUNNING = "running"
    """It exists and answers."""
    UNRESPONSIVE = "unresponsive"
    """It exists and does not answer."""
    DETACHED = "detached"
    """It serves, but its files are lost, so that it cannot be deployed to: it is replaced."""
    STARTING = "starting"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    NOT_FOUND = "not_found"
    UNKNOWN = "unknown"
    """The provider could not determine it. It has no consequence: a provider outage does not make an instance dead."""


TERMINAL = frozenset({ProviderStatus.STOPPED, ProviderStatus.FAILED, ProviderStatus.NOT_FOUND})
"""Final statuses: the instance will never serve again."""


class Reason(StrEnum):
    """Why an instance is created, drained, or removed."""

    SCALE_UP = "scale-up"
    SCALE_DOWN = "scale-down"
    REPLACEMENT = "replacement"
    DRIFT = "config-drift"
    """Its configuration hash is outdated: other settings, or another binary."""
    ELIGIBLE_EXPIRY = "eligible-expiry"
    FORCED_EXPIRY = "forced-expiry"
    UNHEALTHY = "unhealthy"
    FILES_LOST = "files-lost"
    REQUESTED = "requested"
    """A user has requested its replacement."""
    TERMINATING = "terminating"
    """It is being terminated from outside."""
    DEAD = "dead"
    NOT_STARTED = "not-started"
    DRAINED = "drained"
    DRAIN_DEADLINE = "drain-deadline"
    CREATE_FAILED = "create-failed"


class GroupSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Specification of a group. Durations are seconds; an age of 0 disables the limit."""

    key: GroupKey
    size: int
    """Desired number of ready instances."""
    surge: int = 1
    """Maximum of instances above `size` during a rotation; at least 1."""
    cap: int = 0
    """Maximum of instances, draining ones included; 0 is twice the size plus the surge."""
    config_hash: str = ""
    """Hash of the inputs of an instance; an instance with another hash is rotated out."""
    drain_timeout: float = 300.0
    """Time in which a draining instance may finish its connections; 0 cuts them off."""
    start_timeout: float = 60.0
    """An instance that has not answered within this time counts as dead."""
    eligible_age: float = 0.0
    """Age from which instances are rotated out, one at a time, while no other rotation runs."""
    forced_age: float = 0.0
    """Age at which instances are rotated out, even while other rotations run."""
    age_jitter: float = 0.1
    """Maximal share of an age by which an instance is rotated earlier; keeps instances of one age apart."""
    health_interval: float = 10.0
    """Time between two health checks of an instance."""
    missed: int = 3
    """Consecutive health checks without an answer after which an instance is replaced."""

    def __post_init__(self) -> None:
        if self.size < 0 or self.surge < 1 or self.missed < 1 or self.health_interval <= 0:
            raise ValueError(
                f"size must be at least 0 (is {self.size}), surge and missed at least 1 (are {self.surge} and"
                f" {self.missed}), and health_interval above 0 (is {self.health_interval})"
            )
        if not 0 <= self.age_jitter <= 1:
            raise ValueError(f"age_jitter must be in 0..1, not {self.age_jitter}")
        if 0 < self.cap < self.size + self.surge:
            raise ValueError(f"cap {self.cap} is below size {self.size} + surge {self.surge}: raise it, or set 0")

    @property
    def limit(self) -> int:
        """Maximum of instances, draining ones included."""
        return self.cap or 2 * self.size + self.surge


class InstanceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Durable record of one instance; survives the controller."""

    id: str
    """Unique, and never used again."""
    key: GroupKey
    state: InstanceState
    created_at: float
    config_hash: str = ""
    provider_id: str = ""
    """Name of the instance at the provider; empty until it is created."""
    status: ProviderStatus = ProviderStatus.UNKNOWN
    """Last observed status."""
    ready_at: float | None = None
    heartbeat_at: float | None = None
    """Time of its last answer."""
    drain_started_at: float | None = None
    drain_deadline: float | None = None
    drain_reason: Reason | None = None
    drain_acked_at: float | None = None
    doomed_at: float | None = None
    """Time at which a termination notice for it arrived."""
    doomed_until: float | None = None
    """Time at which it will be terminated, if known."""
    unwanted_at: float | None = None
    """Time at which a user requested its replacement."""

    @property
    def is_doomed(self) -> bool:
        """Whether it is being terminated from outside."""
        return self.doomed_at is not None


class ProviderInstance(msgspec.Struct, frozen=True, kw_only=True):
    """An instance as a provider lists it."""

    id: str
    """Id of its record; empty if its mark does not contain the id."""
    provider_id: str
    key: GroupKey | None
    status: ProviderStatus
    created_at: float
    config_hash: str = ""


class EventType(StrEnum):
    """Kind of an event. An event only triggers a pass; the actions follow from the observed state."""

    CHECK_INSTANCE = "CheckInstance"
    GROUP_CHANGED = "GroupChanged"
    INSTANCE_DELETED = "InstanceDeleted"
    DRAIN_ACKED = "DrainAcked"
    TERMINATION_NOTICE = "TerminationNotice"
    INITIAL_RECONCILE = "InitialReconcile"
    ROTATION_REQUESTED = "RotationRequested"


class ReconcileEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A hint that a group should be reconciled now."""

    type: EventType
    group: str = ""
    tenant: str = ""
    instance_id: str = ""
    timestamp: float = 0.0
    """Time of its origin, for the log; 0 if unknown."""
    prevent_duplicate: bool = False
    """Ignore the event if an equal one was handled within the last two health intervals."""
    cause: str = ""
    """Origin of the event, for the log."""
    attempt: int = 0
    """Number of the repetition, for the log; an event with an attempt above 0 is never ignored as a duplicate."""
    deadline: float | None = None
    """For a termination notice: time at which the instance will be terminated."""


def share_of(instance_id: str) -> float:
    """Return a number in 0..1 derived from *instance_id*; the same on every machine."""
    return int.from_bytes(hashlib.blake2b(instance_id.encode(), digest_size=4).digest(), "big") / 0xFFFFFFFF
