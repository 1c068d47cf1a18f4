"""Pods come and go, change their address, are restarted, and answer or not: what is published of them."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from haptic_trio.config.model import DataplaneKind
from haptic_trio.dataplane import presence
from haptic_trio.dataplane.agent.endpoint import RemoteAgent
from haptic_trio.dataplane.dataplaneapi import follower
from haptic_trio.dataplane.dataplaneapi.client import Credentials
from haptic_trio.dataplane.dataplaneapi.endpoint import DataplaneApiEndpoint
from haptic_trio.dataplane.endpoint import Endpoint
from haptic_trio.deployment.pods import AGENT_NAME, AgentAccess, FoundPod, PodEndpoints, PodTarget, find_pod
from haptic_trio.k8s.resource import Resource
from tests.dataplane.dataplaneapi.test_network import serve as serve_dataplaneapi
from tests.k8s.api.api_cluster import Reports
from tests.support.components.agents import Authority, Serving, serving
from tests.support.components.cluster import MemoryCluster
from tests.support.components.endpoints import MemoryEndpoint, generation
from tests.support.dataplaneapi.server import PASSWORD, FakeDataplaneApi
from tests.support.processes.ports import free_port


def make_pod(name: str, address: str | None = "127.0.0.1", *, uid: str = "1", **more: Any) -> Resource:
    metadata = {"name": name, "namespace": "edge", "uid": uid, "labels": {"app": "haproxy"}, **more.pop("metadata", {})}
    status = {"phase": "Running", **({"podIP": address} if address else {}), **more}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}, "status": status}


@pytest.mark.parametrize(
    "resource",
    [
        make_pod("a", None),
        make_pod("a", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        make_pod("a", phase="Failed"),
        make_pod("a", phase="Succeeded"),
        {"metadata": {"name": "a"}},
    ],
)
def test_pod_without_address_or_going_or_ended_has_no_endpoint(resource: Resource) -> None:
    assert find_pod(resource) is None


def test_pod_that_is_not_ready_has_an_endpoint() -> None:
    conditions = [{"type": "Ready", "status": "False"}]
    containers = [{"restartCount": 2, "ready": False}, {"restartCount": 1}]

    found = find_pod(make_pod("a", "10.0.0.7", conditions=conditions, containerStatuses=containers))

    assert found == FoundPod(name="a", uid="1", address="10.0.0.7", restarts=3)
    assert found.url("https", 5555) == "https://10.0.0.7:5555"
    assert FoundPod(name="a", uid="1", address="fd00::7").url("https", 5555) == "https://[fd00::7]:5555"


class Rig:
    """Pods in memory, agents on the loopback interface, and what is published."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.authority = Authority(root / "tls")
        self.cluster = MemoryCluster()
        self.reports = Reports()
        self.port = free_port()
        access = AgentAccess(tls=self.authority.issue("controller"), server_name=AGENT_NAME)
        self.pods = PodEndpoints(self.cluster, "edge", access, report=self.reports)
        self.published: tuple[Endpoint, ...] = ()
        self._changed = trio.Event()

    def publish(self, endpoints: tuple[Endpoint, ...]) -> None:
        self.published = endpoints
        self._changed.set()
        self._changed = trio.Event()

    @property
    def names(self) -> list[str]:
        return [endpoint.name for endpoint in self.published]

    async def until(self, claim: Callable[[], bool]) -> None:
        with trio.fail_after(20):
            while not claim():
                await self._changed.wait()

    def aim(self, *, kind: DataplaneKind = DataplaneKind.AGENT, port: int | None = None, **labels: str) -> None:
        credentials = Credentials(username="admin", password=PASSWORD)
        chosen = labels or {"app": "haproxy"}
        self.pods.aim(PodTarget(labels=chosen, kind=kind, port=port or self.port, credentials=credentials))

    @asynccontextmanager
    async def agent(
        self, address: str = "127.0.0.1", name: str = AGENT_NAME, *, endpoint: MemoryEndpoint | None = None
    ) -> AsyncIterator[Serving]:
        """Serve an agent at *address*, whose certificate is for *name*."""
        files = self.authority.issue(name)
        listen = f"{address}:{self.port}"
        endpoint = endpoint or MemoryEndpoint(address)
        async with serving(
            endpoint, self.root / address, listen=listen, authority=self.authority, files=files
        ) as served:
            yield served


