"""Protocols of instance providers and of drain notifications."""

from collections.abc import Sequence
from typing import Protocol

from haptic_trio.fleet.model import GroupSpec, InstanceRecord, ProviderInstance, ProviderStatus, Reason


class Provider(Protocol):
    """Creates, observes, drains and removes instances.

    Every call may be cancelled and repeated. A call raises a `HapticError` or
    OSError if a later retry may succeed, and a `PermanentError` otherwise.
    A provider lists and changes only objects that carry its own mark.
    """

    async def list_owned(self) -> Sequence[ProviderInstance]:
        """Return all objects with the mark of the provider, with or without a record; draining ones are STOPPING."""
        ...

    async def adopt(self, record: InstanceRecord) -> None:
        """Manage an instance of an earlier controller; does nothing if it is already managed, or does not exist."""
        ...

    async def create(self, record: InstanceRecord, spec: GroupSpec, *, heir_of: str = "") -> str:
        """Create the instance of *record* and return its name at the provider.

        *heir_of* is the id of the instance that it replaces, if known. Called
        once for an id. Returns when the instance is created; it may not
        answer yet.
        """
        ...

    async def status(self, record: InstanceRecord) -> ProviderStatus:
        """Observe the instance; the caller limits the time."""
        ...

    async def begin_drain(self, record: InstanceRecord, deadline: float) -> None:
        """Let it finish its connections and accept no new ones; called at least once, possibly while it drains."""
        ...

    async def drained(self, record: InstanceRecord) -> bool:
        """Whether a draining instance has finished, or no longer exists."""
        ...

    async def delete(self, record: InstanceRecord, *, force: bool = False) -> None:
        """Remove it; does nothing if it does not exist. With *force*, wait for nothing."""
        ...


class NotifyDrain(Protocol):
    """Callback for each drain, also one that the provider cannot begin; called again after a change of leadership."""

    def __call__(self, instance_id: str, group: str, reason: Reason, unhealthy_at: float, delete_at: float) -> None:
        """Receive the notification; must not block. Times are wall-clock seconds."""
        ...


class NotifyError(Protocol):
    """Callback for each failed operation on an instance."""

    def __call__(self, group: str, instance_id: str, message: str) -> None:
        """Receive the error; must not block."""
        ...


class Effects(Protocol):
    """Side effects and observations available to a pass.

    All methods except `observe` and `drained` raise NotLeaderError once the
    leadership is lost.
    """

    def now(self) -> float:
        """Return the wall-clock time."""
        ...

    async def put(self, record: InstanceRecord) -> None:
        """Write *record* durably."""
        ...

    async def forget(self, record: InstanceRecord) -> None:
        """Drop *record* durably."""
        ...

    async def observe(self, records: Sequence[InstanceRecord]) -> Sequence[ProviderStatus]:
        """Observe instances in parallel; UNKNOWN, reported by `notify_error`, for one that fails or takes too long."""
        ...

    async def drained(self, record: InstanceRecord) -> bool:
        """Whether it has finished; False, reported by `notify_error`, if that cannot be determined."""
        ...

    async def begin_drain(self, record: InstanceRecord, deadline: float) -> None:
        """As `Provider.begin_drain`."""
        ...

    async def create(self, record: InstanceRecord, spec: GroupSpec, *, heir_of: str) -> str:
        """As `Provider.create`."""
        ...

    async def delete(self, record: InstanceRecord, *, force: bool) -> None:
        """As `Provider.delete`."""
        ...

    def notify_drain(self, record: InstanceRecord) -> None:
        """Report that the drain of *record* has begun."""
        ...

    def notify_error(self, record: InstanceRecord, error: Exception) -> None:
        """Report *error* of an operation on *record*."""
        ...
