"""A provider and a store in memory on Trio's clock, and a fleet that runs on them."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import trio

from haptic_trio.fleet.model import (
    EventType,
    GroupKey,
    GroupSpec,
    InstanceRecord,
    InstanceState,
    ProviderInstance,
    ProviderStatus,
    Reason,
    ReconcileEvent,
)
from haptic_trio.fleet.reconciler import FleetReconciler
from tests.fleet.rig.memory_store import MemoryStore

WEB = GroupKey("web")
LOOKS = frozenset({"list_owned", "adopt", "status", "drained"})
SPEC = GroupSpec(key=WEB, size=2, drain_timeout=30.0, start_timeout=20.0, config_hash="1")


def clock() -> float:
    return 1_000.0 + trio.current_time()


@dataclass
class FakeProvider:
    """Creates instances that answer after `start_time` and drain until the test adds them to `finished`."""

    latency: float = 0.1
    start_time: float = 1.0
    things: dict[str, ProviderInstance] = field(default_factory=dict)
    draining: set[str] = field(default_factory=set)
    finished: set[str] = field(default_factory=set)
    script: dict[str, list[Exception | float]] = field(default_factory=dict)
    """What the next calls do instead, by name: fail, or take so many seconds."""
    calls: list[tuple[float, str, str]] = field(default_factory=list)
    """Time, name and id of each call that has had its effect."""
    adopted: list[str] = field(default_factory=list)
    may_act: Callable[[], bool] = lambda: True
    """Asserted when a call that changes something begins."""

    async def _begin(self, name: str) -> None:
        assert name in LOOKS or self.may_act(), "F5: something was begun without leadership"
        await trio.sleep(self.latency)
        steps = self.script.get(name)
        if steps:
            step = steps.pop(0)
            if isinstance(step, Exception):
                raise step
            await trio.sleep(step)

    def _note(self, name: str, instance_id: str) -> None:
        self.calls.append((trio.current_time(), name, instance_id))

    def times_of(self, name: str) -> list[float]:
        return [time for time, called, _ in self.calls if called == name]

    def add(self, instance_id: str, key: GroupKey | None = WEB, *, config_hash: str = "1") -> None:
        self.things[instance_id] = ProviderInstance(
            id=instance_id,
            provider_id=f"thing-{instance_id}",
            key=key,
            status=ProviderStatus.RUNNING,
            created_at=clock(),
            config_hash=config_hash,
        )

    def become(self, instance_id: str, status: ProviderStatus) -> None:
        self.things[instance_id] = msgspec.structs.replace(self.things[instance_id], status=status)

    async def list_owned(self) -> Sequence[ProviderInstance]:
        await self._begin("list_owned")
        return list(self.things.values())

    async def adopt(self, record: InstanceRecord) -> None:
        await self._begin("adopt")
        self.adopted.append(record.id)

    async def create(self, record: InstanceRecord, spec: GroupSpec, *, heir_of: str = "") -> str:
        await self._begin("create")
        assert record.id not in {name for _, called, name in self.calls if called == "create"}
        self._note("create", record.id)
        self.add(record.id, record.key, config_hash=record.config_hash)
        # The instance exists, and its creation has not been reported yet.
        await trio.sleep(self.latency)
        return f"thing-{record.id}"

    async def status(self, record: InstanceRecord) -> ProviderStatus:
        await self._begin("status")
        thing = self.things.get(record.id)
        if thing is None:
            return ProviderStatus.NOT_FOUND
        is_up = clock() - thing.created_at >= self.start_time
        return thing.status if is_up or thing.status is not ProviderStatus.RUNNING else ProviderStatus.STARTING

    async def begin_drain(self, record: InstanceRecord, deadline: float) -> None:
        await self._begin("begin_drain")
        self._note("begin_drain", record.id)
        self.draining.add(record.id)

    async def drained(self, record: InstanceRecord) -> bool:
        await self._begin("drained")
        return record.id in self.finished or record.id not in self.things

    async def delete(self, record: InstanceRecord, *, force: bool = False) -> None:
        await self._begin("delete")
        self._note("delete", record.id)
        self.things.pop(record.id, None)


class FailingStore(MemoryStore):
    """A store that fails as many writes as the test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = 0

    async def put(self, record: InstanceRecord) -> None:
        if self.failures:
            await trio.lowlevel.checkpoint()
            self.failures -= 1
            raise OSError("no space left")
        await super().put(record)


