import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from haptic_trio.errors import Problem
from haptic_trio.k8s.client import Client, Deleted, Listed, NotFoundError, Selection, Upserted, WatchEvent
from haptic_trio.k8s.manifests.directory import DirectoryCluster
from haptic_trio.k8s.manifests.tree import DirectoryError
from haptic_trio.k8s.resource import Resource
from tests.k8s.objects import INGRESSES, SERVICES, service_manifest

GRACE = 0.05


class Reports:
    """Received events, and a way to wait for them."""

    def __init__(self) -> None:
        self.problems: dict[str, tuple[Problem, ...]] = {}
        self._reported = trio.Event()

    def __call__(self, source: str, problems: tuple[Problem, ...]) -> None:
        self.problems[Path(source).name] = problems
        self._reported.set()
        self._reported = trio.Event()

    async def wait(self, claim: Callable[[dict[str, tuple[Problem, ...]]], bool]) -> None:
        with trio.fail_after(10):
            while not claim(self.problems):
                await self._reported.wait()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "manifests"
    directory.mkdir()
    return directory


@pytest.fixture
def reports() -> Reports:
    return Reports()


@asynccontextmanager
async def running(root: Path, reports: Reports, *, audit_interval: float = 30.0) -> AsyncIterator[Client]:
    cluster = DirectoryCluster(root, report=reports, grace=GRACE, audit_interval=audit_interval)
    async with trio.open_nursery() as nursery:
        with trio.fail_after(10):
            await nursery.start(cluster.run)
        yield cluster
        nursery.cancel_scope.cancel()


async def following(events: AsyncIterator[WatchEvent]) -> WatchEvent:
    with trio.fail_after(10):
        return await anext(events)


def save_atomically(path: Path, text: str) -> None:
    written = path.with_name(f"{path.name}.tmp")
    written.write_text(text)
    written.replace(path)


def ports(resource: Resource) -> list[int]:
    return [port["port"] for port in resource["spec"]["ports"]]


def name_of(resource: Resource) -> str:
    name: str = resource["metadata"]["name"]
    return name


async def test_it_is_ready_after_the_first_scan(root: Path, reports: Reports) -> None:
    (root / "deep/er").mkdir(parents=True)
    (root / "a.yaml").write_text(service_manifest("a"))
    (root / "deep/er/b.yml").write_text(service_manifest("b"))
    (root / "bad.yaml").write_text("kind: [")

    async with running(root, reports) as cluster:
        assert name_of(await cluster.get(SERVICES, "default", "a")) == "a"
        assert name_of(await cluster.get(SERVICES, "default", "b")) == "b"
        assert reports.problems["bad.yaml"][0].line == 1
        with pytest.raises(NotFoundError):
            await cluster.get(SERVICES, "default", "c")


async def test_progress_is_counted_in_bytes_of_all_files(root: Path, reports: Reports) -> None:
    size = 0
    for number in range(40):
        size += (root / f"{number}.yaml").write_text(service_manifest(f"web{number}"))
    async with running(root, reports) as cluster:
        assert (cluster.listing.done, cluster.listing.total) == (size, size)


async def test_a_watch_follows_saves_deletions_and_new_directories(root: Path, reports: Reports) -> None:
    (root / "a.yaml").write_text(service_manifest("a"))
    selection = Selection(type=SERVICES)
    async with running(root, reports) as cluster, cluster.watch(selection) as events:
        first = await following(events)
        assert isinstance(first, Listed)
        assert [name_of(resource) for resource in first.objects] == ["a"]

        save_atomically(root / "a.yaml", service_manifest("a", port=81))
        saved = await following(events)
        assert isinstance(saved, Upserted)
        assert ports(saved.object) == [81]

        (root / "new/dir").mkdir(parents=True)
        (root / "new/dir/b.yaml").write_text(service_manifest("b"))
        added = await following(events)
        assert isinstance(added, Upserted)
        assert name_of(added.object) == "b"

        shutil.rmtree(root / "new")
        removed = await following(events)
        assert isinstance(removed, Deleted)
        assert name_of(removed.object) == "b"


async def test_saving_by_delete_and_create_is_a_change_and_no_deletion(root: Path, reports: Reports) -> None:
    path = root / "a.yaml"
    path.write_text(service_manifest("a"))
    async with running(root, reports) as cluster, cluster.watch(Selection(type=SERVICES)) as events:
        await following(events)
        for port in range(100, 110):
            path.unlink()
            await trio.lowlevel.checkpoint()
            path.write_text(service_manifest("a", port=port))
            event = await following(events)
            assert isinstance(event, Upserted)
            assert ports(event.object) == [port]


