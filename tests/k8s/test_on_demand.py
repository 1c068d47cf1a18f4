"""A store on demand: what it holds, what it fetches, and that each kind of cluster feeds it."""

import base64
import gc
import random
import tracemalloc
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import trio
import yaml

from haptic_trio.k8s.client import Client, Listed, Selection, Upserted
from haptic_trio.k8s.manifests.directory import DirectoryCluster
from haptic_trio.k8s.on_demand import OnDemandStore
from haptic_trio.k8s.reflector import ResourceChanged, run_reflector
from haptic_trio.k8s.resource import Resource, ResourceRef, ResourceType, ref_of
from haptic_trio.k8s.store import Store
from haptic_trio.templating.deferred import Deferred, KeyedObject, NotFetchedError
from haptic_trio.templating.values.faults import ContentUnavailableError
from tests.k8s.api.api_cluster import Reports, connected
from tests.support.api_server.server import ApiServer, serving
from tests.support.components.cluster import MemoryCluster

SECRETS = ResourceType("v1", "secrets")
BY_NAME = ("metadata.namespace", "metadata.name")
BY_TYPE = ("type", "metadata.name")
IGNORED = ("metadata.managedFields", "metadata.annotations.noise")

Put = Callable[[Resource], None]


def secret(name: str, text: str = "text", version: str = "", **fields: Any) -> Resource:
    metadata = {"name": name, "namespace": "default", **({"resourceVersion": version} if version else {})}
    data = {"key": base64.b64encode(text.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data, **fields}


def ref(name: str) -> ResourceRef:
    return ResourceRef("Secret", "default", name)


async def nothing(_namespace: str, _name: str) -> Resource:
    raise AssertionError("nothing should be fetched")


def make_store(fetch: Any = nothing, index_by: Sequence[str] = BY_NAME, **fields: Any) -> OnDemandStore:
    options = {"cache_size": 2, "cache_ttl": 10.0, **fields}
    return OnDemandStore(
        "secrets",
        index_by,
        IGNORED,
        fetch=fetch,
        make_object=KeyedObject,
        make_error=ContentUnavailableError,
        **options,
    )


def keyed(store: OnDemandStore, name: str) -> Deferred:
    found: object = store.by_ref(ref(name))
    assert isinstance(found, Deferred)
    return found


async def content(store: OnDemandStore, name: str) -> Resource | None:
    """Fetch and return the whole of an object."""
    store.want(keyed(store, name))
    await store.fetch_wanted()
    return store.content_of(keyed(store, name))


def test_objects_are_found_by_keys_of_their_content_which_is_gone() -> None:
    store = make_store(index_by=BY_TYPE)
    store.replace([store.reduce(secret("a", type="x")), store.reduce(secret("b", type="y"))])
    assert [ref_of(found) for found in store.get("x")] == [ref("a")]
    assert store.get_single("y", "b") is store.by_ref(ref("b"))
    with pytest.raises(NotFetchedError, match="Secret default/a"):
        keyed(store, "a")["data"]
    assert "data" not in repr(keyed(store, "a"))


def test_a_change_of_nothing_but_ignored_fields_is_none_where_the_content_was_seen() -> None:
    def noisy(version: str, noise: str, text: str) -> Resource:
        resource = secret("a", text, version)
        return {**resource, "metadata": {**resource["metadata"], "annotations": {"noise": noise}}}

    whole, metadata_alone = make_store(index_by=BY_TYPE), make_store()
    for store, expected in ((whole, False), (metadata_alone, True)):
        assert store.upsert(store.reduce(noisy("1", "x", "one")))
        assert store.upsert(store.reduce(noisy("2", "y", "one"))) is expected
        assert store.upsert(store.reduce(noisy("3", "y", "two")))
        assert not store.upsert(store.reduce(noisy("3", "y", "two")))
    assert whole.needs_only_metadata is False
    assert metadata_alone.needs_only_metadata is True


async def test_a_newer_version_is_fetched_again_and_the_same_one_is_not(autojump_clock: object) -> None:
    cluster = {"a": secret("a", "one", "1")}
    fetched: list[str] = []

    async def fetch(_namespace: str, name: str) -> Resource:
        await trio.lowlevel.checkpoint()
        fetched.append(name)
        return cluster[name]

    store = make_store(fetch)
    store.upsert(store.reduce(cluster["a"]))
    for _ in range(2):
        assert await content(store, "a") == cluster["a"]
    cluster["a"] = secret("a", "two", "2")
    store.upsert(store.reduce(cluster["a"]))
    assert store.cached == 0
    assert await content(store, "a") == cluster["a"]
    assert fetched == ["a", "a"]
    store.delete(ref("a"))
    assert store.cached == 0


async def test_objects_without_a_version_are_never_taken_for_the_same(autojump_clock: object) -> None:
    cluster = {"a": secret("a", "one")}

    async def fetch(_namespace: str, name: str) -> Resource:
        await trio.lowlevel.checkpoint()
        return cluster[name]

    store = make_store(fetch)
    store.upsert(store.reduce(cluster["a"]))
    await content(store, "a")
    cluster["a"] = secret("a", "two")
    assert store.upsert(store.reduce(cluster["a"]))
    assert await content(store, "a") == cluster["a"]


async def test_fetched_objects_stay_while_frozen_then_few_and_not_for_long(
    autojump_clock: object, nursery: trio.Nursery
) -> None:
    async def fetch(_namespace: str, name: str) -> Resource:
        await trio.lowlevel.checkpoint()
        return secret(name, version="1")

    async def retry(_refs: tuple[ResourceRef, ...]) -> None:
        raise AssertionError("nothing has failed")

    store = make_store(fetch)
    nursery.start_soon(store.run_upkeep, retry)
    names = "abcde"
    store.replace([store.reduce(secret(name, version="1")) for name in names])
    with store.frozen():
        for name in names:
            store.want(keyed(store, name))
        await store.fetch_wanted()
        await trio.sleep(100)
        assert store.cached == 5
    assert store.cached == 2
    await trio.sleep(9)
    assert store.cached == 2
    await trio.sleep(2)
    assert store.cached == 0
    nursery.cancel_scope.cancel()


async def test_objects_are_fetched_several_at_a_time(autojump_clock: object) -> None:
    running = most = 0

    async def fetch(_namespace: str, name: str) -> Resource:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await trio.sleep(1)
        running -= 1
        return secret(name, version="1")

    store = make_store(fetch)
    store.replace([store.reduce(secret(f"s{number}", version="1")) for number in range(40)])
    for found in store.list():
        store.want(cast("Deferred", found))
    await store.fetch_wanted()
    assert 2 <= most <= 10
    assert trio.current_time() < 40


async def filled(
    cluster: Client, selection: Selection, store: OnDemandStore, nursery: trio.Nursery
) -> trio.MemoryReceiveChannel[ResourceChanged]:
    """Return its changes once *store* follows *cluster*."""
    changes_in, changes_out = trio.open_memory_channel[ResourceChanged](100)

    selection = msgspec.structs.replace(selection, reduce=store.reduce, metadata_is_enough=store.needs_only_metadata)
    await nursery.start(partial(run_reflector, cluster, selection, (store,), changes_in.send, report=Reports()))
    return changes_out


@asynccontextmanager
async def directory(tmp_path: Path) -> AsyncIterator[tuple[Client, Put]]:
    root = tmp_path / "manifests"
    root.mkdir()

    def put(resource: Resource) -> None:
        file = root / f"{resource['metadata']['name']}.yaml"
        file.with_suffix(".tmp").write_text(yaml.safe_dump(resource))
        file.with_suffix(".tmp").replace(file)

    put(secret("first", "old"))
    cluster = DirectoryCluster(root, report=Reports(), grace=0.02)
    async with trio.open_nursery() as nursery:
        await nursery.start(cluster.run)
        yield cluster, put
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def memory(tmp_path: Path) -> AsyncIterator[tuple[Client, Put]]:
    cluster = MemoryCluster(secret("first", "old"))
    yield cluster, cluster.put


@asynccontextmanager
async def api_server(tmp_path: Path, *, stream_lists: bool) -> AsyncIterator[tuple[Client, Put]]:
    async with (
        serving(secret("first", "old")) as server,
        connected(server, tmp_path / "config", stream_lists=stream_lists) as cluster,
    ):
        yield cluster, server.put


CLUSTERS: dict[str, Callable[[Path], AbstractAsyncContextManager[tuple[Client, Put]]]] = {
    "directory": directory,
    "memory": memory,
    "api server": partial(api_server, stream_lists=False),
    "api server, streamed lists": partial(api_server, stream_lists=True),
}


@pytest.mark.parametrize("index_by", [BY_NAME, BY_TYPE])
@pytest.mark.parametrize("kind", CLUSTERS)
async def test_every_cluster_feeds_it(kind: str, index_by: Sequence[str], tmp_path: Path) -> None:
    async with CLUSTERS[kind](tmp_path) as (cluster, put), trio.open_nursery() as nursery:
        store = make_store(partial(cluster.get, SECRETS), index_by)
        changes = await filled(cluster, Selection(type=SECRETS), store, nursery)
        assert (await changes.receive()).initial
        assert (keyed(store, "first").api_version, keyed(store, "first").kind) == ("v1", "Secret")
        found = await content(store, "first")
        assert found is not None
        assert found["data"] == secret("first", "old")["data"]

        put(secret("first", "new"))
        put(secret("second"))
        with trio.fail_after(10):
            missing = {ref("first"), ref("second")}
            while missing:
                missing.difference_update((await changes.receive()).refs)
        found = await content(store, "first")
        assert found is not None
        assert found["data"] == secret("first", "new")["data"]
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def watched(
    server: ApiServer, tmp_path: Path, selection: Selection, *, stream_lists: bool
) -> AsyncIterator[list[Any]]:
    """Collect what the watch of *selection* hands on, before anything is reduced."""
    seen: list[Any] = []

    def note(resource: Resource) -> Resource:
        seen.append(resource)
        return resource

    async with connected(server, tmp_path / "config", stream_lists=stream_lists) as cluster:
        selection = msgspec.structs.replace(selection, reduce=note)
        async with cluster.watch(selection) as events, trio.open_nursery() as nursery:
            with trio.fail_after(10):
                assert isinstance(await anext(events), Listed)
                server.put(secret("later"))
                assert isinstance(await anext(events), Upserted)
            yield seen
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("stream_lists", [False, True])
@pytest.mark.parametrize(
    ("fields", "knows", "is_partial"),
    [("", True, True), ("", False, False), ("data.key!=x", True, False)],
    ids=["partial", "server does not know it", "content decides what is selected"],
)
async def test_an_api_server_is_asked_for_metadata_alone_where_that_is_enough(
    fields: str, knows: bool, is_partial: bool, stream_lists: bool, tmp_path: Path
) -> None:
    async with serving(*[secret(f"s{number}") for number in range(3)]) as server:
        server.faults.partial_metadata = knows
        selection = Selection(type=SECRETS, metadata_is_enough=True, field_selector=fields)
        async with watched(server, tmp_path, selection, stream_lists=stream_lists) as seen:
            assert len(seen) == 4
            assert [("data" in each, each["kind"], each["apiVersion"]) for each in seen] == [
                (not is_partial, "Secret", "v1")
            ] * 4


async def test_a_server_that_rejects_to_read_one_object_says_so(tmp_path: Path) -> None:
    async with (
        serving(secret("a"), secret("b")) as server,
        connected(server, tmp_path / "config") as cluster,
        trio.open_nursery() as nursery,
    ):
        server.faults.unreadable.add("a")
        store = make_store(partial(cluster.get, SECRETS))
        await filled(cluster, Selection(type=SECRETS), store, nursery)
        assert await content(store, "b") is not None
        with pytest.raises(Exception, match="Secret default/a could not be fetched: GET secrets default/a: 403"):
            await content(store, "a")
        assert store.is_failing(ref("a"))
        nursery.cancel_scope.cancel()


@pytest.mark.slow
def test_five_thousand_secrets_take_less_than_a_seventh_of_what_full_ones_take() -> None:
    source = random.Random(7)

    def encoded(number: int) -> bytes:
        metadata = {
            "name": f"certificate-{number}",
            "namespace": f"team-{number % 50}",
            "uid": f"{number:08x}-1111-4222-8333-{number:012x}",
            "resourceVersion": str(100_000 + number),
            "creationTimestamp": f"2026-01-01T00:{number // 60 % 60:02}:{number % 60:02}Z",
            "labels": {"app": f"web-{number}"},
        }
        data = {
            name: base64.b64encode(source.randbytes(size)).decode()
            for name, size in (("tls.crt", 1800), ("tls.key", 1272))
        }
        return msgspec.json.encode({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})

    bodies = [encoded(number) for number in range(5000)]

    def held_by(store: Store, reduce: Callable[[Resource], Resource]) -> int:
        gc.collect()
        tracemalloc.start()
        try:
            store.replace([reduce(msgspec.json.decode(body)) for body in bodies])
            gc.collect()
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    full = held_by(Store("secrets", BY_NAME), lambda resource: resource)
    store = make_store()
    assert store.needs_only_metadata
    assert held_by(store, store.reduce) < 0.15 * full
