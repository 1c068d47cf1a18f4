"""Owner of one group of instances for the lifetime of the process."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import trio

from haptic_trio.channels import EventBuffer, Latest
from haptic_trio.config.model import InstancesConfig
from haptic_trio.errors import HapticError
from haptic_trio.fleet.component import DesiredGroups, run_fleet
from haptic_trio.fleet.desired_state import DesiredGroup, SizeOverride, read_size_override, write_size_override
from haptic_trio.fleet.model import GroupKey, InstanceRecord, InstanceState, Reason, ReconcileEvent
from haptic_trio.fleet.provider import Provider
from haptic_trio.fleet.reconciler import FleetReconciler, FleetSnapshot, make_id
from haptic_trio.fleet.status import FleetStatus, describe_fleet
from haptic_trio.fleet.store import Store
from haptic_trio.messages import (
    ConfigValidated,
    FleetChanged,
    InstanceDraining,
    InstanceOperationFailed,
    LeadershipChanged,
)
from haptic_trio.terms import run_terms
from haptic_trio.workqueue.metrics import WorkQueueMetrics

EVENT_BUFFER = 100
REPORT_AGAIN = 300.0
"""Seconds after which an error that stays the same is logged again."""
"""Events that may wait while a term takes over; the next observation makes up for the events that do not fit."""

T = TypeVar("T")
replace = msgspec.structs.replace


class NotLeadingError(HapticError):
    """This process does not manage the instances now; ask the leader, or retry later."""


class FixedSizeError(HapticError):
    """The size cannot be overridden here; set it in the configuration. A permanent error."""


class FleetOwner:
    """Manages the group *desired*: *provider* creates its instances, *store* keeps their records.

    The desired state changes with the cells *config* (settings of the running
    configuration) and *basis* (hash of the other inputs of an instance).
    *newest* holds the newest valid configuration: instances are not expected
    to become ready before the first one.
    """

    def __init__(
        self,
        provider: Provider,
        store: Store,
        desired: DesiredGroup,
        *,
        leadership: Latest[LeadershipChanged],
        config: Latest[InstancesConfig],
        basis: Latest[str],
        newest: Latest[ConfigValidated],
        events: EventBuffer,
        new_id: Callable[[GroupKey], str] = make_id,
        size_override_path: Path | None = None,
        clock: Callable[[], float] = time.time,
        metrics: WorkQueueMetrics | None = None,
    ) -> None:
        """*size_override_path* is the file that keeps a size requested by a user; None: `resize` is not possible."""
        self.desired = desired
        self.snapshots: Latest[FleetSnapshot] = Latest()
        """The last known snapshot of the fleet."""
        self._errors: dict[tuple[str, str], float] = {}
        """Times of reported errors, by group and message without the instance."""
        self._provider = provider
        self._store = store
        self._leadership = leadership
        self._config = config
        self._basis = basis
        self._newest = newest
        self._events = events
        self._new_id = new_id
        self._size_override_path = size_override_path
        self._clock = clock
        self._metrics = metrics
        self._desired_groups: Latest[DesiredGroups] = Latest()
        self._reconciler: FleetReconciler | None = None
        self._notices: trio.MemorySendChannel[ReconcileEvent] | None = None

    @property
    def present(self) -> FleetSnapshot | None:
        """The fleet as it is now, or at the end of the last term of this process; None before its first term."""
        return self._reconciler.snapshot() if self._reconciler is not None else self.snapshots.value

    @property
    def is_leading(self) -> bool:
        """Whether this process manages the instances now."""
        return self._reconciler is not None

    async def run(self) -> None:
        """Manage the instances during each term of leadership, until cancelled."""
        if self._size_override_path is not None:
            override = await trio.to_thread.run_sync(read_size_override, self._size_override_path)
            self.desired = replace(self.desired, size_override=override)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_follow, self._config, self._take_config)
            nursery.start_soon(_follow, self._basis, partial(self._change, "basis"))
            nursery.start_soon(self._await_first_generation)
            nursery.start_soon(_follow, self.snapshots, FleetChangeReporter(self._events).report)
            await run_terms(self._leadership, self._lead)

    async def _lead(self) -> None:
        notices_in, notices_out = trio.open_memory_channel[ReconcileEvent](EVENT_BUFFER)
        reconciler = FleetReconciler(
            provider=self._provider,
            store=self._store,
            groups=self._groups,
            is_leader=lambda: self._leadership.value is not None and self._leadership.value.is_leader,
            notify_drain=self._report_drain,
            notify_error=self._report_error,
            new_id=self._new_id,
            clock=self._clock,
            metrics=self._metrics,
        )
        self._limit_creations(reconciler)
        self._reconciler, self._notices = reconciler, notices_in
        try:
            with notices_in:
                await run_fleet(reconciler, self._desired_groups, notices_out, self.snapshots)
        finally:
            self._reconciler = self._notices = None

    def _groups(self) -> DesiredGroups | None:
        # Without a complete desired state, for example without a PodTemplate, existing instances stay as they are.
        return self._desired_groups.value if self.desired.spec() is not None else None

    def _take_config(self, config: InstancesConfig) -> None:
        self._change("config", config)
        if self._reconciler is not None:
            self._limit_creations(self._reconciler)

    def _limit_creations(self, reconciler: FleetReconciler) -> None:
        if self.desired.config is not None:
            reconciler.limit_creations(float(self.desired.config.create_interval))

    def _change(self, field: str, value: object) -> None:
        self.desired = replace(self.desired, **{field: value})
        self._publish()

    def _publish(self) -> None:
        spec = self.desired.spec()
        groups: Mapping[GroupKey, Any] | None = {spec.key: spec} if spec is not None else None
        if groups is not None and groups != self._desired_groups.value:
            self._desired_groups.put(groups)

    async def _await_first_generation(self) -> None:
        began = trio.current_time()
        await self._newest.wait_newer(0)
        self._change("waited", trio.current_time() - began)

    def notice(self, event: ReconcileEvent) -> None:
        """Forward *event* to the current term; never blocks. The event is dropped if there is none, or on overflow."""
        if self._notices is not None:
            try:
                self._notices.send_nowait(event)
            except (trio.WouldBlock, trio.BrokenResourceError):
                # The next observation finds it.
                return

    def ask(self, event: ReconcileEvent) -> bool:
        """Enqueue *event*; False if its instance or group is unknown. Raises NotLeadingError."""
        return self._leading().enqueue(event)

    def snapshot(self) -> FleetSnapshot:
        """Return the fleet as it is now; raises NotLeadingError."""
        return self._leading().snapshot()

    def describe(self) -> FleetStatus:
        """Return the status of the fleet; raises NotLeadingError."""
        configured = {str(self.desired.key): self.desired.configured_size}
        return describe_fleet(self.snapshot(), self._clock(), configured=configured)

    def find(self, instance_id: str) -> InstanceRecord | None:
        """Return the record of an instance, None for an unknown one; raises NotLeadingError."""
        records = (record for group in self.snapshot().groups for record in group.records)
        return next((record for record in records if record.id == instance_id), None)

    async def resize(self, size: int | None) -> None:
        """Override the size until the configured size changes; None removes the override.

        The override is durable when this returns. Raises NotLeadingError and
        FixedSizeError.
        """
        self._leading()
        if self._size_override_path is None:
            raise FixedSizeError("only the configuration sets the size of these instances: edit `instances.size`")
        configured = self.desired.configured_size
        override = SizeOverride(size=size, instead_of=configured) if size is not None and size != configured else None
        await trio.to_thread.run_sync(write_size_override, self._size_override_path, override)
        self._change("size_override", override)

    def _leading(self) -> FleetReconciler:
        if self._reconciler is None:
            raise NotLeadingError("this controller is not the leader: send the command to the leader")
        return self._reconciler

    def _report_drain(
        self, instance_id: str, group: str, reason: Reason, unhealthy_at: float, delete_at: float
    ) -> None:
        self._events.record(
            InstanceDraining(
                instance=instance_id, group=group, reason=reason.value, seconds=max(0.0, delete_at - unhealthy_at)
            )
        )

    def _report_error(self, group: str, instance_id: str, message: str) -> None:
        key, now = (group, message.replace(instance_id, "")), self._clock()
        is_repeated = now - self._errors.get(key, -REPORT_AGAIN) < REPORT_AGAIN
        if not is_repeated:
            self._errors = {known: at for known, at in self._errors.items() if now - at < REPORT_AGAIN} | {key: now}
        self._events.record(
            InstanceOperationFailed(instance=instance_id, group=group, error=message, is_repeated=is_repeated)
        )


async def _follow(cell: Latest[T], take: Callable[[T], None]) -> None:
    seen = 0
    while True:
        seen, value = await cell.wait_newer(seen)
        take(value)


class FleetChangeReporter:
    """Emits FleetChanged whenever the number of instances in any state changes."""

    def __init__(self, events: EventBuffer) -> None:
        self._events = events
        self._reported: dict[str, FleetChanged] = {}

    def report(self, snapshot: FleetSnapshot) -> None:
        """Emit an event for each group whose counts differ from the last report."""
        for group in snapshot.groups:
            if group.spec is None:
                # Its desired size is not known.
                continue
            states = [record.state for record in group.records]
            event = FleetChanged(
                group=str(group.key),
                size=group.spec.size,
                states={state.value: states.count(state) for state in InstanceState},
            )
            if self._reported.get(event.group) != event:
                self._reported[event.group] = event
                self._events.record(event)
