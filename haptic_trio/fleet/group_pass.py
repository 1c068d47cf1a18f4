"""One pass over a group: observe its instances, plan, act.

A pass may end at any await, by a crash or a cancellation. The next pass, of
this controller or of its successor, continues from the records:

- A record is written before its instance is created, and dropped after the
  instance is gone.
- A drain is recorded before it begins. The fact that it has begun is
  remembered for this term only, so a successor begins it again.
- The next observation settles a creation whose outcome is unknown. If the
  instance does not exist, its record is dropped and a new instance is created
  under a new id.

A failed operation is retried after its own delay and does not delay others.
The code awaits only its effects, so tests can step through it.
"""

import logging
import math
from collections.abc import Callable

import msgspec

from haptic_trio.errors import HapticError
from haptic_trio.fleet.group_state import CREATION, CreateGate, GroupState, Notice
from haptic_trio.fleet.model import (
    GroupKey,
    GroupSpec,
    InstanceRecord,
    InstanceState,
    NotLeaderError,
    ProviderStatus,
    Reason,
)
from haptic_trio.fleet.plan import Create, Delete, Drain, next_due, plan
from haptic_trio.fleet.provider import Effects
from haptic_trio.logs import get_logger
from haptic_trio.workqueue.outcome import PermanentError, read_error

POLL_INTERVAL = 0.5
"""Seconds between two passes over a group in which an instance starts or drains."""

_UNSETTLED = frozenset({InstanceState.PENDING, InstanceState.STARTING, InstanceState.DRAINING})
_UNTIMELY = frozenset({Reason.DEAD, Reason.NOT_STARTED})

replace = msgspec.structs.replace
log = get_logger("fleet")


