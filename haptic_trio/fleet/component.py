"""Fleet component of a term: a reconciler between store and provider."""

from collections.abc import Mapping

import trio

from haptic_trio.channels import Latest
from haptic_trio.fleet.model import EventType, GroupKey, GroupSpec, ReconcileEvent
from haptic_trio.fleet.reconciler import FleetReconciler, FleetSnapshot

DesiredGroups = Mapping[GroupKey, GroupSpec]


async def run_fleet(
    reconciler: FleetReconciler,
    desired: Latest[DesiredGroups],
    events: trio.MemoryReceiveChannel[ReconcileEvent],
    snapshots: Latest[FleetSnapshot],
    *,
    snapshot_interval: float = 1.0,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Reconcile the groups of *desired* until cancelled, or until *events* ends.

    The *reconciler* must read its groups from *desired*. A changed group is
    reconciled immediately. Changed snapshots of the fleet are put into
    *snapshots*, at most one every *snapshot_interval* seconds. started()
    means that the fleet is taken over. Takes ownership of *events*.
    """
    with events:
        async with trio.open_nursery() as nursery:
            await nursery.start(reconciler.run)
            nursery.start_soon(_follow_desired, reconciler, desired)
            nursery.start_soon(_publish, reconciler, snapshots, snapshot_interval)
            task_status.started()
            async for event in events:
                reconciler.enqueue(event)
            nursery.cancel_scope.cancel(reason="all senders of events have closed")


async def _follow_desired(reconciler: FleetReconciler, desired: Latest[DesiredGroups]) -> None:
    seen, first = await desired.wait_newer(0)
    former = dict(first)
    # Instances without a record can be adopted only when the groups are known.
    reconciler.enqueue(ReconcileEvent(type=EventType.INITIAL_RECONCILE, cause="first desired state"))
    while True:
        seen, wanted = await desired.wait_newer(seen)
        changed = {key for key in former.keys() | wanted.keys() if former.get(key) != wanted.get(key)}
        for key in sorted(changed):
            reconciler.enqueue(
                ReconcileEvent(type=EventType.GROUP_CHANGED, tenant=key.tenant, group=key.group, cause="desired state")
            )
        former = dict(wanted)


async def _publish(reconciler: FleetReconciler, snapshots: Latest[FleetSnapshot], interval: float) -> None:
    while True:
        present = reconciler.snapshot()
        if present != snapshots.value:
            snapshots.put(present)
        await trio.sleep(interval)
