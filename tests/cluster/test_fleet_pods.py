"""HAProxy pods that the controllers make themselves, of a real API server, while clients go on."""

import json
import signal
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
import trio

from haptic_trio.fleet.providers.pod_objects import MARK, SERVING, read_record, read_time
from haptic_trio.fleet.providers.pods import LAME_DUCK
from haptic_trio.k8s.resource import Resource
from tests.cluster.control_plane.audit import read_requests
from tests.cluster.workloads.client import Cluster, until
from tests.cluster.workloads.controllers import RULES, Site, installing
from tests.cluster.workloads.traffic import flowing

pytestmark = pytest.mark.cluster
LIMIT = 180.0
FORBIDDEN = 403
METRICS_PORT = 8404
ROUNDING = 1.0
"""The API server reports whole seconds."""
FLEET_RULES = (
    *RULES,
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "create", "update", "delete"]},
    {"apiGroups": [""], "resources": ["podtemplates"], "verbs": ["list", "watch"]},
)


class FleetSite(Site):
    """A site whose HAProxy pods are made from a PodTemplate."""

    def __init__(self, cluster: Cluster, namespace: str, root: Path) -> None:
        super().__init__(cluster, namespace, root)
        self.rules = FLEET_RULES
        self.note = "first"
        """An annotation of the pods: another one is another template."""
        self.instances = {"podTemplate": "haproxy", "healthInterval": "500ms", "drainTimeout": "7s"}

    async def install(self, *, instances: int = 1, controllers: int = 2, **fields: Any) -> None:
        """Do the same, with the Service that a drain takes pods out of."""
        await super().install(instances=instances, controllers=controllers, instances_size=instances, **fields)

    async def apply_objects(self, *, instances_size: int = 1, **fields: Any) -> None:
        """Do the same for so many instances."""
        await super().apply_objects(instances={**self.instances, "size": instances_size}, **fields)
        await self.cluster.api.patch(self.path("services", "haproxy"), {"spec": {"selector": {SERVING: "true"}}})

    def haproxy(self, replicas: int) -> Resource:
        """Return the PodTemplate; the configuration says how many."""
        template = super().haproxy(replicas)["spec"]["template"]
        template["metadata"]["annotations"] = {"note": self.note}
        (container,) = template["spec"]["containers"]
        container["ports"] = [*container["ports"], {"name": "metrics", "containerPort": METRICS_PORT}]
        return {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "haproxy"}, "template": template}

    def config_map(self, **fields: Any) -> Resource:
        """Do the same, with HAProxy's metrics where the controllers reach them."""
        found = super().config_map(**fields)
        config = json.loads(found["data"]["config"])
        config["templating"]["extraContext"] |= {"metricsPort": METRICS_PORT, "metricsAddress": "*"}
        return {**found, "data": {"config": json.dumps(config)}}

    async def resize(self, size: int) -> None:
        """Write another size; return when so many are there, and no others."""
        await self.apply(self.config_map(instances={**self.instances, "size": size}))
        await self.cluster.wait_pods(self.namespace, "app=haproxy", size)

    async def fleet(self) -> dict[str, Resource]:
        """Return the pods of the fleet, by name."""
        pods = await self.cluster.pods(self.namespace, f"{MARK}=haptic-trio")
        return {pod["metadata"]["name"]: pod for pod in pods}

    async def until_made(self, beside: Collection[str]) -> str:
        """Return the name of a pod that is not one of *beside*, once there is one."""

        async def find() -> str:
            return next(iter(sorted((await self.fleet()).keys() - set(beside))), "")

        return await until(find)

    async def until_out_of_service(self, name: str) -> None:
        """Wait until the Service has the pod no more, which is still there."""

        async def is_out() -> bool:
            path = f"/apis/discovery.k8s.io/v1/namespaces/{self.namespace}/endpointslices"
            slices, _ = await self.cluster.api.list(path, labelSelector="kubernetes.io/service-name=haproxy")
            endpoints = [endpoint for one in slices for endpoint in one.get("endpoints") or ()]
            return bool(endpoints) and all(one["targetRef"]["name"] != name for one in endpoints)

        await until(is_out)
        pod = (await self.fleet())[name]
        assert pod["metadata"]["labels"][SERVING] == "false"
        assert "deletionTimestamp" not in pod["metadata"]

    async def kill_leader(self) -> None:
        """End the controller that leads with SIGKILL; return when the other one leads."""
        leader = await self.leader()
        await self.cluster.signal_container(self.namespace, leader.partition("_")[0], signal.SIGKILL)
        await self.leader(other_than=leader)


async def test_a_fleet_grows_loses_a_pod_shrinks_and_rotates_without_a_failed_request(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    with trio.fail_after(LIMIT):
        async with installing(FleetSite(cluster, namespace, tmp_path), instances=2) as site:
            async with flowing(site.traffic("web.test")) as traffic:
                await site.resize(3)
                await lose_a_pod(site)
                await site.resize(1)
                await rotate(site)
            assert traffic.kept_answered > 100
            asked = read_requests(cluster.state, namespace)
            assert [one for one in asked if one.status == FORBIDDEN] == []
            await remove(site)


async def lose_a_pod(site: FleetSite) -> None:
    """Delete a pod as a person does: another one is made while it still ends."""
    before = await site.fleet()
    (victim, *_) = before
    await site.cluster.api.delete(site.path("pods", victim))
    await site.until_made(before)
    assert victim in await site.fleet()
    pods = await site.cluster.wait_pods(site.namespace, "app=haproxy", 3)
    assert victim not in {pod["metadata"]["name"] for pod in pods}


async def rotate(site: FleetSite) -> None:
    """Write another template; the leader is killed when the new pod is made, and again when the old one drains."""
    (former,) = await site.fleet()
    site.note = "second"
    await site.apply(site.haproxy(1))
    heir = await site.until_made({former})
    await site.kill_leader()
    await site.until_out_of_service(former)
    await site.kill_leader()
    ending = await site.cluster.wait(
        site.path("pods", former), lambda pod: pod and "deletionTimestamp" in pod["metadata"]
    )
    assert drained_for(ending) >= LAME_DUCK - ROUNDING
    await site.cluster.wait(site.path("pods", former), lambda pod: pod is None)
    (pod,) = await site.cluster.wait_pods(site.namespace, "app=haproxy", 1)
    assert pod["metadata"]["name"] == heir
    assert pod["metadata"]["annotations"]["note"] == "second"
    assert pod["metadata"]["labels"][SERVING] == "true"


def drained_for(pod: Resource) -> float:
    """Return the seconds from the beginning of the drain of *pod* to its deletion."""
    metadata = pod["metadata"]
    record, end = read_record(pod), read_time(metadata["deletionTimestamp"])
    assert record is not None
    assert record.drain_started_at is not None
    assert end is not None
    return end - float(metadata["deletionGracePeriodSeconds"]) - record.drain_started_at


async def remove(site: FleetSite) -> None:
    """Remove the template: the pods go with it, and no others are made."""
    await site.cluster.delete(site.haproxy(1), site.namespace)
    await site.until_reported(await site.pod_of_leader(), "there is no PodTemplate")

    async def are_gone() -> bool:
        return not await site.fleet()

    await until(are_gone)
