"""Fleet component of a term: a reconciler between store and provider."""

from collections.abc import Mapping

import trio

from haptic_trio.channels import Latest
from haptic_trio.fleet.model import EventType, GroupKey, GroupSpec, ReconcileEvent
from haptic_trio.fleet.reconciler import FleetReconciler, FleetSnapshot

WishedGroups = Mapping[GroupKey, GroupSpec]


async def run_fleet(
    reconciler: FleetReconciler,
    wishes: Latest[WishedGroups],
    events: trio.MemoryReceiveChannel[ReconcileEvent],
    snapshots: Latest[FleetSnapshot],
    *,
    snapshot_interval: float = 1.0,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Reconcile the groups of *wishes* until cancelled, or until *events* ends.

    The *reconciler* must read what is wanted from *wishes*. Groups that have
    changed are looked at once; *snapshots* gets what has become of them, at
    most every *snapshot_interval* seconds. started() means that the fleet
    is taken over. Takes ownership of *events*.
    """
    with events:
        async with trio.open_nursery() as nursery:
            await nursery.start(reconciler.run)
            nursery.start_soon(_follow_wishes, reconciler, wishes)
            nursery.start_soon(_publish, reconciler, snapshots, snapshot_interval)
            task_status.started()
            async for event in events:
                reconciler.enqueue(event)
            nursery.cancel_scope.cancel(reason="nobody has anything to say any more")


async def _follow_wishes(reconciler: FleetReconciler, wishes: Latest[WishedGroups]) -> None:
    seen, first = await wishes.wait_newer(0)
    former = dict(first)
    # What was found without a record can be adopted only now that the groups are known.
    reconciler.enqueue(ReconcileEvent(type=EventType.INITIAL_RECONCILE, cause="the first wishes"))
    while True:
        seen, wanted = await wishes.wait_newer(seen)
        changed = {key for key in former.keys() | wanted.keys() if former.get(key) != wanted.get(key)}
        for key in sorted(changed):
            reconciler.enqueue(
                ReconcileEvent(type=EventType.GROUP_CHANGED, tenant=key.tenant, group=key.group, cause="wishes")
            )
        former = dict(wanted)


async def _publish(reconciler: FleetReconciler, snapshots: Latest[FleetSnapshot], interval: float) -> None:
    while True:
        present = reconciler.snapshot()
        if present != snapshots.value:
            snapshots.put(present)
        await trio.sleep(interval)
