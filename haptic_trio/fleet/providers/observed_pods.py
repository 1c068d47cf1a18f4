"""Provider for pods that another controller creates; read-only."""

import time
from collections.abc import Callable, Mapping
from typing import NoReturn

import trio

from haptic_trio.channels import Latest
from haptic_trio.errors import HapticError
from haptic_trio.fleet.model import GroupKey, InstanceRecord, InstanceState, ProviderStatus, ReconcileEvent
from haptic_trio.fleet.providers.pod_objects import PODS, read_time, status_of
from haptic_trio.fleet.reconciler import FleetSnapshot, GroupSnapshot
from haptic_trio.fleet.status import FleetStatus, describe_fleet
from haptic_trio.k8s.client import Client, Deleted, Listed, Selection, Upserted
from haptic_trio.k8s.resource import Resource

_STATES: Mapping[ProviderStatus, InstanceState] = {
    ProviderStatus.RUNNING: InstanceState.READY,
    ProviderStatus.STARTING: InstanceState.STARTING,
    ProviderStatus.STOPPING: InstanceState.DRAINING,
}


NO_OWNER = "no controller"
"""Owner shown for pods without a controlling owner reference."""


class ForeignPodsError(HapticError):
    """The pods belong to another controller, which alone can change them. A permanent error."""


class ObservedPods:
    """The pods of *namespace* selected by labels, as a read-only fleet."""

    def __init__(self, client: Client, namespace: str, *, clock: Callable[[], float] = time.time) -> None:
        self._client = client
        self._namespace = namespace
        self._clock = clock
        self._labels: Latest[Mapping[str, str]] = Latest()
        self._pods: dict[str, Resource] = {}

    def aim(self, labels: Mapping[str, str]) -> None:
        """Observe the pods that have all *labels* from now on; without labels, observe none."""
        if labels != self._labels.value:
            self._labels.put(labels)

    async def run(self) -> NoReturn:
        """Follow the pods until cancelled."""
        seen, labels = await self._labels.wait_newer(0)
        while True:
            self._pods.clear()
            async with trio.open_nursery() as nursery:
                if labels:
                    nursery.start_soon(self._follow, labels)
                seen, labels = await self._labels.wait_newer(seen)
                nursery.cancel_scope.cancel(reason="the label selector has changed")
        raise AssertionError("the loop ends by cancellation alone")

    async def _follow(self, labels: Mapping[str, str]) -> None:
        selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        selection = Selection(type=PODS, namespaces=(self._namespace,), label_selector=selector)
        async with self._client.watch(selection) as events:
            async for event in events:
                match event:
                    case Listed(objects):
                        self._pods = {pod["metadata"]["name"]: pod for pod in objects}
                    case Upserted(pod):
                        self._pods[pod["metadata"]["name"]] = pod
                    case Deleted(pod):
                        self._pods.pop(pod["metadata"]["name"], None)

    @property
    def present(self) -> FleetSnapshot:
        """The pods as they are now, with one group for each owner."""
        groups: dict[str, list[InstanceRecord]] = {}
        for pod in self._pods.values():
            groups.setdefault(owner_of(pod), []).append(_record_of(pod))
        return FleetSnapshot(
            groups=tuple(
                GroupSnapshot(
                    key=GroupKey(name),
                    spec=None,
                    records=tuple(sorted(records, key=lambda record: (record.created_at, record.id))),
                )
                for name, records in sorted(groups.items())
            )
        )

    def describe(self) -> FleetStatus:
        """Return the status of the pods."""
        owners = sorted({owner_of(pod) for pod in self._pods.values()})
        return describe_fleet(self.present, self._clock(), owner=", ".join(owners) or NO_OWNER)

    def find(self, instance_id: str) -> InstanceRecord | None:
        """Return the observed state of a pod as a record; None for an unknown one."""
        pod = self._pods.get(instance_id)
        return _record_of(pod) if pod is not None else None

    def ask(self, event: ReconcileEvent) -> bool:
        """Raise ForeignPodsError."""
        pod = self._pods.get(event.instance_id)
        owner = owner_of(pod) if pod is not None else "another controller"
        raise ForeignPodsError(f"pod {event.instance_id} belongs to {owner}: replace it with kubectl")

    async def resize(self, size: int | None) -> None:  # noqa: ARG002 - every size is rejected
        """Raise ForeignPodsError."""
        await trio.lowlevel.checkpoint()
        owners = ", ".join(sorted({owner_of(pod) for pod in self._pods.values()})) or "another controller"
        raise ForeignPodsError(f"the pods belong to {owners}: scale it with kubectl")


def owner_of(pod: Resource) -> str:
    """Return the owner of *pod* as `Kind name`; for a ReplicaSet of a Deployment, the Deployment."""
    owners = pod["metadata"].get("ownerReferences") or ()
    owner = next((one for one in owners if one.get("controller")), None)
    if owner is None:
        return NO_OWNER
    kind, name = str(owner.get("kind")), str(owner.get("name"))
    digest = (pod["metadata"].get("labels") or {}).get("pod-template-hash")
    if kind == "ReplicaSet" and digest and name.endswith(f"-{digest}"):
        return f"Deployment {name.removesuffix(f'-{digest}')}"
    return f"{kind} {name}"


def _record_of(pod: Resource) -> InstanceRecord:
    status = status_of(pod, was_ready=False)
    return InstanceRecord(
        id=pod["metadata"]["name"],
        key=GroupKey(owner_of(pod)),
        state=_STATES.get(status, InstanceState.DELETING),
        status=status,
        created_at=read_time(pod["metadata"].get("creationTimestamp")) or 0.0,
        provider_id=pod["metadata"]["name"],
    )
