"""The whole controller over an API server: it makes its HAProxy pods, deploys to them, and rotates them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from haptic_trio.cli.fleet import RejectedRequestError, ask_controller
from haptic_trio.cli.serving.endpoints import PodMode
from haptic_trio.deployment.pods import AGENT_NAME, AgentAccess
from haptic_trio.fleet.providers.pod_objects import MARK, PODS, SERVING
from haptic_trio.k8s.resource import Resource
from tests.features.harness import Running, controller
from tests.features.server_site import ServerSite
from tests.fleet.rig.pod_rig import make_template
from tests.support.api_server.kinds import make_kind
from tests.support.api_server.server import ApiServer
from tests.support.components.agents import Authority, serving
from tests.support.components.endpoints import MemoryEndpoint
from tests.support.processes.ports import free_port

pytestmark = pytest.mark.haproxy


class Nodes:
    """Where pods run: each has an address of the loopback interface, and an agent there, and is ready once deployed."""

    def __init__(self, server: ApiServer, root: Path, authority: Authority) -> None:
        self.server = server
        self.port = free_port()
        self._root = root
        self._authority = authority
        self._scopes: dict[str, trio.CancelScope] = {}
        self._born = 0

    @property
    def pods(self) -> dict[str, Resource]:
        """All pods, by name."""
        objects = self.server.state.collections[PODS].objects
        return {name: stored.resource for (_, name), stored in sorted(objects.items())}

    def ready(self) -> list[str]:
        """Return the pods that the Service has, and that are ready."""
        return [
            name
            for name, pod in self.pods.items()
            if pod["metadata"]["labels"].get(SERVING, "true") == "true"
            and any(one["status"] == "True" for one in (pod.get("status") or {}).get("conditions", ()))
        ]

    async def run(self) -> None:
        """Run pods for as long as they are there."""
        async with trio.open_nursery() as nursery:
            while True:
                pods = self.pods
                for name in self._scopes.keys() - pods.keys():
                    self._scopes.pop(name).cancel()
                for name in pods.keys() - self._scopes.keys():
                    self._born += 1
                    self._scopes[name] = trio.CancelScope()
                    nursery.start_soon(self._run_pod, name, f"127.0.0.{10 + self._born}", self._scopes[name])
                await trio.sleep(0.01)

    async def _run_pod(self, name: str, address: str, scope: trio.CancelScope) -> None:
        endpoint = MemoryEndpoint(name)
        with scope:
            async with serving(
                endpoint,
                self._root / name,
                listen=f"{address}:{self.port}",
                authority=self._authority,
                files=self._authority.issue(AGENT_NAME),
            ):
                self._say(name, address, "False")
                while not endpoint.taken:  # noqa: ASYNC110 - another task deploys
                    await trio.sleep(0.01)
                self._say(name, address, "True")
                await trio.sleep_forever()

    def _say(self, name: str, address: str, ready: str) -> None:
        if name in self.pods:
            conditions = [{"type": "Ready", "status": ready}]
            status = {"phase": "Running", "podIP": address, "conditions": conditions}
            self.server.put({**self.pods[name], "status": status})


class PodSite(ServerSite):
    """A site whose HAProxys are pods."""

    def write_pods(self, port: int, **instances: Any) -> None:
        """Write a configuration for pods."""
        self.write_config(
            podSelector={"matchLabels": {"app": "haproxy"}},
            dataplane={"kind": "agent", "port": port},
            instances={"healthInterval": "200ms", "drainTimeout": "1s", **instances},
        )


@asynccontextmanager
async def controlled(root: Path, binary: Path, **instances: Any) -> AsyncIterator[tuple[PodSite, Nodes, Running]]:
    """Run a controller that deploys to pods."""
    server, authority = ApiServer(), Authority(root / "tls")
    server.serve_kind(make_kind("v1", "PodTemplate", is_custom=False))
    template = make_template()
    server.put({**template, "metadata": {"name": "haproxy", "namespace": "default"}})
    nodes = Nodes(server, root / "nodes", authority)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        site = PodSite(root, free_port(), server)
        server.write_kubeconfig(site.kubeconfig)
        site.write_class()
        site.write_pods(nodes.port, **instances)
        nursery.start_soon(nodes.run)
        pods = PodMode(access=AgentAccess(tls=authority.issue("controller")))
        async with controller(site, binary, pods=pods) as running:
            yield site, nodes, running
        nursery.cancel_scope.cancel()


async def until_ready(nodes: Nodes, size: int, *, without: list[str] | None = None) -> list[str]:
    """Return the pods once exactly *size* are there, ready, and none of *without*."""
    with trio.fail_after(60):
        while True:
            ready = nodes.ready()
            if len(ready) == len(nodes.pods) == size and not set(ready) & set(without or ()):
                return ready
            await trio.sleep(0.01)


async def test_pods_are_made_deployed_to_and_rotated(tmp_path: Path, haproxy_binary: Path) -> None:
    async with controlled(tmp_path, haproxy_binary, size=2, podTemplate="haproxy") as (site, nodes, running):
        former = await until_ready(nodes, 2)
        assert all(pod["metadata"]["labels"][MARK] == "haptic-trio" for pod in nodes.pods.values())
        answer = await ask_controller(site.state, "GET", "/fleet")
        assert sorted(one["id"] for one in answer["groups"][0]["instances"]) == former

        site.write_pods(nodes.port, size=3, podTemplate="haproxy")
        await until_ready(nodes, 3)
        site.write_pods(nodes.port, size=1, podTemplate="haproxy", revision="2")
        last = await until_ready(nodes, 1, without=former)
        with pytest.raises(RejectedRequestError, match=r"edit `instances\.size`"):
            await ask_controller(site.state, "PUT", "/fleet/size", {"size": 2})
        assert [info.name for info in await running.describe()] == last


async def test_pods_of_a_deployment_are_looked_at_and_left_alone(tmp_path: Path, haproxy_binary: Path) -> None:
    async with controlled(tmp_path, haproxy_binary) as (site, nodes, running):
        owner = {"kind": "ReplicaSet", "name": "edge-5d8f", "controller": True}
        metadata = {"name": "edge-5d8f-1", "labels": {"app": "haproxy", "pod-template-hash": "5d8f"}}
        site.server.put(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "ownerReferences": [owner]}, "spec": {}}
        )
        await until_ready(nodes, 1)
        with trio.fail_after(60):
            while (answer := await ask_controller(site.state, "GET", "/fleet"))["groups"] == []:  # noqa: ASYNC110
                await trio.sleep(0.01)
        assert answer["owner"] == "Deployment edge"
        with pytest.raises(RejectedRequestError, match="belongs to Deployment edge"):
            await ask_controller(site.state, "POST", "/fleet/instances/edge-5d8f-1/drain")
        assert list(nodes.pods) == ["edge-5d8f-1"]
        await running.settled()
