"""The cluster in memory behaves as the real one does."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

import pytest
import trio
import yaml

from haptic_trio.k8s.client import Client, Deleted, Listed, NotFoundError, Selection, Upserted
from haptic_trio.k8s.manifests.directory import DirectoryCluster
from haptic_trio.k8s.resource import Resource, ResourceType, ref_of, version_of
from tests.support.components.cluster import MemoryCluster
from tests.support.kubernetes import ingress, service

SERVICES = ResourceType("v1", "services")


class Subject(Protocol):
    """A cluster that a test can write to."""

    client: Client

    def put(self, resource: Resource) -> None: ...

    def remove(self, resource: Resource) -> None: ...


class InMemory:
    def __init__(self) -> None:
        self.cluster = MemoryCluster()
        self.client: Client = self.cluster
        self.put = self.cluster.put
        self.remove = self.cluster.remove


class InDirectory:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.cluster = DirectoryCluster(path, report=lambda _source, _problems: None, grace=0.0)
        self.client: Client = self.cluster

    def put(self, resource: Resource) -> None:
        file = self._file(resource)
        temporary = file.with_name(f".{file.name}")
        temporary.write_text(yaml.safe_dump(resource))
        temporary.replace(file)

    def remove(self, resource: Resource) -> None:
        self._file(resource).unlink()

    def _file(self, resource: Resource) -> Path:
        return self._path / f"{resource['kind']}-{resource['metadata']['name']}.yaml"


@pytest.fixture(params=["memory", "directory"])
async def subject(request: pytest.FixtureRequest, tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[Subject]:
    if request.param == "memory":
        yield InMemory()
    else:
        directory = InDirectory(tmp_path)
        await nursery.start(directory.cluster.run)
        yield directory


async def test_watch_begins_with_a_list_and_goes_on_with_the_selected_changes(subject: Subject) -> None:
    web, api = service("web"), service("api")
    subject.put(web)
    selection = Selection(type=SERVICES, namespaces=("default",), field_selector="metadata.name=web")
    with trio.fail_after(10):
        async with subject.client.watch(selection) as events:
            listed = await anext(events)
            while listed == Listed(()):
                # The directory may not have been read again yet.
                update = await anext(events)
                listed = Listed((update.object,)) if isinstance(update, Upserted) else update
            subject.put(api)
            subject.put(ingress("web"))
            subject.put({**web, "spec": {"ports": []}})
            changed = await anext(events)
            subject.remove(web)
            gone = await anext(events)

    assert isinstance(listed, Listed)
    assert [ref_of(resource).name for resource in listed.objects] == ["web"]
    assert isinstance(changed, Upserted)
    assert changed.object["spec"] == {"ports": []}
    assert version_of(changed.object) != version_of(listed.objects[0])
    assert isinstance(gone, Deleted)
    assert ref_of(gone.object) == ref_of(web)


async def test_get_finds_what_is_there_and_says_what_is_not(subject: Subject) -> None:
    subject.put(service("web"))
    with trio.fail_after(10):
        async with subject.client.watch(Selection(type=SERVICES)) as events:
            if await anext(events) == Listed(()):
                await anext(events)

    assert (await subject.client.get(SERVICES, "default", "web"))["kind"] == "Service"
    with pytest.raises(NotFoundError):
        await subject.client.get(SERVICES, "default", "api")


async def test_list_that_comes_again_holds_everything() -> None:
    cluster = MemoryCluster(service("web"))
    async with cluster.watch(Selection(type=SERVICES)) as events:
        await anext(events)
        cluster.put(service("api"))
        cluster.relist()
        listed = await anext(events)

    assert isinstance(listed, Listed)
    assert {ref_of(resource).name for resource in listed.objects} == {"web", "api"}


async def test_silent_kind_lists_only_once_it_answers(nursery: trio.Nursery, autojump_clock: object) -> None:
    cluster = MemoryCluster(service("web"))
    cluster.silence(SERVICES)
    listed = trio.Event()

    async def watch() -> None:
        async with cluster.watch(Selection(type=SERVICES)) as events:
            assert isinstance(await anext(events), Listed)
            listed.set()

    nursery.start_soon(watch)
    with trio.move_on_after(1000) as waiting:
        await listed.wait()
    assert waiting.cancelled_caught

    cluster.answer(SERVICES)
    with trio.fail_after(1):
        await listed.wait()
