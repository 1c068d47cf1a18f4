"""Pods on the in-process API server: who plays kubelet and garbage collector there, and the fleet that makes them."""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import trio

from haptic_trio.channels import EventBuffer, Latest
from haptic_trio.config.model import Duration, InstancesConfig
from haptic_trio.fleet.desired_state import DesiredGroup
from haptic_trio.fleet.model import InstanceRecord, InstanceState, ReconcileEvent
from haptic_trio.fleet.owner import FleetOwner
from haptic_trio.fleet.providers.pod_objects import PODS, SERVING, group_of
from haptic_trio.fleet.providers.pods import PodProvider, PodStore
from haptic_trio.k8s.api.cluster import ApiCluster
from haptic_trio.k8s.resource import Resource
from haptic_trio.messages import ConfigValidated, LeadershipChanged
from tests.k8s.api.api_cluster import Reports, connected
from tests.support.api_server.kinds import make_kind
from tests.support.api_server.server import ApiServer
from tests.support.messages import example_of

NAMESPACE = "edge"
LABELS = {"app": "haproxy"}
INSTANCES = InstancesConfig(
    size=2,
    pod_template="haproxy",
    health_interval=Duration(0.1),
    missed=3,
    drain_timeout=Duration(5),
    start_timeout=Duration(10),
)


def make_template(image: str = "haproxy:1", *, labels: dict[str, str] | None = None) -> Resource:
    """Return a PodTemplate."""
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": "haproxy", "namespace": NAMESPACE, "uid": "template-uid"},
        "template": {
            "metadata": {"labels": LABELS if labels is None else labels, "annotations": {"note": "kept"}},
            "spec": {
                "containers": [
                    {"name": "haproxy", "image": image, "ports": [{"name": "metrics", "containerPort": 8404}]}
                ]
            },
        },
    }


def prepare(server: ApiServer) -> None:
    """Have *server* serve PodTemplates, and hold one."""
    server.serve_kind(make_kind("v1", "PodTemplate", is_custom=False))
    server.put(make_template())


class Kubelet:
    """Makes pods ready, unless the test stops it."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.is_working = True
        self.sick: set[str] = set()
        """Pods that never get ready, or are not any more."""

    def pods(self) -> dict[str, Resource]:
        """Return all pods that are stored, by name."""
        objects = self.server.state.collections[PODS].objects
        return {name: stored.resource for (_, name), stored in sorted(objects.items())}

    async def run(self) -> None:
        """Give new pods an address and make them ready."""
        while True:
            for name, pod in self.pods().items():
                is_ready = name not in self.sick
                status = {
                    "phase": "Running",
                    "podIP": "127.0.0.1",
                    "conditions": [{"type": "Ready", "status": "True" if is_ready else "False"}],
                }
                if self.is_working and pod.get("status") != status and not pod["metadata"].get("deletionTimestamp"):
                    self.server.put({**pod, "status": status})
            await trio.sleep(0.01)

    def doom(self, name: str, seconds: float) -> None:
        """Have *name* deleted by a person: it is gone after its grace period, when `remove` is called."""
        pod = self.pods()[name]
        at = datetime.fromtimestamp(datetime.now(UTC).timestamp() + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.server.put({**pod, "metadata": {**pod["metadata"], "deletionTimestamp": at}})

    def remove(self, name: str) -> None:
        """Have *name* gone."""
        self.server.remove(self.pods()[name])


class Sessions(dict[str, int | None]):
    """Clients connected to each pod, None for an unknown number, and how often it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = Counter[str]()


