"""Fleet reconciler during a leadership term: events in, passes over groups out.

An event is a hint that collapses into the key of its group. Its notice about
an instance (it will be terminated, it has drained) is kept until the next
pass records it. Decisions never depend on events: each pass observes the
instances itself, and the next pass is due at the latest when the passage of
time may change its result.
"""

import math
import secrets
import time
from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec
import trio

from haptic_trio.errors import HapticError, text_of
from haptic_trio.fleet.duplicates import DuplicateWindow
from haptic_trio.fleet.group_pass import GroupPass
from haptic_trio.fleet.group_state import RETRY_BASE, RETRY_JITTER, RETRY_MAX, CreateGate
from haptic_trio.fleet.groups import GroupStates
from haptic_trio.fleet.model import (
    EventType,
    GroupKey,
    GroupSpec,
    InstanceRecord,
    InstanceState,
    NotLeaderError,
    ReconcileEvent,
    RetryableError,
)
from haptic_trio.fleet.provider import NotifyDrain, NotifyError, Provider
from haptic_trio.fleet.side_effects import OBSERVE_LIMIT, GuardedEffects
from haptic_trio.fleet.store import Store
from haptic_trio.logs import get_logger
from haptic_trio.workqueue.controller import Controller
from haptic_trio.workqueue.limiter import ExponentialLimiter
from haptic_trio.workqueue.metrics import WorkQueueMetrics
from haptic_trio.workqueue.outcome import RequeueAfter
from haptic_trio.workqueue.work_queue import WorkQueue

RESYNC_INTERVAL = 60.0
"""Seconds between two full resyncs."""
ORPHAN_GRACE = 60.0
"""Seconds for which an object without a record must be listed before it is removed."""
WORKERS = 4
"""Groups that are reconciled in parallel."""
LIST_LIMIT = 60.0
"""Seconds that the provider may take to list its objects."""
LOST_DELAY = 1.0
"""Seconds until the next attempt if the leadership is lost and the term has not ended yet."""


class FullResync(msgspec.Struct, frozen=True):
    """Key of the comparison of all groups with all objects of the provider."""


Key: TypeAlias = GroupKey | FullResync
FULL_RESYNC = FullResync()


class GroupSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """State of a group at one time."""

    key: GroupKey
    spec: GroupSpec | None
    """None if the group is removed."""
    records: tuple[InstanceRecord, ...]
    """Oldest first."""


class FleetSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """State of the fleet at one time."""

    groups: tuple[GroupSnapshot, ...]


def make_id(key: GroupKey) -> str:
    """Return a unique id, made from the time and random characters."""
    return f"{key.group}-{int(time.time()):x}{secrets.token_hex(4)}"


