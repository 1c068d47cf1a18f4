"""Status of a fleet for users and programs."""

from collections.abc import Mapping

import msgspec

from haptic_trio.fleet.model import InstanceRecord
from haptic_trio.fleet.plan import rotation_of
from haptic_trio.fleet.reconciler import FleetSnapshot, GroupSnapshot


class InstanceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Status of an instance; durations are seconds."""

    id: str
    state: str
    health: str
    """Last observed provider status."""
    age: float
    is_current: bool
    """Whether its configuration hash is that of the group."""
    leaves_for: str = ""
    """Why it drains, or will be replaced; empty if it stays."""
    drain_left: float | None = None
    """Time until its drain deadline; None unless it drains."""


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Status of a group."""

    name: str
    size: int
    """Desired number of ready instances."""
    ready: int
    configured_size: int | None = None
    """Configured size, if it is overridden; else None."""
    instances: tuple[InstanceStatus, ...] = ()
    """Oldest first."""


class FleetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Status of a fleet."""

    owner: str
    """Owner of the instances: `controller`, or the object that owns the pods."""
    groups: tuple[GroupStatus, ...]


def describe_fleet(
    snapshot: FleetSnapshot, now: float, *, owner: str = "controller", configured: Mapping[str, int] | None = None
) -> FleetStatus:
    """Return the status for *snapshot* at *now*; *configured* has the configured sizes by group."""
    return FleetStatus(
        owner=owner, groups=tuple(_describe_group(group, now, configured or {}) for group in snapshot.groups)
    )


def _describe_group(group: GroupSnapshot, now: float, configured: Mapping[str, int]) -> GroupStatus:
    size = group.spec.size if group.spec is not None else 0
    configured_size = configured.get(str(group.key), size)
    return GroupStatus(
        name=str(group.key),
        size=size,
        ready=sum(record.state == "ready" for record in group.records),
        configured_size=configured_size if configured_size != size else None,
        instances=tuple(_describe_instance(record, group, now) for record in group.records),
    )


def _describe_instance(record: InstanceRecord, group: GroupSnapshot, now: float) -> InstanceStatus:
    spec = group.spec
    reason = record.drain_reason
    if reason is None and spec is not None and record.state == "ready":
        rotation = rotation_of(spec, record, now)
        reason = rotation[1] if rotation is not None else None
    is_draining = record.state == "draining" and record.drain_deadline is not None
    return InstanceStatus(
        id=record.id,
        state=record.state.value,
        health=record.status.value,
        age=max(0.0, now - record.created_at),
        is_current=spec is None or record.config_hash == spec.config_hash,
        leaves_for=reason.value if reason is not None else "",
        drain_left=max(0.0, (record.drain_deadline or now) - now) if is_draining else None,
    )
