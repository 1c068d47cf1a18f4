"""Protocols of instance providers and of drain notifications."""

from collections.abc import Sequence
from typing import Protocol

from haptic_trio.fleet.model import GroupSpec, InstanceRecord, ProviderInstance, ProviderStatus, Reason


class Provider(Protocol):
    """Makes, observes, drains and removes instances.

    Every call may be cancelled and made again. What fails raises a
    `HapticError` or OSError, to be tried again later, or a `PermanentError`
    when that is futile. Only what carries the provider's own mark is ever
    listed or touched.
    """

    async def list_owned(self) -> Sequence[ProviderInstance]:
        """Return everything with our mark, whether there is a record of it or not; what drains is STOPPING."""
        ...

    async def adopt(self, record: InstanceRecord) -> None:
        """Take an instance of an earlier controller in hand; does nothing when it is in hand, or not there."""
        ...

    async def create(self, record: InstanceRecord, spec: GroupSpec, *, heir_of: str = "") -> str:
        """Make the instance of *record* and return the provider's name of it.

        *heir_of* is the id of the one that will leave for it, if that is
        known. Called once for an id. Returns when it is made, not when it
        answers.
        """
        ...

    async def status(self, record: InstanceRecord) -> ProviderStatus:
        """Look at the instance; the caller limits the time."""
        ...

    async def begin_drain(self, record: InstanceRecord, deadline: float) -> None:
        """Have it take nothing new and finish what it has; called at least once, also for one that drains already."""
        ...

    async def drained(self, record: InstanceRecord) -> bool:
        """Whether a draining instance has finished, or is not there any more."""
        ...

    async def delete(self, record: InstanceRecord, *, force: bool = False) -> None:
        """Remove it; one that is not there is removed. With *force* nothing is waited for."""
        ...


class NotifyDrain(Protocol):
    """Is told of every drain, at least once, and again after a change of leadership."""

    def __call__(self, instance_id: str, group: str, reason: Reason, unhealthy_at: float, delete_at: float) -> None:
        """Take note; must not block."""
        ...


class NotifyError(Protocol):
    """Is told what went wrong."""

    def __call__(self, group: str, instance_id: str, message: str) -> None:
        """Take note; must not block."""
        ...


class Effects(Protocol):
    """What a pass over a group can do to the world.

    Everything but the looks raises NotLeaderError once the leadership is
    lost.
    """

    def now(self) -> float:
        """Return the wall-clock time."""
        ...

    async def put(self, record: InstanceRecord) -> None:
        """Keep *record*, durably."""
        ...

    async def forget(self, record: InstanceRecord) -> None:
        """Drop *record*, durably."""
        ...

    async def look(self, records: Sequence[InstanceRecord]) -> Sequence[ProviderStatus]:
        """Look at instances, all at once; UNKNOWN, told to notify_error, where that fails or takes too long."""
        ...

    async def drained(self, record: InstanceRecord) -> bool:
        """Whether it has finished; False when that cannot be found out."""
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
        """Tell that the drain of *record* has begun."""
        ...

    def notify_error(self, record: InstanceRecord, error: Exception) -> None:
        """Tell what went wrong with *record*."""
        ...