class Replica:
    """One controller's part in the fleet of pods."""

    def __init__(self, cluster: ApiCluster, sessions: Sessions, *, is_leader: bool = True) -> None:
        self.reports = Reports()
        self.leadership: Latest[LeadershipChanged] = Latest()
        self.config: Latest[InstancesConfig] = Latest()
        self.basis: Latest[str] = Latest()
        self.newest: Latest[ConfigValidated] = Latest()
        self.events = EventBuffer(1000)
        self.key = group_of("haptic-trio")
        self.provider = PodProvider(
            cluster,
            NAMESPACE,
            self.key,
            basis=self.basis,
            notice=self.notice,
            report=self.reports,
            count=partial(count_of, sessions),
            lame_duck=0.05,
        )
        self.owner = FleetOwner(
            self.provider,
            PodStore(self.provider),
            DesiredGroup(key=self.key, default_size=1, needs_template=True),
            leadership=self.leadership,
            config=self.config,
            basis=self.basis,
            newest=self.newest,
            events=self.events,
        )
        self.provider.aim("haproxy", LABELS)
        self.newest.put(example_of(ConfigValidated))
        self.config.put(INSTANCES)
        self.lead(is_leader)

    def notice(self, event: ReconcileEvent) -> None:
        self.owner.notice(event)

    def lead(self, is_leader: bool) -> None:
        """Lead, or not any more."""
        transitions = (self.leadership.value.transitions if self.leadership.value else 0) + 1
        self.leadership.put(LeadershipChanged(is_leader=is_leader, identity="me", transitions=transitions))

    def want(self, **changes: Any) -> None:
        """Have another configuration."""
        assert self.config.value is not None
        self.config.put(msgspec.structs.replace(self.config.value, **changes))

    @property
    def records(self) -> list[InstanceRecord]:
        if not self.owner.is_leading:
            return []
        return [record for group in self.owner.snapshot().groups for record in group.records]

    @property
    def ready(self) -> list[str]:
        return [record.id for record in self.records if record.state is InstanceState.READY]

    async def run(self) -> None:
        """Run until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.provider.run)
            nursery.start_soon(self.owner.run)


async def count_of(sessions: Sessions, pod: Resource) -> int | None:
    """Return the number of connected clients that the test has set; 0 by default."""
    await trio.lowlevel.checkpoint()
    name = pod["metadata"]["name"]
    sessions.asked[name] += 1
    return sessions.get(name, 0)


class PodRig:
    """A server, a kubelet, and replicas."""

    def __init__(self, server: ApiServer, cluster: ApiCluster, nursery: trio.Nursery) -> None:
        self.server = server
        self.cluster = cluster
        self.kubelet = Kubelet(server)
        self.sessions = Sessions()
        self._start = nursery.start_soon
        self._start(self.kubelet.run)

    def replica(self, *, is_leader: bool = True) -> Replica:
        """Run one more controller."""
        replica = Replica(self.cluster, self.sessions, is_leader=is_leader)
        self._start(replica.run)
        return replica

    @property
    def pods(self) -> dict[str, Resource]:
        return self.kubelet.pods()

    @property
    def serving(self) -> list[str]:
        """Names of pods that the Service has."""
        return [
            name
            for name, pod in self.pods.items()
            if pod["metadata"]["labels"].get(SERVING) == "true" and not pod["metadata"].get("deletionTimestamp")
        ]

    async def settled(self, replica: Replica, size: int) -> list[str]:
        """Return the pods once exactly *size* are ready, as they should be, and no other is there."""

        def is_settled() -> bool:
            spec = replica.owner.desired.spec()
            return (
                spec is not None
                and len(replica.ready) == len(replica.records) == spec.size == size
                and all(record.config_hash == spec.config_hash for record in replica.records)
                and sorted(self.pods) == sorted(replica.ready)
            )

        await self.wait(is_settled, replica)
        return replica.ready

    async def wait(self, is_so: Callable[[], bool], replica: Replica | None = None) -> None:
        """Return once *is_so*."""
        with trio.move_on_after(15):
            # The events are those of a server.
            while not is_so():  # noqa: ASYNC110
                await trio.sleep(0.01)
            return
        raise AssertionError(f"it did not come to pass: {replica.records if replica else ''} {list(self.pods)}")


@asynccontextmanager
async def pod_rig(kubeconfig: Path) -> AsyncIterator[PodRig]:
    """Run a server with a PodTemplate."""
    server = ApiServer()
    prepare(server)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        async with connected(server, kubeconfig) as cluster, trio.open_nursery() as controllers:
            yield PodRig(server, cluster, controllers)
            controllers.cancel_scope.cancel()
        nursery.cancel_scope.cancel()
