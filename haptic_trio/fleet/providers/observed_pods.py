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


class NotOursError(HapticError):
    """The instances belong to somebody else, who has to be asked; trying again here is futile."""


class ObservedPods:
    """The pods of *namespace* that are chosen by labels, as a fleet that can only be looked at."""

    def __init__(self, client: Client, namespace: str, *, clock: Callable[[], float] = time.time) -> None:
        self._client = client
        self._namespace = namespace
        self._clock = clock
        self._labels: Latest[Mapping[str, str]] = Latest()
        self._pods: dict[str, Resource] = {}

    def aim(self, labels: Mapping[str, str]) -> None:
        """Look at the pods with *labels*, all of them; at none without any."""
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
                nursery.cancel_scope.cancel(reason="other pods are chosen")
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
        """The pods as they are now, in a group for each owner."""
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
        """Return what is told of the pods now."""
        owners = sorted({owner_of(pod) for pod in self._pods.values()})
        return describe_fleet(self.present, self._clock(), owner=", ".join(owners) or "nobody")

    def find(self, instance_id: str) -> InstanceRecord | None:
        """Return what is known of a pod."""
        pod = self._pods.get(instance_id)
        return _record_of(pod) if pod is not None else None

    def ask(self, event: ReconcileEvent) -> bool:
        """Raise NotOursError."""
        pod = self._pods.get(event.instance_id)
        owner = owner_of(pod) if pod is not None else "somebody else"
        raise NotOursError(f"{event.instance_id} belongs to {owner}, which alone replaces it; kubectl asks it")

    async def resize(self, size: int | None) -> None:  # noqa: ARG002 - whatever it is
        """Raise NotOursError."""
        await trio.lowlevel.checkpoint()
        owners = ", ".join(sorted({owner_of(pod) for pod in self._pods.values()})) or "somebody else"
        raise NotOursError(f"the pods belong to {owners}, which alone has a size; kubectl scales it")


def owner_of(pod: Resource) -> str:
    """Return whose *pod* is, as `Kind name`; a Deployment's are those of its ReplicaSet."""
    owners = pod["metadata"].get("ownerReferences") or ()
    owner = next((one for one in owners if one.get("controller")), None)
    if owner is None:
        return "nobody"
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
