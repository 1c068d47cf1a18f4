"""Owner of one group of instances for the lifetime of the process."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import trio

from haptic_trio.channels import Facts, Latest
from haptic_trio.config.model import InstancesConfig
from haptic_trio.errors import HapticError
from haptic_trio.fleet.component import WishedGroups, run_fleet
from haptic_trio.fleet.desired_state import GroupWish, SizeOrder, read_order, write_order
from haptic_trio.fleet.model import GroupKey, InstanceRecord, InstanceState, Reason, ReconcileEvent
from haptic_trio.fleet.provider import Provider
from haptic_trio.fleet.reconciler import FleetReconciler, FleetSnapshot, make_id
from haptic_trio.fleet.status import FleetStatus, describe_fleet
from haptic_trio.fleet.store import Store
from haptic_trio.messages import ConfigValidated, FleetChanged, InstanceDraining, InstanceTroubled, LeadershipChanged
from haptic_trio.terms import run_terms
from haptic_trio.workqueue.metrics import WorkQueueMetrics

EVENT_BUFFER = 100
"""Events that may wait for a term that takes over; what does not fit is found by looking."""

T = TypeVar("T")
replace = msgspec.structs.replace


class NotLeadingError(HapticError):
    """This process does not look after the instances now; ask the one that leads, or try again later."""


class FixedSizeError(HapticError):
    """The size is not this process's to keep: write it into the configuration."""


