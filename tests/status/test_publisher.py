"""The published configuration: its objects, and when they are written to an API server."""

from collections.abc import AsyncIterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import yaml
from trio.testing import MockClock

from haptic_trio.channels import InstanceState, Latest
from haptic_trio.errors import Problem
from haptic_trio.haproxy.model import Generation
from haptic_trio.k8s.client import NotFoundError
from haptic_trio.k8s.errors import ForbiddenError
from haptic_trio.k8s.resource import Resource, ResourceType
from haptic_trio.messages import ConfigPrepared, ConfigValidated, EndpointsDiscovered, Phases, Reason
from haptic_trio.status.published import (
    CONFIGURATIONS,
    FILES,
    MOST_BYTES,
    MOST_CHARACTERS,
    MOST_FILES,
    MOST_INSTANCES,
    MOST_OMITTED,
    PublishedText,
    Snapshot,
    configuration_of,
    file_name,
    files_of,
    in_order,
    status_of,
)
from haptic_trio.status.publisher import Inputs, Publisher
from tests.k8s.api.api_cluster import connected
from tests.support.api_server.server import ApiServer, serving
from tests.support.components.endpoints import MemoryEndpoint, generation

DEFINITIONS = Path(__file__).parents[2] / "chart" / "files" / "published-configuration.yaml"
NAME, NAMESPACE = "haptic-trio", "edge"


def text(path: str, content: str, **fields: Any) -> PublishedText:
    return PublishedText(path=path, kind="map", text=content, bytes=len(content), **fields)


def validated(name: str) -> ConfigValidated:
    return ConfigValidated(correlation="1", reason=Reason.CHANGED, generation=generation(name), phases=Phases())


def prepared(name: str) -> ConfigPrepared:
    return ConfigPrepared(correlation="1", reason=Reason.CHANGED, generation=generation(name), phases=Phases())


def snapshot(name: str, **files: str) -> Snapshot:
    texts = [text(f"maps/{each}.map", content) for each, content in files.items()]
    return Snapshot(generation=generation(name).id, texts=(text("haproxy.cfg", f"# {name}\n"), *texts))


class Memory:
    """What an API server keeps, and each write to it."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Resource] = {}
        self.writes: list[tuple[float, str, str]] = []
        self.fails = False

    async def get(self, resource_type: ResourceType, namespace: str, name: str) -> Resource:
        await trio.lowlevel.checkpoint()
        found = self.objects.get((resource_type.plural, name))
        if found is None:
            raise NotFoundError(_ref(resource_type, namespace, name))
        return found

    async def apply(
        self, resource: Resource, *, field_manager: str, force: bool = False, subresource: str = ""
    ) -> Resource:
        await trio.lowlevel.checkpoint()
        if self.fails:
            raise ForbiddenError("PATCH", "403 forbidden", status=403)
        key = (f"{resource['kind'].lower()}s", resource["metadata"]["name"])
        self.writes.append((trio.current_time(), "status" if subresource else "apply", key[1]))
        stored = {**self.objects.get(key, {}), **resource}
        self.objects[key] = {**stored, "metadata": {**resource["metadata"], "uid": "u"}}
        return self.objects[key]

    async def delete(self, resource_type: ResourceType, namespace: str, name: str) -> None:
        await trio.lowlevel.checkpoint()
        self.writes.append((trio.current_time(), "delete", name))
        if self.objects.pop((resource_type.plural, name), None) is None:
            raise NotFoundError(_ref(resource_type, namespace, name))

    @property
    def configuration(self) -> Resource:
        return self.objects[CONFIGURATIONS.plural, NAME]

    def content(self, path: str) -> str:
        return str(self.objects[FILES.plural, file_name(NAME, path)]["spec"]["content"])


def _ref(resource_type: ResourceType, namespace: str, name: str) -> Any:
    return f"{resource_type.plural} {namespace}/{name}"


class Rig:
    """A publisher with the test at all its ends."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.prepared, self.validated = Latest[ConfigPrepared](), Latest[ConfigValidated]()
        self.instances, self.endpoints = Latest[Mapping[str, InstanceState]](), Latest[EndpointsDiscovered]()
        self.newest: Snapshot | None = None
        self.reads = 0
        self.problems: list[tuple[Problem, ...]] = []
        self.reported = trio.Event()
        inputs = Inputs(self.prepared, self.validated, self.instances, self.endpoints)
        self.publisher = Publisher(
            server,
            NAMESPACE,
            NAME,
            inputs,
            self.read,
            clean=lambda text: text.replace("hunter2", "***"),
            report=self.report,
        )

    def report(self, problems: tuple[Problem, ...]) -> None:
        self.problems.append(problems)
        self.reported.set()

    async def read(self, generations: tuple[Generation, ...]) -> Snapshot | None:
        await trio.lowlevel.checkpoint()
        self.reads += 1
        known = {one.id for one in generations}
        return self.newest if self.newest is not None and self.newest.generation in known else None

    def deployed(self, name: str, *instances: str, error: str = "") -> None:
        """Let *instances* run the generation *name*."""
        state = InstanceState(wanted=generation(name).id, generation=generation(name).id, error=error)
        self.endpoints.put(EndpointsDiscovered(endpoints=tuple(map(MemoryEndpoint, instances))))
        self.instances.put(dict.fromkeys(instances, state))


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def rig(memory: Memory, nursery: trio.Nursery) -> Rig:
    made = Rig(memory)
    nursery.start_soon(made.publisher.run)
    return made