@pytest.fixture
async def rig(tmp_path: Path, nursery: trio.Nursery) -> Rig:
    rig = Rig(tmp_path)
    assert await nursery.start(rig.pods.run, rig.publish) == ()
    return rig


async def test_pods_that_answer_are_published_by_name(rig: Rig) -> None:
    rig.cluster.put(make_pod("b", "127.0.0.2"), make_pod("a"), make_pod("silent", "127.0.0.3"))
    other = make_pod("other", "127.0.0.4")
    other["metadata"]["labels"] = {"app": "web"}
    elsewhere = make_pod("elsewhere")
    elsewhere["metadata"]["namespace"] = "default"
    rig.cluster.put(other, elsewhere)
    async with rig.agent("127.0.0.1"), rig.agent("127.0.0.2"):
        rig.aim()
        await rig.until(lambda: rig.names == ["a", "b"])

        assert all(isinstance(endpoint, RemoteAgent) for endpoint in rig.published)
        assert (await rig.published[1].describe()).name == "b"


async def test_pod_whose_agent_comes_later_is_published_then(rig: Rig) -> None:
    rig.cluster.put(make_pod("a"))
    tried = trio.Event()

    async def reject(_stream: trio.SocketStream) -> None:
        tried.set()

    async with trio.open_nursery() as nursery:
        await nursery.start(partial(trio.serve_tcp, reject, rig.port, host="127.0.0.1"))
        rig.aim()
        with trio.fail_after(20):
            await tried.wait()
        nursery.cancel_scope.cancel()
    await wait_all_tasks_blocked()
    assert rig.published == ()

    async with rig.agent():
        await rig.until(lambda: rig.names == ["a"])


async def test_terminating_pod_is_removed_at_once(rig: Rig) -> None:
    rig.cluster.put(make_pod("a"), make_pod("b", "127.0.0.2"))
    async with rig.agent(), rig.agent("127.0.0.2"):
        rig.aim()
        await rig.until(lambda: rig.names == ["a", "b"])

        rig.cluster.put(make_pod("a", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}))
        await rig.until(lambda: rig.names == ["b"])
        rig.cluster.remove(make_pod("b"))
        await rig.until(lambda: rig.names == [])


@pytest.mark.parametrize("change", [{"uid": "2"}, {"address": "127.0.0.2"}])
async def test_pod_of_the_same_name_with_another_uid_or_address_is_another_endpoint(
    rig: Rig, change: dict[str, Any]
) -> None:
    rig.cluster.put(make_pod("a"))
    async with rig.agent(), rig.agent("127.0.0.2"):
        rig.aim()
        await rig.until(lambda: rig.names == ["a"])
        former = rig.published[0]

        rig.cluster.put(make_pod("a", **change))
        await rig.until(lambda: rig.names == ["a"] and rig.published[0] is not former)


async def test_irrelevant_change_of_a_pod_publishes_nothing(rig: Rig) -> None:
    rig.cluster.put(make_pod("a"))
    async with rig.agent():
        rig.aim()
        await rig.until(lambda: rig.names == ["a"])
        former = rig.published

        rig.cluster.put(make_pod("a", conditions=[{"type": "Ready", "status": "True"}]))
        rig.cluster.relist()
        # The cluster is in memory: what was changed is handled when all tasks wait.
        await wait_all_tasks_blocked()
        rig.aim()
        await wait_all_tasks_blocked()

        assert rig.published is former


async def test_endpoint_of_a_restarted_container_is_renewed(rig: Rig) -> None:
    rig.cluster.put(make_pod("a"))
    async with rig.agent():
        rig.aim()
        await rig.until(lambda: rig.names == ["a"])
        former = rig.published[0]

        rig.cluster.put(make_pod("a", containerStatuses=[{"restartCount": 1}]))
        await rig.until(lambda: rig.published[0] is not former)
        assert rig.names == ["a"]