async def test_a_broken_save_keeps_the_last_good_object_and_is_solved_by_the_next_good_one(
    root: Path, reports: Reports
) -> None:
    path = root / "a.yaml"
    path.write_text(service_manifest("a"))
    async with running(root, reports) as cluster, cluster.watch(Selection(type=SERVICES)) as events:
        await following(events)

        path.write_text(service_manifest("a") + "  broken: [\n")
        await reports.wait(lambda problems: bool(problems.get("a.yaml")))
        (problem,) = reports.problems["a.yaml"]
        assert problem.source == str(path)
        assert problem.line == 9
        assert ports(await cluster.get(SERVICES, "default", "a")) == [80]

        path.write_text(service_manifest("a", port=81))
        event = await following(events)
        assert isinstance(event, Upserted)
        await reports.wait(lambda problems: problems["a.yaml"] == ())


async def test_a_half_written_file_loses_nothing(root: Path, reports: Reports) -> None:
    path = root / "a.yaml"
    text = "---\n".join(service_manifest(name) for name in "pqr")
    path.write_text(text)
    async with running(root, reports) as cluster, cluster.watch(Selection(type=SERVICES)) as events:
        await following(events)
        with path.open("w") as file:
            for start in range(0, len(text), 7):
                file.write(text[start : start + 7])
                file.flush()
                await trio.lowlevel.checkpoint()
        (root / "z.yaml").write_text(service_manifest("z"))

        while True:
            event = await following(events)
            assert not isinstance(event, Deleted)
            if isinstance(event, Upserted) and name_of(event.object) == "z":
                break


async def test_a_duplicate_takes_over_from_a_deleted_file(root: Path, reports: Reports) -> None:
    (root / "a.yaml").write_text(service_manifest("a", port=1))
    (root / "b.yaml").write_text(service_manifest("a", port=2))
    async with running(root, reports) as cluster, cluster.watch(Selection(type=SERVICES)) as events:
        first = await following(events)
        assert isinstance(first, Listed)
        assert [ports(resource) for resource in first.objects] == [[1]]
        assert "defined already" in reports.problems["b.yaml"][0].message

        (root / "a.yaml").unlink()

        event = await following(events)
        assert isinstance(event, Upserted)
        assert ports(event.object) == [2]
        assert reports.problems["b.yaml"] == ()


async def test_a_mounted_config_map_is_followed_through_its_switch(root: Path, reports: Reports) -> None:
    (root / "..1").mkdir()
    (root / "..1/a.yaml").write_text(service_manifest("a", port=1))
    (root / "..data").symlink_to("..1")
    (root / "a.yaml").symlink_to("..data/a.yaml")
    async with running(root, reports) as cluster, cluster.watch(Selection(type=SERVICES)) as events:
        first = await following(events)
        assert isinstance(first, Listed)
        assert len(first.objects) == 1

        (root / "..2").mkdir()
        (root / "..2/a.yaml").write_text(service_manifest("a", port=2))
        (root / "..data_tmp").symlink_to("..2")
        (root / "..data_tmp").rename(root / "..data")
        shutil.rmtree(root / "..1")

        event = await following(events)
        assert isinstance(event, Upserted)
        assert ports(event.object) == [2]


async def test_a_watch_gets_only_what_it_selects(root: Path, reports: Reports) -> None:
    selection = Selection(type=SERVICES, namespaces=("shop",), label_selector="app=web")
    path = root / "a.yaml"
    selected = service_manifest("a", extra="  namespace: shop\n  labels: {app: web}\n")
    path.write_text(f"{selected}---\n{service_manifest('b')}")
    async with running(root, reports) as cluster, cluster.watch(selection) as events:
        first = await following(events)
        assert isinstance(first, Listed)
        assert [name_of(resource) for resource in first.objects] == ["a"]

        save_atomically(path, f"{selected.replace('app: web', 'app: other')}---\n{service_manifest('b', port=81)}")

        event = await following(events)
        assert isinstance(event, Deleted)
        assert event.object["metadata"]["labels"] == {"app": "web"}


async def test_every_watcher_gets_its_own_events(root: Path, reports: Reports) -> None:
    selection = Selection(type=SERVICES)
    async with running(root, reports) as cluster:
        async with cluster.watch(selection) as one, cluster.watch(selection) as two:
            assert await following(one) == await following(two) == Listed(())
            (root / "a.yaml").write_text(service_manifest("a"))
            assert await following(one) == await following(two)
        async with cluster.watch(Selection(type=INGRESSES)) as other:
            assert await following(other) == Listed(())