async def test_valid_configuration_and_its_instances_are_published(
    autojump_clock: MockClock, rig: Rig, memory: Memory
) -> None:
    rig.newest = snapshot("a", hosts="x y\n")
    rig.deployed("a", "one", "two")
    rig.validated.put(validated("a"))
    await trio.sleep(1)

    assert memory.configuration["spec"]["generation"] == generation("a").id
    assert [each["path"] for each in memory.configuration["spec"]["files"]] == ["haproxy.cfg", "maps/hosts.map"]
    assert memory.configuration["status"]["inSync"] == "2/2"
    assert (memory.content("haproxy.cfg"), memory.content("maps/hosts.map")) == ("# a\n", "x y\n")
    (owner,) = memory.objects[FILES.plural, file_name(NAME, "haproxy.cfg")]["metadata"]["ownerReferences"]
    assert owner["uid"] == "u"


async def test_writes_are_ten_seconds_apart_and_only_of_what_differs(
    autojump_clock: MockClock, rig: Rig, memory: Memory
) -> None:
    for number in range(100):
        name = f"v{number}"
        rig.newest = snapshot(name, hosts="x y\n")
        rig.validated.put(validated(name))
        rig.deployed(name, "one")
        await trio.sleep(0.5)
    await trio.sleep(10)

    times = sorted({at for at, _, _ in memory.writes})
    assert all(later - earlier >= 10 for earlier, later in pairwise(times))
    assert len(times) == 6
    assert memory.content("haproxy.cfg") == "# v99\n"
    # The map is the same in all of them.
    assert sum(name == file_name(NAME, "maps/hosts.map") for _, _, name in memory.writes) == 1
    await trio.sleep(1000)
    assert max(at for at, _, _ in memory.writes) == times[-1]


async def test_prepared_configuration_is_published_once_an_instance_runs_it(
    autojump_clock: MockClock, rig: Rig, memory: Memory
) -> None:
    rig.newest = snapshot("a")
    rig.validated.put(validated("a"))
    rig.deployed("a", "one")
    await trio.sleep(20)

    rig.newest = snapshot("b")
    rig.prepared.put(prepared("b"))
    await trio.sleep(20)
    assert memory.content("haproxy.cfg") == "# a\n"

    rig.deployed("b", "one")
    await trio.sleep(1)
    assert memory.content("haproxy.cfg") == "# b\n"


async def test_render_of_a_later_time_is_read_again(autojump_clock: MockClock, rig: Rig, memory: Memory) -> None:
    rig.validated.put(validated("a"))
    await trio.sleep(5)
    assert memory.writes == []

    rig.newest = snapshot("a")
    await trio.sleep(10)

    assert memory.content("haproxy.cfg") == "# a\n"
    reads = rig.reads
    await trio.sleep(100)
    assert rig.reads == reads


async def test_removed_files_are_deleted_also_those_of_an_earlier_leader(
    autojump_clock: MockClock, rig: Rig, memory: Memory, nursery: trio.Nursery
) -> None:
    rig.newest = snapshot("a", hosts="x y\n", paths="x y\n", more="x y\n")
    rig.validated.put(validated("a"))
    await trio.sleep(20)
    rig.newest = snapshot("b", hosts="x y\n", paths="x y\n")
    rig.validated.put(validated("b"))
    await trio.sleep(20)
    kept = {file_name(NAME, path) for path in ("haproxy.cfg", "maps/hosts.map", "maps/paths.map")}
    assert {name for plural, name in memory.objects if plural == FILES.plural} == kept

    successor = Rig(memory)
    successor.newest = snapshot("c", hosts="x y\n")
    successor.validated.put(validated("c"))
    nursery.start_soon(successor.publisher.run)
    await trio.sleep(1)

    kept.remove(file_name(NAME, "maps/paths.map"))
    assert {name for plural, name in memory.objects if plural == FILES.plural} == kept


async def test_error_of_an_instance_is_published_without_secrets_and_with_a_limit(
    autojump_clock: MockClock, rig: Rig, memory: Memory
) -> None:
    rig.newest = snapshot("a")
    rig.validated.put(validated("a"))
    rig.deployed("a", "one", error="user x password hunter2 is invalid" + "!" * 5000)
    await trio.sleep(1)

    (instance,) = memory.configuration["status"]["instances"]
    assert instance["lastError"].startswith("user x password *** is invalid!")
    assert len(instance["lastError"]) == MOST_CHARACTERS
    assert (instance["inSync"], memory.configuration["status"]["inSync"]) == (False, "0/1")


