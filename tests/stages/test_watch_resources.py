"""Stage 3 fills stores of every kind, each by a watch that gives it what it needs."""

from collections.abc import AsyncIterator, Container, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
import trio.testing

from haptic_trio.channels import Change, EventBuffer, Latest
from haptic_trio.k8s.errors import ForbiddenError
from haptic_trio.k8s.on_demand import OnDemandStore
from haptic_trio.k8s.resource import Resource, ResourceRef, ResourceType
from haptic_trio.k8s.store import Stores
from haptic_trio.messages import IndexSynchronized, ResourceChanged
from haptic_trio.stages.components import make_stores
from haptic_trio.stages.watch_resources import run_watch_resources
from haptic_trio.templating.deferred import Deferred
from tests.support.components.cluster import MemoryCluster
from tests.support.components.pipeline import config_of
from tests.support.kubernetes import service

REF = ResourceRef("Service", "default", "web")


class Cluster(MemoryCluster):
    """A cluster that may forbid reading one object."""

    forbidden = False

    async def get(self, resource_type: ResourceType, namespace: str, name: str) -> Resource:
        await trio.lowlevel.checkpoint()
        if self.forbidden:
            raise ForbiddenError("GET", "403 no")
        return await super().get(resource_type, namespace, name)


@asynccontextmanager
async def watching(
    cluster: MemoryCluster,
    *,
    read: Container[str] | None = None,
    unread: Latest[ResourceChanged] | None = None,
    **watched: dict[str, Any],
) -> AsyncIterator[tuple[Stores, trio.MemoryReceiveChannel[Change]]]:
    """Run stage 3 over Services, each watched resource with fields of its own; templates use the stores *read*."""

    async def is_read(names: Iterable[str]) -> bool:
        await trio.lowlevel.checkpoint()
        return read is None or any(name in read for name in names)

    kinds = {name: {"apiVersion": "v1", "resources": "services", **fields} for name, fields in watched.items()}
    config = config_of("{{ 'x' }}\n", watchedResources=kinds)
    stores = make_stores(config, cluster)
    changes_in, changes_out = trio.open_memory_channel[Change](100)
    with changes_out:
        async with trio.open_nursery() as nursery:
            await nursery.start(
                partial(
                    run_watch_resources,
                    cluster,
                    config.watched_resources,
                    stores,
                    changes_in,
                    events=EventBuffer(),
                    is_read=is_read,
                    unread=unread,
                )
            )
            yield stores, changes_out
            nursery.cancel_scope.cancel()


async def test_a_store_ignores_its_own_fields_and_leaves_them_to_others_of_its_watch() -> None:
    cluster = MemoryCluster({**service("web"), "status": {"loadBalancer": {}}})
    async with watching(cluster, bare={"ignoreFields": ["status"]}, whole={}) as (stores, _changes):
        bare, whole = stores["bare"].by_ref(REF), stores["whole"].by_ref(REF)

        assert cluster.opened == 1
        assert bare is not None
        assert "status" not in bare
        assert whole is not None
        assert whole["status"] == {"loadBalancer": {}}


async def test_full_stores_share_a_watch_and_those_on_demand_have_their_own() -> None:
    cluster = MemoryCluster(service("web"))
    on_demand = {"store": "on-demand"}
    async with watching(
        cluster,
        services={},
        other={"indexBy": ["metadata.name"]},
        keys=on_demand,
        more={**on_demand, "indexBy": ["spec"]},
    ) as (stores, changes):
        assert cluster.opened == 3
        assert stores["services"].by_ref(REF) is stores["other"].by_ref(REF)
        for name in ("keys", "more"):
            found: object = stores[name].by_ref(REF)
            assert isinstance(found, Deferred)
        initial = [await changes.receive() for _ in range(3)]
        assert all(isinstance(change, ResourceChanged) and change.initial for change in initial)
        synchronized = await changes.receive()
        assert isinstance(synchronized, IndexSynchronized)
        assert synchronized.counts == {"services": 1, "other": 1, "keys": 1, "more": 1}

        cluster.put(service("web", port=81))
        touched = {name for _ in range(3) for name in (await changes.receive()).stores}  # type: ignore[union-attr]
        assert touched == {"services", "other", "keys", "more"}


async def test_stores_that_ignore_different_fields_keep_what_others_ignore() -> None:
    cluster = MemoryCluster(service("web"))
    async with watching(
        cluster,
        services={"ignoreFields": ["spec"]},
        other={"ignoreFields": ["metadata.labels"]},
        more={"ignoreFields": ["spec", "status"]},
    ) as (stores, _changes):
        kept = {name: "spec" in (store.by_ref(REF) or {}) for name, store in stores.items()}
        assert kept == {"services": False, "other": True, "more": False}
        assert cluster.opened == 2


async def test_an_object_that_could_not_be_fetched_is_a_change_when_it_may_be_tried_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    cluster = Cluster(service("web"))
    cluster.forbidden = True
    async with watching(cluster, services={"store": "on-demand"}) as (stores, changes):
        store = stores["services"]
        assert isinstance(store, OnDemandStore)
        while not isinstance(await changes.receive(), IndexSynchronized):
            pass
        keyed: object = store.by_ref(REF)
        assert isinstance(keyed, Deferred)
        store.want(keyed)
        await store.fetch_wanted()
        assert store.is_failing(REF)
        change = await changes.receive()
        assert change == ResourceChanged(stores=("services",), refs=(REF,))
        assert not store.is_failing(REF)
        assert 0.5 <= trio.current_time() <= 1


async def test_what_only_stores_see_that_no_template_reads_is_not_a_change_to_render() -> None:
    cluster = MemoryCluster(service("web"))
    unread: Latest[ResourceChanged] = Latest()
    async with watching(cluster, read={"bare"}, unread=unread, bare={"ignoreFields": ["status"]}, whole={}) as (
        stores,
        changes,
    ):
        while not isinstance(await changes.receive(), IndexSynchronized):
            pass

        cluster.put({**service("web"), "status": {"loadBalancer": {"ingress": []}}})
        with trio.fail_after(30):
            _, reported = await unread.wait_newer(0)
        assert set(reported.stores) == {"services", "whole"}
        assert "status" in (stores["whole"].by_ref(REF) or {})

        cluster.put({**service("web", port=81), "status": {"loadBalancer": {}}})
        with trio.fail_after(30):
            change = await changes.receive()
        assert isinstance(change, ResourceChanged)
        assert set(change.stores) == {"services", "bare", "whole"}
        assert unread.version == 1
        assert changes.statistics().current_buffer_used == 0