class GroupPass:
    """Passes over the group of *state*, through *effects*; one at a time."""

    def __init__(
        self,
        state: GroupState,
        effects: Effects,
        gate: CreateGate,
        *,
        new_id: Callable[[GroupKey], str],
        trust_acks: bool = False,
    ) -> None:
        """With *trust_acks*, the acknowledgement of a drain that was not requested ends the instance."""
        self._state = state
        self._effects = effects
        self._gate = gate
        self._new_id = new_id
        self._trust_acks = trust_acks
        self._wanted = GroupSpec(key=state.key, size=0)

    async def run(self, spec: GroupSpec | None) -> float:
        """Bring the group one step closer to *spec*; None removes the group.

        Returns the seconds until the next pass is due at the latest; infinity
        if the group has no instances left. Raises NotLeaderError, and errors
        of the store.
        """
        state = self._state
        state.spec = spec or state.spec or GroupSpec(key=state.key, size=0)
        self._wanted = wanted = spec or replace(state.spec, size=0, cap=0)
        await self._record_notices()
        await self._observe()
        await self._forget_removed()
        actions = plan(wanted, state.records.values(), self._effects.now())
        progress = False
        for action in actions:
            if isinstance(action, Drain):
                progress |= await self._drain(action)
            elif isinstance(action, Delete):
                progress |= await self._delete(state.records[action.id], action.reason)
        for record in tuple(state.records.values()):
            if record.state is InstanceState.DRAINING and record.id not in state.begun:
                await self._begin_drain(record)
        creation = next((action for action in actions if isinstance(action, Create)), None)
        if creation is not None:
            # One creation per pass: events that arrive meanwhile are handled before the next one.
            progress |= await self._create(wanted, creation)
        return 0.0 if progress else self._delay(wanted, has_creation=creation is not None)

    async def _record_notices(self) -> None:
        state = self._state
        for instance_id in tuple(state.notices):
            # Removed first: a notice that arrives during the write is left to the next pass.
            notice = state.notices.pop(instance_id)
            record = state.records.get(instance_id)
            if record is None or record.state is InstanceState.DELETING:
                continue
            changed = self._with_notice(record, notice)
            if changed != record:
                try:
                    await self._put(changed)
                except (HapticError, OSError):
                    state.notice_of(instance_id).merge(notice)
                    raise

    def _with_notice(self, record: InstanceRecord, notice: Notice) -> InstanceRecord:
        now = self._effects.now()
        if notice.doomed:
            times = [time for time in (record.doomed_until, notice.doomed_until) if time is not None]
            record = replace(
                record,
                doomed_at=now if record.doomed_at is None else record.doomed_at,
                doomed_until=min(times, default=None),
            )
        if notice.unwanted and record.unwanted_at is None:
            record = replace(record, unwanted_at=now)
        if not notice.acked or record.drain_acked_at is not None:
            return record
        if record.state is InstanceState.DRAINING:
            return replace(record, drain_acked_at=now)
        if self._trust_acks or record.is_doomed:
            return replace(_draining(record, Reason.TERMINATING, now, now), drain_acked_at=now)
        log.warning("ignored the acknowledgement of a drain that was not requested", instance=record.id)
        return record

    async def _observe(self) -> None:
        state = self._state
        begun = [state.records[instance_id] for instance_id in sorted(state.begun & state.records.keys())]
        for record in begun:
            is_open = record.state is InstanceState.DRAINING and record.drain_acked_at is None
            if is_open and await self._effects.drained(record):
                await self._put(replace(record, drain_acked_at=self._effects.now()))
        others = [
            record
            for record in state.records.values()
            if record.state is not InstanceState.DELETING and record.id not in state.begun
        ]
        if not others:
            return
        found = await self._effects.observe(others)
        now = self._effects.now()
        for record, status in zip(others, found, strict=True):
            seen = _with_status(record, status, now)
            if seen.state is not record.state:
                await self._put(seen)
            else:
                # A successor observes this itself, so it is not written to the store.
                state.records[record.id] = seen
            state.note_stability(seen, now)

    async def _forget_removed(self) -> None:
        """Drop the records of instances that are gone although their removal failed permanently."""
        state = self._state
        parked = [
            record
            for record in state.records.values()
            if record.state is InstanceState.DELETING and state.is_parked(record.id, self._wanted)
        ]
        found = await self._effects.observe(parked) if parked else ()
        for record, status in zip(parked, found, strict=True):
            if status is ProviderStatus.NOT_FOUND:
                await self._effects.forget(record)
                state.drop(record.id)

    async def _put(self, record: InstanceRecord) -> None:
        await self._effects.put(record)
        self._state.records[record.id] = record

    async def _drain(self, action: Drain) -> bool:
        record = self._state.records[action.id]
        await self._put(_draining(record, action.reason, self._effects.now(), action.deadline))
        return True

    async def _begin_drain(self, record: InstanceRecord) -> None:
        state = self._state
        if not state.may_try(record.id, self._wanted, self._effects.now()):
            return
        assert record.drain_deadline is not None
        try:
            await self._effects.begin_drain(record, record.drain_deadline)
        except NotLeaderError:
            raise
        except (HapticError, OSError) as exc:
            self._fail(record.id, record, exc)
        else:
            state.note_success(record.id)
            state.begun.add(record.id)
        if record.id not in state.notified:
            # Also after a failure: the instance is removed at its deadline in any case.
            state.notified.add(record.id)
            self._effects.notify_drain(record)

    async def _delete(self, record: InstanceRecord, reason: Reason) -> bool:
        """Remove an instance; False if the removal has failed, or waits for its retry."""
        state = self._state
        now = self._effects.now()
        if record.state is not InstanceState.DELETING:
            # A failed creation has been reported with its cause.
            level = logging.DEBUG if reason is Reason.CREATE_FAILED else logging.INFO
            log.log(level, "removing an instance", instance=record.id, reason=reason.value)
            if reason in _UNTIMELY and record.state is not InstanceState.PENDING:
                state.note_death(record, now)
            record = replace(record, state=InstanceState.DELETING)
            await self._put(record)
            # What failed before was its drain.
            state.note_success(record.id)
        elif not state.may_try(record.id, self._wanted, now):
            return False
        try:
            await self._effects.delete(record, force=record.drain_acked_at is None)
        except NotLeaderError:
            raise
        except (HapticError, OSError) as exc:
            self._fail(record.id, record, exc)
            return False
        await self._effects.forget(record)
        state.drop(record.id)
        return True

    async def _create(self, spec: GroupSpec, creation: Create) -> bool:
        state = self._state
        now = self._effects.now()
        if not state.may_try(CREATION, spec, now) or self._gate.delay(now):
            return False
        if len(state.records) >= spec.limit:
            # The plan assumes that removals succeed; some may have failed.
            return False
        record = InstanceRecord(
            id=self._new_id(state.key),
            key=state.key,
            state=InstanceState.PENDING,
            created_at=now,
            config_hash=spec.config_hash,
        )
        self._gate.begin()
        made_at = None
        try:
            await self._put(record)
            try:
                name = await self._effects.create(record, spec, heir_of=creation.heir_of)
                made_at = self._effects.now()
            except NotLeaderError:
                raise
            except (HapticError, OSError) as exc:
                self._fail(CREATION, record, exc)
                # A failed creation may leave something behind, which is removed like any other instance.
                await self._delete(record, Reason.CREATE_FAILED)
                return False
        finally:
            self._gate.end(made_at)
        log.info("created an instance", instance=record.id, reason=creation.reason.value)
        await self._put(replace(record, state=InstanceState.STARTING, provider_id=name))
        return True

    def _fail(self, what: str, record: InstanceRecord, error: Exception) -> None:
        self._state.note_failure(what, self._effects.now())
        if isinstance(read_error(error), PermanentError):
            self._state.park(what, self._wanted)
        self._effects.notify_error(record, error)

    def _delay(self, spec: GroupSpec, *, has_creation: bool) -> float:
        state = self._state
        now = self._effects.now()
        times = [next_due(spec, state.records.values(), now), state.next_try(now)]
        if state.notices:
            times.append(now)
        if state.records:
            is_moving = any(record.state in _UNSETTLED for record in state.records.values())
            times.append(now + (min(POLL_INTERVAL, spec.health_interval) if is_moving else spec.health_interval))
        if has_creation and self._gate.delay(now):
            times.append(now + self._gate.delay(now))
        due = min(times)
        return math.inf if math.isinf(due) else max(0.0, due - now)


def _with_status(record: InstanceRecord, status: ProviderStatus, now: float) -> InstanceRecord:
    seen = replace(record, status=status)
    if record.state is InstanceState.DRAINING:
        return seen
    if status in {ProviderStatus.RUNNING, ProviderStatus.DETACHED}:
        ready_at = now if record.ready_at is None else record.ready_at
        return replace(seen, state=InstanceState.READY, heartbeat_at=now, ready_at=ready_at)
    is_there = status in {ProviderStatus.STARTING, ProviderStatus.UNRESPONSIVE}
    if record.state is InstanceState.PENDING and is_there:
        return replace(seen, state=InstanceState.STARTING)
    return seen


def _draining(record: InstanceRecord, reason: Reason, now: float, deadline: float) -> InstanceRecord:
    return replace(
        record,
        state=InstanceState.DRAINING,
        drain_started_at=now,
        drain_deadline=deadline,
        drain_reason=reason,
    )