async def test_endpoint_of_a_restarted_agent_is_renewed_and_lost_only_after_a_while(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.cluster.put(make_pod("a"))
    async with rig.agent():
        rig.aim()
        await rig.until(lambda: rig.names == ["a"])
        former = rig.published[0]
    async with rig.agent():
        await rig.until(lambda: rig.published[0] is not former)
        assert rig.names == ["a"]
        monkeypatch.setattr(presence, "LOST_AFTER", 0.1)
    await rig.until(lambda: rig.names == [])
    async with rig.agent():
        await rig.until(lambda: rig.names == ["a"])


async def test_agent_that_reconnects_with_the_same_generation_is_renewed_too(rig: Rig) -> None:
    rig.cluster.put(make_pod("a"))
    endpoint, wanted = MemoryEndpoint("a"), generation("one")
    async with rig.agent(endpoint=endpoint):
        rig.aim()
        await rig.until(lambda: rig.names == ["a"])
        former = rig.published[0]
        await former.activate(wanted)
    async with rig.agent(endpoint=endpoint):
        # What was meant for it meanwhile has failed, and would otherwise wait out its backoff.
        await rig.until(lambda: rig.published[0] is not former)

        assert await rig.published[0].fetch_running() == wanted


async def test_new_target_removes_endpoints_of_the_former_one_at_once(rig: Rig) -> None:
    rig.cluster.put(make_pod("a"))
    async with rig.agent():
        rig.aim()
        await rig.until(lambda: rig.names == ["a"])

        rig.aim(app="web")
        assert rig.published == ()
        rig.aim()
        await rig.until(lambda: rig.names == ["a"])


async def test_without_labels_no_pod_is_chosen(rig: Rig) -> None:
    rig.cluster.put(make_pod("a"))
    rig.pods.aim(PodTarget(labels={}, kind=DataplaneKind.AGENT, port=rig.port))
    await trio.testing.wait_all_tasks_blocked(0.05)

    assert rig.cluster.opened == 0


async def test_agent_with_a_certificate_for_another_name_is_rejected_and_reported(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "SILENCE_REPORTED", 0.1)
    rig.cluster.put(make_pod("a"))
    async with rig.agent(name="somebody-else"):
        rig.aim()
        await rig.reports.wait(lambda reports: "does not answer" in reports.messages)

        assert rig.published == ()
        assert "ertificate" in rig.reports.messages
        rig.cluster.remove(make_pod("a"))
        await rig.reports.wait(lambda reports: not reports.messages)


async def test_endpoint_of_a_pod_can_be_deployed_to(rig: Rig) -> None:
    rig.cluster.put(make_pod("a"))
    async with rig.agent() as agent:
        rig.aim()
        await rig.until(lambda: rig.names == ["a"])
        endpoint = rig.published[0]
        await endpoint.activate(generation("one"))

        assert agent.served.observer.health().live
        running = await endpoint.fetch_running()
        assert running is not None
        assert "one" in running.text


async def test_data_plane_api_in_a_pod_is_published_renewed_and_lost(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "PROBE_INTERVAL", 0.05)
    monkeypatch.setattr(presence, "LOST_AFTER", 0.2)
    rig.cluster.put(make_pod("a"))
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(serve_dataplaneapi(FakeDataplaneApi()))
        rig.aim(kind=DataplaneKind.DATAPLANEAPI, port=int(url.rpartition(":")[2]))
        await rig.until(lambda: rig.names == ["a"])
        (former,) = rig.published
        assert isinstance(former, DataplaneApiEndpoint)
        assert (await former.describe()).version.startswith("2.8")

        rig.cluster.put(make_pod("a", containerStatuses=[{"restartCount": 1}]))
        await rig.until(lambda: rig.published[0] is not former)
    await rig.until(lambda: rig.names == [])


def test_targets_are_compared_by_value() -> None:
    target = PodTarget(labels={"a": "b"}, kind=DataplaneKind.AGENT, port=5555)

    assert target == msgspec.structs.replace(target, labels={"a": "b"})
