"""Guarded effects of a pass on store and provider: only while leading, within limits."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import trio

from haptic_trio.errors import HapticError, text_of
from haptic_trio.fleet.model import GroupSpec, InstanceRecord, NotLeaderError, ProviderStatus, Reason, RetryableError
from haptic_trio.fleet.provider import NotifyDrain, NotifyError, Provider
from haptic_trio.fleet.store import Store
from haptic_trio.logs import get_logger

OBSERVE_LIMIT = 5.0
"""Seconds that the observation of an instance may take."""
WRITE_LIMIT = 2.0
"""Seconds for which the write of a record continues after a cancellation."""

ACT_LIMIT = 60.0
"""Seconds that the start of a drain, or a removal, may take."""

log = get_logger("fleet")


@contextmanager
def _limited(seconds: float, what: str, *, shield: bool = False) -> Iterator[None]:
    try:
        with trio.fail_after(seconds, shield=shield):
            yield
    except trio.TooSlowError as exc:
        raise RetryableError(f"{what} took longer than {seconds:g} s") from exc


class GuardedEffects:
    """Carries out the effects of a pass; calls *is_leader* directly before each one."""

    def __init__(
        self,
        provider: Provider,
        store: Store,
        *,
        is_leader: Callable[[], bool],
        notify_drain: NotifyDrain,
        notify_error: NotifyError | None,
        clock: Callable[[], float],
    ) -> None:
        self._provider = provider
        self._store = store
        self._is_leader = is_leader
        self._notify_drain = notify_drain
        self._notify_error = notify_error
        self._clock = clock

    def now(self) -> float:
        """Return the wall-clock time."""
        return self._clock()

    def _require_leader(self) -> None:
        if not self._is_leader():
            raise NotLeaderError("this controller has lost the leadership")

    async def put(self, record: InstanceRecord) -> None:
        """Write *record* durably; a cancellation takes effect after the write, at most `WRITE_LIMIT` seconds later."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self._require_leader()
        with _limited(WRITE_LIMIT, "writing the record of the instance", shield=True):
            await self._store.put(record)

    async def forget(self, record: InstanceRecord) -> None:
        """Drop *record* durably."""
        self._require_leader()
        with _limited(WRITE_LIMIT, "dropping the record of the instance", shield=True):
            await self._store.delete(record.id)

    async def observe(self, records: Sequence[InstanceRecord]) -> Sequence[ProviderStatus]:
        """Observe instances in parallel; UNKNOWN, reported by `notify_error`, for one that fails or takes too long."""
        found = [ProviderStatus.UNKNOWN] * len(records)

        async def observe_one(number: int, record: InstanceRecord) -> None:
            try:
                with _limited(OBSERVE_LIMIT, "observing the instance"):
                    found[number] = await self._provider.status(record)
            except (HapticError, OSError) as exc:
                self.notify_error(record, exc)

        async with trio.open_nursery() as nursery:
            for number, record in enumerate(records):
                nursery.start_soon(observe_one, number, record)
        return found

    async def drained(self, record: InstanceRecord) -> bool:
        """Whether it has finished; False, reported by `notify_error`, if that cannot be determined."""
        try:
            with _limited(OBSERVE_LIMIT, "observing the drain of the instance"):
                return await self._provider.drained(record)
        except (HapticError, OSError) as exc:
            self.notify_error(record, exc)
        return False

    async def begin_drain(self, record: InstanceRecord, deadline: float) -> None:
        """Begin its drain."""
        self._require_leader()
        with _limited(ACT_LIMIT, "starting the drain of the instance"):
            await self._provider.begin_drain(record, deadline)

    async def create(self, record: InstanceRecord, spec: GroupSpec, *, heir_of: str) -> str:
        """Create the instance; raises RetryableError after `GroupSpec.start_timeout`."""
        self._require_leader()
        with _limited(spec.start_timeout, "creating the instance"):
            return await self._provider.create(record, spec, heir_of=heir_of)

    async def delete(self, record: InstanceRecord, *, force: bool) -> None:
        """Remove the instance."""
        self._require_leader()
        with _limited(ACT_LIMIT, "removing the instance"):
            await self._provider.delete(record, force=force)

    def notify_drain(self, record: InstanceRecord) -> None:
        """Report that the drain of *record* has begun."""
        assert record.drain_started_at is not None
        assert record.drain_deadline is not None
        reason = record.drain_reason or Reason.SCALE_DOWN
        self._notify_drain(record.id, str(record.key), reason, record.drain_started_at, record.drain_deadline)

    def notify_error(self, record: InstanceRecord, error: Exception) -> None:
        """Report *error* of an operation on *record*."""
        message = text_of(error)
        if self._notify_error is not None:
            self._notify_error(str(record.key), record.id, message)
        else:
            log.warning("instance operation failed", instance=record.id, error=message)