class FleetOwner:
    """The group of *wish*, whose instances *provider* makes and of which *store* keeps the records.

    It learns what is wanted from the cells *config* (the running
    configuration's say) and *basis* (a hash of what instances are made from,
    apart from that). *newest* is the newest valid configuration: before the
    first one nobody expects an instance to be ready.
    """

    def __init__(
        self,
        provider: Provider,
        store: Store,
        wish: GroupWish,
        *,
        leadership: Latest[LeadershipChanged],
        config: Latest[InstancesConfig],
        basis: Latest[str],
        newest: Latest[ConfigValidated],
        facts: Facts,
        new_id: Callable[[GroupKey], str] = make_id,
        order_path: Path | None = None,
        clock: Callable[[], float] = time.time,
        metrics: WorkQueueMetrics | None = None,
    ) -> None:
        """*order_path* is the file that keeps a size that was asked for; None: nobody can ask for one."""
        self.wish = wish
        self.snapshots: Latest[FleetSnapshot] = Latest()
        """What the fleet was last, if anybody knows."""
        self._provider = provider
        self._store = store
        self._leadership = leadership
        self._config = config
        self._basis = basis
        self._newest = newest
        self._facts = facts
        self._new_id = new_id
        self._order_path = order_path
        self._clock = clock
        self._metrics = metrics
        self._wishes: Latest[WishedGroups] = Latest()
        self._reconciler: FleetReconciler | None = None
        self._notices: trio.MemorySendChannel[ReconcileEvent] | None = None

    @property
    def present(self) -> FleetSnapshot | None:
        """The fleet as it is now, or was when this process looked after it; None if it never has."""
        return self._reconciler.snapshot() if self._reconciler is not None else self.snapshots.value

    @property
    def is_leading(self) -> bool:
        """Whether this process looks after the instances now."""
        return self._reconciler is not None

    async def run(self) -> None:
        """Look after the instances in every term of leadership, until cancelled."""
        if self._order_path is not None:
            order = await trio.to_thread.run_sync(read_order, self._order_path)
            self.wish = replace(self.wish, order=order)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_follow, self._config, self._take_config)
            nursery.start_soon(_follow, self._basis, partial(self._change, "basis"))
            nursery.start_soon(self._await_first_generation)
            nursery.start_soon(_follow, self.snapshots, Teller(self._facts).tell)
            await run_terms(self._leadership, self._lead)

    async def _lead(self) -> None:
        notices_in, notices_out = trio.open_memory_channel[ReconcileEvent](EVENT_BUFFER)
        reconciler = FleetReconciler(
            provider=self._provider,
            store=self._store,
            groups=self._groups,
            is_leader=lambda: self._leadership.value is not None and self._leadership.value.is_leader,
            notify_drain=self._tell_drain,
            notify_error=self._tell_error,
            new_id=self._new_id,
            clock=self._clock,
            metrics=self._metrics,
        )
        self._limit_creations(reconciler)
        self._reconciler, self._notices = reconciler, notices_in
        try:
            with notices_in:
                await run_fleet(reconciler, self._wishes, notices_out, self.snapshots)
        finally:
            self._reconciler = self._notices = None

    # -- what is wanted ----------------------------------------------------

    def _groups(self) -> WishedGroups | None:
        # Instances that are not ours to make any more are left as they are.
        return self._wishes.value if self.wish.spec() is not None else None

    def _take_config(self, config: InstancesConfig) -> None:
        self._change("config", config)
        if self._reconciler is not None:
            self._limit_creations(self._reconciler)

    def _limit_creations(self, reconciler: FleetReconciler) -> None:
        if self.wish.config is not None:
            reconciler.limit_creations(float(self.wish.config.create_interval))

    def _change(self, field: str, value: object) -> None:
        self.wish = replace(self.wish, **{field: value})
        self._publish()

    def _publish(self) -> None:
        spec = self.wish.spec()
        groups: Mapping[GroupKey, Any] | None = {spec.key: spec} if spec is not None else None
        if groups is not None and groups != self._wishes.value:
            self._wishes.put(groups)

    async def _await_first_generation(self) -> None:
        began = trio.current_time()
        await self._newest.wait_newer(0)
        self._change("waited", trio.current_time() - began)

    # -- what people ask for -----------------------------------------------

    def notice(self, event: ReconcileEvent) -> None:
        """Pass on what somebody has noticed; it is a hint, and may be lost."""
        if self._notices is not None:
            try:
                self._notices.send_nowait(event)
            except (trio.WouldBlock, trio.BrokenResourceError):
                # The next look finds it.
                return

    def ask(self, event: ReconcileEvent) -> bool:
        """Have *event* handled; False when it is about nothing that is known. Raises NotLeadingError."""
        return self._leading().enqueue(event)

    def look(self) -> FleetSnapshot:
        """Return what is known now; raises NotLeadingError."""
        return self._leading().snapshot()

    def describe(self) -> FleetStatus:
        """Return what is told of it now; raises NotLeadingError."""
        configured = {str(self.wish.key): self.wish.configured_size}
        return describe_fleet(self.look(), self._clock(), configured=configured)

    def find(self, instance_id: str) -> InstanceRecord | None:
        """Return what is known of an instance; raises NotLeadingError."""
        records = (record for group in self.look().groups for record in group.records)
        return next((record for record in records if record.id == instance_id), None)

    async def resize(self, size: int | None) -> None:
        """Have *size* instances for as long as the configuration says what it says now; None as many as it says.

        Durable when this returns. Raises NotLeadingError and FixedSizeError.
        """
        self._leading()
        if self._order_path is None:
            raise FixedSizeError("the size of these instances is that of the configuration: edit `instances.size`")
        configured = self.wish.configured_size
        order = SizeOrder(size=size, instead_of=configured) if size is not None and size != configured else None
        await trio.to_thread.run_sync(write_order, self._order_path, order)
        self._change("order", order)

    def _leading(self) -> FleetReconciler:
        if self._reconciler is None:
            raise NotLeadingError("this controller does not look after instances now: another one leads")
        return self._reconciler

    # -- what is told ------------------------------------------------------

    def _tell_drain(self, instance_id: str, group: str, reason: Reason, unhealthy_at: float, delete_at: float) -> None:
        self._facts.tell(
            InstanceDraining(
                instance=instance_id, group=group, reason=reason.value, seconds=max(0.0, delete_at - unhealthy_at)
            )
        )

    def _tell_error(self, group: str, instance_id: str, message: str) -> None:
        self._facts.tell(InstanceTroubled(instance=instance_id, group=group, error=message))


async def _follow(cell: Latest[T], take: Callable[[T], None]) -> None:
    seen = 0
    while True:
        seen, value = await cell.wait_newer(seen)
        take(value)


class Teller:
    """Tells how many instances there are of each state, whenever that changes."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._told: dict[str, FleetChanged] = {}

    def tell(self, snapshot: FleetSnapshot) -> None:
        """Tell what is other in *snapshot* than it was last."""
        for group in snapshot.groups:
            if group.spec is None:
                # Nobody has said yet what it shall be.
                continue
            states = [record.state for record in group.records]
            fact = FleetChanged(
                group=str(group.key),
                size=group.spec.size,
                states={state.value: states.count(state) for state in InstanceState},
            )
            if self._told.get(fact.group) != fact:
                self._told[fact.group] = fact
                self._facts.tell(fact)
