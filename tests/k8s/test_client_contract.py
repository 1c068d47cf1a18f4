"""Every kind of cluster client fulfils the same contract."""

import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest
import trio
import yaml

from haptic_trio.k8s.client import Client, Deleted, Listed, Listing, NotFoundError, Selection, Upserted, WatchEvent
from haptic_trio.k8s.manifests.directory import DirectoryCluster
from haptic_trio.k8s.reflector import ResourceChanged, run_reflector
from haptic_trio.k8s.resource import Resource, ResourceType, version_of
from haptic_trio.k8s.selectors import SelectorError
from haptic_trio.k8s.store import Store
from tests.cluster.control_plane.state import State
from tests.cluster.fixtures import cluster_state
from tests.cluster.workloads.client import Cluster, connect_cluster
from tests.k8s.api.api_cluster import Reports, View, connected, connected_by, name_of
from tests.k8s.objects import INGRESSES, SERVICES
from tests.support.api_server.server import ApiServer, serving
from tests.support.kubernetes import ingress_class, service

__all__ = ["cluster_state"]
GIVEN = {"resourceVersion", "creationTimestamp", "uid"}


class Writer(ABC):
    """A cluster as the test sees it: what is in it, and a client."""

    def __init__(self) -> None:
        self.client: Client

    @abstractmethod
    async def put(self, resource: Resource) -> None:
        """Create or replace an object."""

    @abstractmethod
    async def remove(self, resource: Resource) -> None:
        """Delete an object."""


class DirectoryWriter(Writer):
    """Writes files."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        self.client = self.cluster = DirectoryCluster(root, report=Reports(), grace=0.02)

    def _file(self, resource: Resource) -> Path:
        metadata = resource["metadata"]
        return self.root / f"{resource['kind']}-{metadata.get('namespace', '')}-{metadata['name']}.yaml"

    async def put(self, resource: Resource) -> None:
        file = self._file(resource)
        written = file.with_suffix(".tmp")
        written.write_text(yaml.safe_dump(resource))
        written.replace(file)

    async def remove(self, resource: Resource) -> None:
        self._file(resource).unlink()


class ServerWriter(Writer):
    """Writes to the in-process API server."""

    def __init__(self, server: ApiServer, client: Client) -> None:
        super().__init__()
        self.client = client
        self._server = server

    async def put(self, resource: Resource) -> None:
        self._server.put(resource)

    async def remove(self, resource: Resource) -> None:
        self._server.remove(resource)


class KubernetesWriter(Writer):
    """Writes to a real API server; what others have there is kept out of the test's sight by a label."""

    def __init__(self, cluster: Cluster, client: Client) -> None:
        super().__init__()
        self._label = f"test-{uuid.uuid4().hex[:8]}"
        self.client = LabelledClient(client, f"contract={self._label}")
        self._cluster = cluster
        self._written: dict[str, Resource] = {}

    async def put(self, resource: Resource) -> None:
        # A server gives these itself.
        metadata = {key: value for key, value in resource["metadata"].items() if key not in GIVEN}
        labels = {**metadata.get("labels", {}), "contract": self._label}
        (written,) = await self._cluster.apply([{**resource, "metadata": {**metadata, "labels": labels}}])
        self._written[written["metadata"]["uid"]] = resource

    async def remove(self, resource: Resource) -> None:
        await self._cluster.delete(resource)

    async def remove_all(self) -> None:
        """Delete whatever the test has left."""
        for resource in self._written.values():
            await self._cluster.delete(resource)


class LabelledClient:
    """A client whose watches see the objects with a label alone."""

    def __init__(self, client: Client, label: str) -> None:
        self._client = client
        self._label = label

    @property
    def listing(self) -> Listing:
        return self._client.listing

    def watch(self, selection: Selection) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """See `Client.watch`."""
        labels = ",".join(filter(None, [selection.label_selector, self._label]))
        return self._client.watch(msgspec.structs.replace(selection, label_selector=labels))

    async def get(self, resource_type: ResourceType, namespace: str, name: str) -> Resource:
        """See `Client.get`."""
        return await self._client.get(resource_type, namespace, name)


@asynccontextmanager
async def directory(tmp_path: Path) -> AsyncIterator[Writer]:
    """A directory of manifests."""
    root = tmp_path / "manifests"
    root.mkdir()
    writer = DirectoryWriter(root)
    async with trio.open_nursery() as nursery:
        await nursery.start(writer.cluster.run)
        yield writer
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def api_server(tmp_path: Path, *, stream_lists: bool) -> AsyncIterator[Writer]:
    """The in-process API server."""
    async with serving() as server, connected(server, tmp_path / "config", stream_lists=stream_lists) as cluster:
        yield ServerWriter(server, cluster)