@dataclass
class FakeFleet:
    """What outlives a term, and the reconciler of the present one."""

    provider: FakeProvider = field(default_factory=FakeProvider)
    store: FailingStore = field(default_factory=FailingStore)
    specs: dict[GroupKey, GroupSpec] | None = field(default_factory=lambda: {WEB: SPEC})
    is_leader: bool = True
    drains: list[tuple[str, Reason]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    reconciler: FleetReconciler | None = None
    born: int = 0

    def __post_init__(self) -> None:
        self.provider.may_act = lambda: self.is_leader

    def _make_id(self, key: GroupKey) -> str:
        self.born += 1
        return f"{key.group}-{self.born}"

    def make_reconciler(self, **options: Any) -> FleetReconciler:
        self.reconciler = FleetReconciler(
            provider=self.provider,
            store=self.store,
            groups=lambda: self.specs,
            is_leader=lambda: self.is_leader,
            notify_drain=lambda name, _group, reason, _began, _ends: self.drains.append((name, reason)),
            notify_error=lambda _group, _name, message: self.errors.append(message),
            clock=clock,
            new_id=self._make_id,
            **options,
        )
        return self.reconciler

    @asynccontextmanager
    async def term(self, **options: Any) -> AsyncIterator[FleetReconciler]:
        """Lead until the block ends."""
        async with trio.open_nursery() as nursery:
            reconciler = self.make_reconciler(**options)
            await nursery.start(reconciler.run)
            yield reconciler
            nursery.cancel_scope.cancel()

    def change_before_start(self, **changes: Any) -> None:
        assert self.specs is not None
        self.specs[WEB] = msgspec.structs.replace(self.specs[WEB], **changes)

    def change(self, **changes: Any) -> None:
        assert self.specs is not None
        assert self.reconciler is not None
        self.specs[WEB] = msgspec.structs.replace(self.specs[WEB], **changes)
        self.reconciler.enqueue(ReconcileEvent(type=EventType.GROUP_CHANGED, group="web"))

    def enqueue(self, kind: EventType, instance_id: str = "", **fields: Any) -> bool:
        assert self.reconciler is not None
        return self.reconciler.enqueue(ReconcileEvent(type=kind, group="web", instance_id=instance_id, **fields))

    def records(self, *states: InstanceState) -> list[InstanceRecord]:
        assert self.reconciler is not None
        records = [record for group in self.reconciler.snapshot().groups for record in group.records]
        return [record for record in records if not states or record.state in states]

    @property
    def ready(self) -> list[str]:
        return [record.id for record in self.records(InstanceState.READY)]

    @property
    def is_settled(self) -> bool:
        """Whether as many as wanted are ready, of the present hash, and nothing else is anywhere."""
        size = sum(spec.size for spec in (self.specs or {}).values())
        names = {record.id for record in self.records()}
        return (
            len(self.ready) == len(names) == size
            and names == set(self.provider.things) == set(self.store.records)
            and all(record.config_hash == (self.specs or {})[record.key].config_hash for record in self.records())
        )

    async def wait_settled(self, *, within: float = 600.0) -> list[str]:
        """Return the ids once it is settled; the time is virtual."""
        await self.wait(lambda: self.is_settled, within=within)
        return self.ready

    async def wait(self, is_so: Any, *, within: float = 600.0) -> None:
        with trio.move_on_after(within):
            # The clock is virtual: looking costs no time.
            while not is_so():  # noqa: ASYNC110
                await trio.sleep(0.05)
            return
        raise AssertionError(f"it did not come to pass: {self.records()} {self.provider.things} {self.errors}")