async def test_problem_is_reported_until_writing_works(autojump_clock: MockClock, rig: Rig, memory: Memory) -> None:
    memory.fails = True
    rig.newest = snapshot("a")
    rig.validated.put(validated("a"))
    await trio.sleep(15)
    assert "cannot publish the configuration: PATCH: 403 forbidden" in str(rig.problems[-1][0])

    memory.fails = False
    await trio.sleep(60)

    assert rig.problems[-1] == ()
    assert memory.content("haproxy.cfg") == "# a\n"


def test_names_of_objects_are_valid_and_one_for_each_path() -> None:
    paths = ["maps/a.map", "maps/A.map", "maps/a-map", "maps/ä", "_", "x" * 500]
    names = {file_name("c" * 253, path) for path in paths} | {file_name("a.b", path) for path in paths}

    assert len(names) == 2 * len(paths)
    for name in names:
        assert len(name) <= 253
        assert all(label and label == label.strip("-") for label in name.split("."))
        assert name == name.lower()


def test_maps_of_objects_push_no_map_of_a_template_out() -> None:
    own = {"maps/path-prefix.map", "maps/host.map"}
    maps = [f"maps/api-keys-{number:02}.map" for number in range(MOST_FILES)]

    assert in_order([*maps, *own], own) == ["maps/host.map", "maps/path-prefix.map", *maps]


def test_objects_stay_below_the_limits_of_etcd() -> None:
    texts = tuple(text(f"maps/{'n' * 200}-{number}.map", "ä" * (MOST_BYTES // 2)) for number in range(MOST_FILES))
    big = Snapshot(
        generation="g" * 40, texts=texts, omitted=tuple(f"maps/{'n' * 200}-{n}.map" for n in range(MOST_OMITTED))
    )
    error = InstanceState(wanted="g" * 40, held=("ä" * 5000,) * 100, error="ä" * 5000)
    many = status_of(NAMESPACE, NAME, {f"i{n}": error for n in range(500)}, [f"i{n}" for n in range(500)])

    objects = [configuration_of(NAMESPACE, NAME, big), *files_of(NAMESPACE, NAME, "u", big)]

    assert max(len(msgspec.json.encode(one)) for one in objects) < 400 * 1024
    assert many["status"]["omittedInstances"] == 500 - MOST_INSTANCES
    assert len(msgspec.json.encode(many)) < 1400 * 1024


def test_instances_that_are_not_in_sync_are_listed_first_of_all() -> None:
    good = InstanceState(wanted="g", generation="g")
    states = {f"i{number:03}": good for number in range(MOST_INSTANCES)}

    status = status_of(NAMESPACE, NAME, states, [*states, "new"])["status"]

    assert status["inSync"] == f"{MOST_INSTANCES}/{MOST_INSTANCES + 1}"
    assert {"name": "new", "generation": "", "inSync": False, "heldBack": [], "lastError": ""} in status["instances"]


@pytest.fixture
async def api_server() -> AsyncIterator[ApiServer]:
    """An API server with the kinds that the chart installs."""
    async with serving(*yaml.safe_load_all(DEFINITIONS.read_text())) as server:
        yield server


async def test_objects_are_applied_to_an_api_server(api_server: ApiServer, tmp_path: Path) -> None:
    async with connected(api_server, tmp_path / "kubeconfig") as cluster, trio.open_nursery() as nursery:
        rig = Rig(cluster)
        rig.newest = snapshot("a", hosts="x y\n")
        rig.validated.put(validated("a"))
        rig.deployed("a", "one")
        nursery.start_soon(rig.publisher.run)

        def is_published() -> bool:
            found = api_server.state.collections[CONFIGURATIONS].objects.get((NAMESPACE, NAME))
            return found is not None and "status" in found.resource

        await api_server.until(is_published)
        stored = api_server.stored(CONFIGURATIONS, NAMESPACE, NAME)
        file = api_server.stored(FILES, NAMESPACE, file_name(NAME, "maps/hosts.map"))
        nursery.cancel_scope.cancel(reason="the test is over")

    assert (stored["spec"]["shortGeneration"], stored["status"]["inSync"]) == (generation("a").id[:12], "1/1")
    assert file["spec"]["content"] == "x y\n"
    assert file["metadata"]["ownerReferences"][0]["uid"] == stored["metadata"]["uid"]


async def test_absent_definitions_are_reported_with_the_file_that_has_them(tmp_path: Path) -> None:
    async with (
        serving() as server,
        connected(server, tmp_path / "kubeconfig") as cluster,
        trio.open_nursery() as nursery,
    ):
        rig = Rig(cluster)
        rig.newest = snapshot("a")
        rig.validated.put(validated("a"))
        nursery.start_soon(rig.publisher.run)
        with trio.fail_after(30):
            await rig.reported.wait()
        nursery.cancel_scope.cancel(reason="the test is over")

    ((problem,),) = rig.problems
    assert "does not serve" in problem.message
    assert DEFINITIONS.name in problem.hint