@asynccontextmanager
async def kube_apiserver(state: State, *, stream_lists: bool) -> AsyncIterator[Writer]:
    """A real API server, of which only what the test writes is looked at."""
    async with (
        connect_cluster(state) as cluster,
        connected_by(state.kubeconfig, stream_lists=stream_lists) as client,
    ):
        for name in ("other", "one", "two", "three"):
            await cluster.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}])
        writer = KubernetesWriter(cluster, client)
        try:
            yield writer
        finally:
            with trio.move_on_after(10, shield=True):
                await writer.remove_all()


CLUSTERS: dict[str, Callable[[Path], AbstractAsyncContextManager[Writer]]] = {
    "directory": directory,
    "api server": partial(api_server, stream_lists=False),
    "api server, streamed lists": partial(api_server, stream_lists=True),
}
"""How to open each kind of cluster, given a directory of the test's own."""
KUBERNETES = {"kube-apiserver": False, "kube-apiserver, streamed lists": True}
"""The same over a real control plane, and whether lists are asked for as streams."""


@pytest.fixture(params=[*CLUSTERS, *(pytest.param(name, marks=pytest.mark.cluster) for name in KUBERNETES)])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Writer]:
    opened: AbstractAsyncContextManager[Writer]
    if request.param in KUBERNETES:
        opened = kube_apiserver(request.getfixturevalue("cluster_state"), stream_lists=KUBERNETES[request.param])
    else:
        opened = CLUSTERS[request.param](tmp_path)
    async with opened as writer:
        yield writer


async def seen(cluster: Writer, *names: str) -> None:
    """Return once the client has all of the services *names*."""
    async with cluster.client.watch(Selection(type=SERVICES)) as events:
        await View(events).until(*names)


async def test_a_watch_begins_with_everything_that_is_there(cluster: Writer) -> None:
    await cluster.put(service("a"))
    await cluster.put(service("b", namespace="other"))
    await seen(cluster, "a", "b")

    async with cluster.client.watch(Selection(type=SERVICES)) as events:
        first = await View(events).step()

    assert isinstance(first, Listed)
    assert sorted(name_of(resource) for resource in first.objects) == ["a", "b"]
    for resource in first.objects:
        assert (resource["apiVersion"], resource["kind"]) == ("v1", "Service")
        assert {"uid", "creationTimestamp", "resourceVersion"} <= resource["metadata"].keys()
        assert "managedFields" not in resource["metadata"]


async def test_a_watch_of_nothing_begins_with_an_empty_list(cluster: Writer) -> None:
    async with cluster.client.watch(Selection(type=INGRESSES)) as events:
        assert await View(events).step() == Listed(())


async def test_a_watch_follows_creation_change_and_deletion_in_order(cluster: Writer) -> None:
    async with cluster.client.watch(Selection(type=SERVICES)) as events:
        view = View(events)
        await view.step()

        await cluster.put(service("a"))
        created = await view.step()
        await cluster.put(service("a", type="ExternalName", externalName="elsewhere.test"))
        changed = await view.step()
        await cluster.remove(service("a"))
        deleted = await view.step()

    assert isinstance(created, Upserted)
    assert isinstance(changed, Upserted)
    assert isinstance(deleted, Deleted)
    assert changed.object["spec"]["type"] == "ExternalName"
    assert deleted.object["spec"] == changed.object["spec"]
    assert created.object["metadata"]["uid"] == changed.object["metadata"]["uid"]
    assert version_of(created.object) != version_of(changed.object)


@pytest.mark.parametrize("namespaces", [("one",), ("one", "two"), ("one", "two", "one")])
async def test_namespaces_limit_a_watch(cluster: Writer, namespaces: tuple[str, ...]) -> None:
    for namespace in ("one", "two", "three"):
        await cluster.put(service(namespace, namespace=namespace))
    await seen(cluster, "one", "two", "three")

    async with cluster.client.watch(Selection(type=SERVICES, namespaces=namespaces)) as events:
        view = View(events)
        first = await view.step()
        assert isinstance(first, Listed)
        assert set(view.objects) == set(namespaces)

        await cluster.put(service("not-seen", namespace="three"))
        await cluster.put(service("seen", namespace="one"))
        await cluster.remove(service("one", namespace="one"))
        await view.until("seen", *(set(namespaces) - {"one"}))
        assert view.lists == 1