async def test_a_directory_that_goes_away_is_reported_and_followed_again_when_it_is_back(
    root: Path, reports: Reports
) -> None:
    (root / "a.yaml").write_text(service_manifest("a"))
    (root / "b.yaml").write_text(service_manifest("b"))
    async with running(root, reports) as cluster, cluster.watch(Selection(type=SERVICES)) as events:
        await following(events)
        away = root.with_name("away")

        await trio.Path(root).rename(away)
        await reports.wait(lambda problems: bool(problems.get("manifests")))
        assert ports(await cluster.get(SERVICES, "default", "a")) == [80]

        (away / "a.yaml").write_text(service_manifest("a", port=81))
        shutil.copytree(away, root)
        event = await following(events)
        assert isinstance(event, Upserted)
        assert ports(event.object) == [81]
        await reports.wait(lambda problems: problems["manifests"] == ())

        save_atomically(root / "b.yaml", service_manifest("b", port=82))
        event = await following(events)
        assert isinstance(event, Upserted)
        assert ports(event.object) == [82]


async def test_a_link_to_a_directory_may_stand_for_it(root: Path, reports: Reports) -> None:
    link = root.with_name("current")
    link.symlink_to(root)
    async with running(link, reports) as cluster, cluster.watch(Selection(type=SERVICES)) as events:
        await following(events)
        (root / "sub").mkdir()
        (root / "sub/a.yaml").write_text(service_manifest("a"))
        assert isinstance(await following(events), Upserted)


async def test_an_audit_finds_changes_that_the_kernel_did_not_report(
    root: Path, reports: Reports, tmp_path: Path
) -> None:
    target = tmp_path / "outside.yaml"
    target.write_text(service_manifest("a"))
    (root / "a.yaml").symlink_to(target)
    async with (
        running(root, reports, audit_interval=0.05) as cluster,
        cluster.watch(Selection(type=SERVICES)) as events,
    ):
        await following(events)

        target.write_text(service_manifest("a", port=81))

        event = await following(events)
        assert isinstance(event, Upserted)
        assert ports(event.object) == [81]


async def test_many_files_at_once_arrive_completely(root: Path, reports: Reports) -> None:
    async with running(root, reports) as cluster, cluster.watch(Selection(type=SERVICES)) as events:
        await following(events)
        wanted = {f"s{number}" for number in range(200)}
        for name in wanted:
            directory = root / f"d{hash(name) % 7}"
            directory.mkdir(exist_ok=True)
            (directory / f"{name}.yaml").write_text(service_manifest(name))

        seen: set[str] = set()
        while seen != wanted:
            event = await following(events)
            assert isinstance(event, Upserted)
            seen.add(name_of(event.object))


async def test_a_file_that_cannot_be_read_is_reported_and_its_objects_stay(root: Path, reports: Reports) -> None:
    path = root / "a.yaml"
    path.write_text(service_manifest("a"))
    async with running(root, reports) as cluster:
        (root / "loop").symlink_to("a.yaml")
        path.unlink()
        (root / "loop").rename(path)
        await reports.wait(lambda problems: bool(problems.get("a.yaml")))
        assert ports(await cluster.get(SERVICES, "default", "a")) == [80]
        save_atomically(path, service_manifest("a", port=81))
        await reports.wait(lambda problems: problems["a.yaml"] == ())
        assert ports(await cluster.get(SERVICES, "default", "a")) == [81]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_a_file_that_may_not_be_read_is_reported_and_its_objects_stay(root: Path, reports: Reports) -> None:
    path = root / "a.yaml"
    path.write_text(service_manifest("a"))
    async with running(root, reports, audit_interval=0.05) as cluster:
        path.chmod(0)
        await reports.wait(lambda problems: bool(problems.get("a.yaml")))
        assert ports(await cluster.get(SERVICES, "default", "a")) == [80]
        path.chmod(0o600)
        await reports.wait(lambda problems: problems["a.yaml"] == ())


async def test_a_path_that_is_not_a_directory_is_rejected(tmp_path: Path, reports: Reports) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(DirectoryError, match="does not exist"):
        await DirectoryCluster(tmp_path / "missing", report=reports).run()
    with pytest.raises(DirectoryError, match="not a directory"):
        await DirectoryCluster(tmp_path / "file", report=reports).run()


async def test_watches_end_when_the_cluster_does(root: Path, reports: Reports) -> None:
    cluster = DirectoryCluster(root, report=reports)
    async with trio.open_nursery() as nursery:
        await nursery.start(cluster.run)
        async with cluster.watch(Selection(type=SERVICES)) as events:
            await following(events)
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True), trio.fail_after(10), pytest.raises(StopAsyncIteration):
                await anext(events)


async def test_a_cancelled_cluster_ends_at_once(root: Path, reports: Reports, monkeypatch: pytest.MonkeyPatch) -> None:
    # So long that a thread that is not asked to end would be noticed.
    monkeypatch.setattr("haptic_trio.k8s.manifests.tree._HEARTBEAT", 60_000)
    cluster = DirectoryCluster(root, report=reports)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            await nursery.start(cluster.run)
            async with cluster.watch(Selection(type=SERVICES)) as events:
                await following(events)
                (root / "a.yaml").write_text(service_manifest("a"))
                await following(events)
            nursery.cancel_scope.cancel()