class FleetReconciler:
    """Reconciles the instances of all groups with their specifications, for one term of leadership.

    *groups* returns the specifications; while it returns None nothing is
    done. *is_leader* is called before each side effect. *create_rate_limit*
    is the minimum time, in seconds, between two successful creations. *clock*
    is the wall clock.
    """

    def __init__(
        self,
        *,
        provider: Provider,
        store: Store,
        groups: Callable[[], Mapping[GroupKey, GroupSpec] | None],
        is_leader: Callable[[], bool],
        notify_drain: NotifyDrain,
        notify_error: NotifyError | None = None,
        create_rate_limit: float = 0.0,
        trust_acks: bool = False,
        resync_interval: float = RESYNC_INTERVAL,
        orphan_grace: float = ORPHAN_GRACE,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[GroupKey], str] = make_id,
        metrics: WorkQueueMetrics | None = None,
    ) -> None:
        self._provider = provider
        self._store = store
        self._groups = groups
        self._is_leader = is_leader
        self._trust_acks = trust_acks
        self._resync_interval = resync_interval
        self._clock = clock
        self._new_id = new_id
        self._metrics = metrics
        self._effects = GuardedEffects(
            provider, store, is_leader=is_leader, notify_drain=notify_drain, notify_error=notify_error, clock=clock
        )
        self._states = GroupStates(grace=orphan_grace)
        self._gate = CreateGate(create_rate_limit)
        self._duplicates = DuplicateWindow()
        self._controller: Controller[Key] | None = None
        self._has_run = False
        self._log = get_logger("fleet")

    def enqueue(self, event: ReconcileEvent) -> bool:
        """Trigger a pass over the group of *event*; never blocks.

        Returns False for a rejected event: the fleet is not running, the
        instance is unknown, or the event is a duplicate.
        """
        if self._controller is None:
            return False
        if event.type is EventType.INITIAL_RECONCILE:
            self._enqueue_all()
            return True
        key = self._find_group(event)
        if key is None:
            self._log.info(
                "ignored an event about an unknown instance", type=event.type.value, instance=event.instance_id
            )
            return False
        if self._duplicates.is_duplicate(event, self._clock(), window=self._window_of(key)):
            return False
        if event.type is EventType.DRAIN_ACKED:
            self._states.state_of(key).notice_of(event.instance_id).acked = True
        elif event.type is EventType.TERMINATION_NOTICE:
            notice = self._states.state_of(key).notice_of(event.instance_id)
            notice.merge(type(notice)(doomed=True, doomed_until=event.deadline))
        elif event.type is EventType.ROTATION_REQUESTED:
            self._states.state_of(key).notice_of(event.instance_id).unwanted = True
        self._duplicates.accept(key, event)
        self._log.debug(
            "event accepted",
            type=event.type.value,
            group=str(key),
            instance=event.instance_id,
            cause=event.cause,
            attempt=event.attempt,
            age=round(self._clock() - event.timestamp, 3) if event.timestamp else None,
        )
        self._controller.enqueue(key)
        return True

    def limit_creations(self, interval: float) -> None:
        """Set the minimum time between two successful creations, in seconds."""
        self._gate.interval = interval

    def _find_group(self, event: ReconcileEvent) -> GroupKey | None:
        found = self._states.find(event.instance_id) if event.instance_id else None
        if found is not None:
            return found[0].key
        if event.type in {EventType.GROUP_CHANGED, EventType.INSTANCE_DELETED} and event.group:
            return GroupKey(event.group, event.tenant)
        return None

    def _window_of(self, key: GroupKey) -> float:
        spec = (self._groups() or {}).get(key)
        return 2 * (spec.health_interval if spec is not None else OBSERVE_LIMIT)

    def _enqueue_all(self) -> None:
        assert self._controller is not None
        self._controller.enqueue(FULL_RESYNC, *sorted(self._states.keys() | set(self._groups() or {})))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Reconcile the fleet until cancelled, which ends the term; runs once.

        First takes over the instances of store and provider, and retries
        until that succeeds. started() means that they are taken over and
        that events are accepted. Cancellation stops it immediately; the next
        term continues its unfinished operations.
        """
        if self._has_run:
            raise RuntimeError("a fleet reconciler runs for one term only: create a new one")
        self._has_run = True
        await self._take_over()
        controller: Controller[Key] = (
            Controller(self._reconcile, name="fleet", metrics=self._metrics)
            .with_workers(WORKERS)
            .with_queue_factory(self._make_queue)
            .with_shutdown(0.0)
        )
        self._controller = controller
        try:
            self._enqueue_all()
            async with trio.open_nursery() as nursery:
                await nursery.start(controller.run)
                task_status.started()
        finally:
            self._controller = None

    def _make_queue(self, _base: float, _max: float) -> WorkQueue[Key]:
        return WorkQueue(
            name="fleet",
            limiter=ExponentialLimiter(RETRY_BASE, RETRY_MAX, RETRY_JITTER),
            metrics=self._metrics,
            # An event triggers a pass even while the group waits for a later time.
            collapse_deferred=True,
        )

    async def _take_over(self) -> None:
        limiter = ExponentialLimiter[str](RETRY_BASE, RETRY_MAX, RETRY_JITTER)
        while True:
            try:
                # Without knowledge of all existing instances, an operation might be carried out twice.
                for record in await self._store.load():
                    self._states.state_of(record.key).track(record, self._clock())
                await self._find_orphans(self._groups() or {})
            except (HapticError, OSError) as exc:
                self._log.warning("cannot take over the fleet yet, will retry", error=text_of(exc))
                await trio.sleep(limiter.next_retry(""))
            else:
                break
        for state in self._states:
            for record in tuple(state.records.values()):
                await self._adopt(record)

    async def _find_orphans(self, groups: Mapping[GroupKey, GroupSpec]) -> list[InstanceRecord]:
        try:
            with trio.fail_after(LIST_LIMIT):
                listing = await self._provider.list_owned()
        except trio.TooSlowError as exc:
            raise RetryableError(f"listing the instances took longer than {LIST_LIMIT:g} s") from exc
        orphans = self._states.compare(listing, groups, self._clock())
        for record in orphans:
            self._log.warning("found an instance without a record", instance=record.id, state=record.state.value)
            await self._effects.put(record)
            self._states.state_of(record.key).track(record, self._clock())
        return orphans

    async def _adopt(self, record: InstanceRecord) -> None:
        if record.state in {InstanceState.DRAINING, InstanceState.DELETING}:
            return
        try:
            with trio.move_on_after(OBSERVE_LIMIT):
                await self._provider.adopt(record)
        except (HapticError, OSError) as exc:
            # The next pass observes it as dead or unresponsive.
            self._effects.notify_error(record, exc)

    async def _reconcile(self, key: Key) -> RequeueAfter | None:
        groups = self._groups()
        if groups is None:
            return RequeueAfter(self._resync_interval)
        try:
            if isinstance(key, FullResync):
                await self._resync(groups)
                return RequeueAfter(self._resync_interval)
            return await self._reconcile_group(key, groups.get(key))
        except NotLeaderError:
            return RequeueAfter(LOST_DELAY)

    async def _reconcile_group(self, key: GroupKey, spec: GroupSpec | None) -> RequeueAfter | None:
        self._duplicates.begin(key)
        state = self._states.state_of(key)
        one = GroupPass(state, self._effects, self._gate, new_id=self._new_id, trust_acks=self._trust_acks)
        delay = await one.run(spec)
        self._duplicates.succeed(key, self._clock(), window=self._window_of(key))
        if spec is None and math.isinf(delay):
            self._states.drop_empty(key)
            return None
        return RequeueAfter(min(delay, self._resync_interval))

    async def _resync(self, groups: Mapping[GroupKey, GroupSpec]) -> None:
        for record in await self._find_orphans(groups):
            await self._adopt(record)
        assert self._controller is not None
        self._controller.enqueue(*sorted(self._states.keys() | set(groups)))

    def snapshot(self) -> FleetSnapshot:
        """Return the state of the fleet now."""
        groups = self._groups() or {}
        states = {state.key: state for state in self._states}
        return FleetSnapshot(
            groups=tuple(
                GroupSnapshot(
                    key=key,
                    spec=groups.get(key),
                    records=tuple(
                        sorted(
                            states[key].records.values() if key in states else (),
                            key=lambda record: (record.created_at, record.id),
                        )
                    ),
                )
                for key in sorted(groups.keys() | states.keys())
            )
        )