async def test_an_object_that_no_longer_has_the_label_is_deleted_for_the_watch(cluster: Writer) -> None:
    def labelled(name: str, tier: str) -> Resource:
        resource = service(name)
        resource["metadata"]["labels"] = {"tier": tier}
        return resource

    await cluster.put(labelled("a", "web"))
    await cluster.put(labelled("b", "db"))
    await seen(cluster, "a", "b")
    selection = Selection(type=SERVICES, label_selector="tier in (web, edge),tier!=none")
    async with cluster.client.watch(selection) as events:
        view = View(events)
        await view.until("a")
        await cluster.put(labelled("b", "edge"))
        await view.until("a", "b")
        await cluster.put(labelled("a", "db"))
        await view.until("b")


@pytest.mark.parametrize(
    "selector",
    ["metadata.name=a", "metadata.name!=b", "spec.type=LoadBalancer", "metadata.name=a,spec.type!=ClusterIP"],
)
async def test_fields_select_whether_the_server_knows_them_or_not(cluster: Writer, selector: str) -> None:
    await cluster.put(service("a", type="LoadBalancer"))
    await cluster.put(service("b", type="ClusterIP"))
    await seen(cluster, "a", "b")
    async with cluster.client.watch(Selection(type=SERVICES, field_selector=selector)) as events:
        view = View(events)
        await view.until("a")
        if "spec.type" in selector:
            await cluster.put(service("a", type="ClusterIP"))
            await view.until()


@pytest.mark.parametrize(("labels", "fields"), [("a in", ""), ("", "metadata.name")])
async def test_a_selector_that_cannot_be_read_is_rejected(cluster: Writer, labels: str, fields: str) -> None:
    selection = Selection(type=SERVICES, label_selector=labels, field_selector=fields)
    with pytest.raises(SelectorError):
        async with cluster.client.watch(selection):
            pass


async def test_objects_of_no_namespace_are_found_without_one(cluster: Writer) -> None:
    classes = ResourceType("networking.k8s.io/v1", "ingressclasses")
    await cluster.put(ingress_class("haptic", "x/y"))
    async with cluster.client.watch(Selection(type=classes)) as events:
        await View(events).until("haptic")

    found = await cluster.client.get(classes, "", "haptic")

    assert found["spec"] == {"controller": "x/y"}
    assert "namespace" not in found["metadata"]


async def test_an_object_is_read_by_name_or_not_found(cluster: Writer) -> None:
    await cluster.put(service("a"))
    await seen(cluster, "a")

    assert (await cluster.client.get(SERVICES, "default", "a"))["spec"]["ports"][0]["port"] == 80
    for namespace, name in (("default", "b"), ("other", "a")):
        with pytest.raises(NotFoundError) as caught:
            await cluster.client.get(SERVICES, namespace, name)
        assert (caught.value.ref.namespace, caught.value.ref.name) == (namespace, name)


async def test_a_kind_without_objects_is_empty_and_its_objects_are_not_found(cluster: Writer) -> None:
    widgets = ResourceType("demo.example.org/v1", "widgets")
    async with cluster.client.watch(Selection(type=widgets)) as events:
        assert await View(events).step() == Listed(())
    with pytest.raises(NotFoundError):
        await cluster.client.get(widgets, "default", "a")


async def test_several_watches_of_a_kind_are_independent(cluster: Writer) -> None:
    async with cluster.client.watch(Selection(type=SERVICES)) as one:
        await View(one).step()
        async with cluster.client.watch(Selection(type=SERVICES)) as two:
            await View(two).step()
        await cluster.put(service("a"))
        assert isinstance(await View(one).step(), Upserted)


def numbered(number: int) -> Resource:
    resource = service(f"s{number % 20}")
    resource["metadata"]["annotations"] = {"number": str(number)}
    return resource


async def test_a_store_converges_whatever_happens_how_fast(cluster: Writer, nursery: trio.Nursery) -> None:
    store = Store("services", ("metadata.name",))
    changed = trio.Event()

    async def emit(_change: ResourceChanged) -> None:
        nonlocal changed
        changed.set()
        changed = trio.Event()
        await trio.lowlevel.checkpoint()

    await nursery.start(
        partial(run_reflector, cluster.client, Selection(type=SERVICES), (store,), emit, report=Reports())
    )
    for number in range(60):
        await cluster.put(numbered(number))
        if number % 3 == 0:
            await cluster.remove(service(f"s{number % 20}"))

    # Divisible by three: written last by 42, 45, … and removed at once; the others stay.
    expected = {f"s{number % 20}": str(number) for number in range(40, 60) if number % 3}
    with trio.fail_after(10):
        while {name_of(each): each["metadata"]["annotations"]["number"] for each in store.list()} != expected:
            await changed.wait()
    nursery.cancel_scope.cancel()
