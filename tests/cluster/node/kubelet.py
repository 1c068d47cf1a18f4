"""A kubelet, and a scheduler of sorts, that runs every Pod of the cluster as processes of this machine."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx
import trio

from haptic_trio.k8s.resource import Resource
from tests.cluster.control_plane.api import RETRY_INTERVAL, Api, ApiError, Mirror
from tests.cluster.node.container import Container
from tests.cluster.node.images import Images, needed_filesystems
from tests.cluster.node.pod import DEFAULT_GRACE, Node, PodRunner
from tests.cluster.node.sandbox import GATEWAY, Addresses
from tests.cluster.node.status import timestamp

KUBELET_PORT: Final = 10250
ROOM: Final = {"cpu": "64", "memory": "256Gi", "pods": "10000"}
NO_GRACE: Final = 1.0
"""Seconds for the containers of a Pod that the API server no longer knows."""


class NoContainerError(Exception):
    """No such Pod runs here, or it has no such container."""


class Kubelet:
    """Runs what is bound to any of *nodes*, and binds what is bound to none."""

    def __init__(self, api: Api, images: Images, *, nodes: Sequence[str], state: Path, data: Path, logs: Path) -> None:
        self.images = images
        self._api = api
        self._nodes = nodes
        self._runners: dict[str, PodRunner] = {}
        self._bound: dict[str, str] = {}
        self._secrets = Mirror(api, "/api/v1/secrets", self._source_changed)
        self._config_maps = Mirror(api, "/api/v1/configmaps", self._source_changed)
        self._pods = Mirror(api, "/api/v1/pods", self._pod_changed)
        self._node = Node(
            api=api,
            probes=httpx.AsyncClient(verify=False, trust_env=False),
            sources=self,
            images=images,
            addresses=Addresses(),
            filesystems=needed_filesystems(state),
            data=data,
            logs=logs,
        )

    def secret(self, namespace: str, name: str) -> Resource | None:
        """Return the Secret, if it exists."""
        return self._secrets.objects.get((namespace, name))

    def config_map(self, namespace: str, name: str) -> Resource | None:
        """Return the ConfigMap, if it exists."""
        return self._config_maps.objects.get((namespace, name))

    def container(self, namespace: str, pod: str, name: str | None) -> Container:
        """Return a container of a Pod that runs here, the only or first one without *name*; raises NoContainerError."""
        for runner in self._runners.values():
            metadata = runner.pod["metadata"]
            if (metadata["namespace"], metadata["name"]) == (namespace, pod):
                names = [one["name"] for one in runner.pod["spec"]["containers"]]
                found = runner.containers.get(name or names[0])
                if found is not None:
                    return found
        raise NoContainerError(f"no container {name or '(first)'} of Pod {namespace}/{pod} runs here")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Register the nodes, then run Pods until cancelled, which ends them all at once."""
        for name in self._nodes:
            await self._register(name)
        async with self._node.probes, trio.open_nursery() as nursery:
            self._nursery = nursery
            for mirror in (self._secrets, self._config_maps, self._pods):
                await nursery.start(mirror.follow)
            task_status.started()

    async def _register(self, name: str) -> None:
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        await self._api.create("/api/v1/nodes", node)
        status = {
            "addresses": [{"type": "InternalIP", "address": str(GATEWAY)}, {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": KUBELET_PORT}},
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": timestamp(), "reason": "Simulated"}
            ],
            "capacity": ROOM,
            "allocatable": ROOM,
        }
        await self._api.patch(f"/api/v1/nodes/{name}/status", {"status": status})
        # The API server keeps Pods from a node until it is marked ready; elsewhere a controller does.
        await self._api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})

    def _source_changed(self, before: Resource | None, after: Resource | None) -> None:
        namespace = (after or before or {})["metadata"]["namespace"]
        for runner in self._runners.values():
            if runner.pod["metadata"]["namespace"] == namespace:
                runner.refresh()

    def _pod_changed(self, before: Resource | None, after: Resource | None) -> None:
        if before is not None and (after is None or before["metadata"]["uid"] != after["metadata"]["uid"]):
            if (gone := self._runners.get(before["metadata"]["uid"])) is not None:
                gone.end(NO_GRACE)
            self._bound.pop(before["metadata"]["uid"], None)
        if after is None:
            return
        uid = after["metadata"]["uid"]
        node = after["spec"].get("nodeName")
        if uid in self._runners:
            self._update(self._runners[uid], after)
        elif after["metadata"].get("deletionTimestamp"):
            self._nursery.start_soon(self._forget, after)
        elif node in self._nodes and after.get("status", {}).get("phase") not in {"Succeeded", "Failed"}:
            self._runners[uid] = runner = PodRunner(after, self._node)
            self._nursery.start_soon(self._run_pod, uid, runner)
        elif node is None and uid not in self._bound:
            self._bound[uid] = choose_node(after, self._nodes, list(self._bound.values()))
            self._nursery.start_soon(self._bind, after, self._bound[uid])

    @staticmethod
    def _update(runner: PodRunner, pod: Resource) -> None:
        runner.pod = pod
        if pod["metadata"].get("deletionTimestamp"):
            runner.end(float(pod["metadata"].get("deletionGracePeriodSeconds", DEFAULT_GRACE)))

    async def _run_pod(self, uid: str, runner: PodRunner) -> None:
        try:
            await runner.run()
        finally:
            del self._runners[uid]

    async def _bind(self, pod: Resource, node: str) -> None:
        metadata = pod["metadata"]
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        names = {"name": metadata["name"], "uid": metadata["uid"]}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": names, "target": target}
        await self._insist(
            lambda: self._api.create(f"{_path_of(pod)}/binding", binding),
        )

    async def _forget(self, pod: Resource) -> None:
        await self._insist(lambda: self._api.delete(_path_of(pod), grace=0, uid=pod["metadata"]["uid"]))

    @staticmethod
    async def _insist(request: Callable[[], Awaitable[object]]) -> None:
        while True:
            try:
                await request()
            except (ApiError, httpx.TransportError) as exc:
                # 404, 409: the Pod is gone, or was bound by another process.
                if isinstance(exc, ApiError) and exc.status in {404, 409}:
                    return
                await trio.sleep(RETRY_INTERVAL)
            else:
                return


def choose_node(pod: Resource, nodes: Sequence[str], taken: Sequence[str]) -> str:
    """Return the node that *pod* names by its affinity, as those of a DaemonSet do, or else the least used one."""
    affinity: Mapping[str, Any] = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required: Mapping[str, Any] = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field["key"] == "metadata.name" and (named := [one for one in field["values"] if one in nodes]):
                return str(named[0])
    return min(nodes, key=taken.count)


def _path_of(pod: Resource) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
