"""In-memory provider, store and clock that a test controls, with assertions of the invariants of each effect."""

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from haptic_trio.fleet.model import (
    LIVING,
    TERMINAL,
    GroupKey,
    GroupSpec,
    InstanceRecord,
    InstanceState,
    NotLeaderError,
    ProviderInstance,
    ProviderStatus,
    Reason,
    RetryableError,
)
from haptic_trio.fleet.plan import ROTATION_REASONS

GROUP = GroupKey("web")


class Step(Awaitable[None]):
    """A point at which a pass may be cut off."""

    def __await__(self) -> Generator[None, None, None]:
        yield


def drive(work: Coroutine[Any, Any, Any], *, steps: int = -1, then: Callable[[], None] | None = None) -> Any:
    """Run *work*, which awaits nothing but Steps, and return its result.

    After *steps* of them *then* is called; without it the work is cut off,
    as by a crash, and the result is None.
    """
    while True:
        try:
            work.send(None)
        except StopIteration as stop:
            return stop.value
        if steps == 0:
            if then is None:
                work.close()
                return None
            then()
        steps -= 1


@dataclass
class Thing:
    """An object that the provider has created."""

    id: str
    config_hash: str
    created_at: float
    answers_at: float
    status: ProviderStatus = ProviderStatus.RUNNING
    """RUNNING is STARTING before it answers."""
    draining: bool = False
    busy: bool = False
    """A draining one that is busy does not finish by itself."""


@dataclass
class World:
    """Everything that outlives a controller, and what is asserted of every effect."""

    start_time: float = 2.0
    time: float = 1000.0
    is_leader: bool = True
    records: dict[str, InstanceRecord] = field(default_factory=dict)
    things: dict[str, Thing] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    """How often the next calls fail, by name."""
    spec: GroupSpec | None = None
    """Of the pass that runs."""
    rate_limit: float = 0.0
    created: list[tuple[float, str]] = field(default_factory=list)
    succeeded: set[str] = field(default_factory=set)
    born: int = 0
    notified: list[tuple[str, Reason | None]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def new_id(self, key: GroupKey) -> str:
        self.born += 1
        return f"{key.group}-{self.born}"

    def listing(self) -> list[ProviderInstance]:
        return [
            ProviderInstance(
                id=thing.id,
                provider_id=f"thing-{thing.id}",
                key=GROUP,
                status=ProviderStatus.STOPPING if thing.draining else self.status_of(thing.id),
                created_at=thing.created_at,
                config_hash=thing.config_hash,
            )
            for thing in self.things.values()
        ]

    def status_of(self, instance_id: str) -> ProviderStatus:
        thing = self.things.get(instance_id)
        if thing is None:
            return ProviderStatus.NOT_FOUND
        if thing.status is ProviderStatus.RUNNING and self.time < thing.answers_at:
            return ProviderStatus.STARTING
        return thing.status

    def in_state(self, *states: InstanceState) -> list[InstanceRecord]:
        return [record for record in self.records.values() if record.state in states]

    @property
    def active(self) -> list[InstanceRecord]:
        return [record for record in self.in_state(*LIVING) if not record.is_doomed]

    def now(self) -> float:
        return self.time

    async def _call(self, name: str) -> None:
        await Step()
        if name not in {"status", "drained"} and not self.is_leader:
            raise NotLeaderError("not the leader")
        if self.failures[name] > 0:
            self.failures[name] -= 1
            raise RetryableError(f"scripted failure: {name}")

    async def put(self, record: InstanceRecord) -> None:
        await self._call("put")
        former = self.records.get(record.id)
        self.records[record.id] = record
        if record.state is InstanceState.DRAINING and (former is None or former.state is not InstanceState.DRAINING):
            self._check_drain(record)
        await Step()

    def _check_drain(self, record: InstanceRecord) -> None:
        assert self.spec is not None
        if record.drain_reason is not Reason.TERMINATING:
            ready = [other for other in self.in_state(InstanceState.READY) if not other.is_doomed]
            assert len(ready) >= self.spec.size, "F2: too few are left ready"
        rotations = [r for r in self.in_state(InstanceState.DRAINING) if r.drain_reason in ROTATION_REASONS]
        assert len(rotations) <= 1, "F4: two voluntary drains"

    async def forget(self, record: InstanceRecord) -> None:
        await self._call("forget")
        assert record.id not in self.things, "F7: a record was dropped before its instance was gone"
        self.records.pop(record.id, None)
        await Step()

    async def create(self, record: InstanceRecord, spec: GroupSpec, *, heir_of: str) -> str:
        await Step()
        if not self.is_leader:
            raise NotLeaderError("not the leader")
        assert record.id in self.records, "F7: created without a record"
        assert record.id not in {name for _, name in self.created}, "F7: created twice"
        assert not heir_of or heir_of in self.records
        assert len(self.active) <= spec.size + spec.surge, "F3: too many active"
        assert len(self.records) <= spec.limit, "F3: above the cap"
        self.created.append((self.time, record.id))
        if self.failures["create"] > 0:
            self.failures["create"] -= 1
            # Half of the failures leave something behind.
            if self.failures["create"] % 2:
                self._make(record)
            raise RetryableError("scripted failure: create")
        successes = [at for at, name in self.created if name in self.succeeded]
        assert not successes or self.time - successes[-1] >= self.rate_limit, "F11: too soon after the last one"
        self._make(record)
        self.succeeded.add(record.id)
        await Step()
        return f"thing-{record.id}"

    def _make(self, record: InstanceRecord) -> None:
        self.things[record.id] = Thing(record.id, record.config_hash, self.time, self.time + self.start_time)

    async def observe(self, records: Sequence[InstanceRecord]) -> Sequence[ProviderStatus]:
        return [await self._look_at(record) for record in records]

    async def _look_at(self, record: InstanceRecord) -> ProviderStatus:
        try:
            await self._call("status")
        except RetryableError:
            return ProviderStatus.UNKNOWN
        return self.status_of(record.id)

    async def drained(self, record: InstanceRecord) -> bool:
        try:
            await self._call("drained")
        except RetryableError:
            return False
        thing = self.things.get(record.id)
        if thing is None or thing.status in TERMINAL:
            return True
        return thing.draining and not thing.busy and thing.status is ProviderStatus.RUNNING

    async def begin_drain(self, record: InstanceRecord, deadline: float) -> None:
        await self._call("begin_drain")
        assert record.id in self.records, "F8: touched what there is no record of"
        if record.id in self.things:
            self.things[record.id].draining = True
        await Step()

    async def delete(self, record: InstanceRecord, *, force: bool) -> None:
        await self._call("delete")
        assert record.id in self.records, "F8: touched what there is no record of"
        thing = self.things.get(record.id)
        if thing is not None:
            self._check_removal(record)
        self.things.pop(record.id, None)
        await Step()

    def _check_removal(self, record: InstanceRecord) -> None:
        is_well = self.status_of(record.id) is ProviderStatus.RUNNING and record.ready_at is not None
        # One that was found dead and came back is dead all the same; the world never does that.
        if is_well and not record.is_doomed:
            assert record.drain_deadline is not None, "F1: removed without a drain"
            assert record.drain_acked_at is not None or self.time >= record.drain_deadline, "F1: a drain was cut short"

    def notify_drain(self, record: InstanceRecord) -> None:
        self.notified.append((record.id, record.drain_reason))

    def notify_error(self, record: InstanceRecord, error: Exception) -> None:
        self.errors.append(str(error))
