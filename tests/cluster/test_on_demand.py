"""A real API server lists Secrets without their data, and returns single Secrets with it."""

from functools import partial

import msgspec
import pytest
import trio

from haptic_trio.k8s.client import Listed, Selection, Upserted
from haptic_trio.k8s.on_demand import OnDemandStore
from haptic_trio.k8s.resource import Resource, ResourceType, ref_of
from haptic_trio.templating.deferred import Deferred, KeyedObject
from haptic_trio.templating.values.faults import ContentUnavailableError
from tests.cluster.workloads.client import Cluster
from tests.k8s.api.api_cluster import Reports, connected_by

pytestmark = pytest.mark.cluster

SECRETS = ResourceType("v1", "secrets")


def secret(name: str, text: str) -> Resource:
    metadata = {"name": name, "labels": {"app": "web"}}
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "stringData": {"key": text}}


@pytest.mark.parametrize("stream_lists", [False, True])
async def test_secrets_come_without_data_and_are_read_one_by_one(
    cluster: Cluster, namespace: str, stream_lists: bool
) -> None:
    await cluster.apply([secret("a", "one"), secret("b", "two")], namespace)
    reports = Reports()
    seen: list[Resource] = []
    with trio.fail_after(30):
        async with connected_by(cluster.kubeconfig, reports=reports, stream_lists=stream_lists) as client:
            store = OnDemandStore(
                "secrets",
                ("metadata.namespace", "metadata.labels.app"),
                fetch=partial(client.get, SECRETS),
                make_object=KeyedObject,
                make_error=ContentUnavailableError,
                cache_size=1,
                cache_ttl=60.0,
            )

            def reduce(resource: Resource) -> Resource:
                seen.append(resource)
                return store.reduce(resource)

            selection = Selection(
                type=SECRETS,
                namespaces=(namespace,),
                field_selector="type=Opaque",
                metadata_is_enough=store.needs_only_metadata,
                reduce=reduce,
            )
            async with client.watch(selection) as events:
                first = await anext(events)
                assert isinstance(first, Listed)
                store.replace(first.objects)
                await cluster.apply([secret("a", "three")], namespace)
                event = await anext(events)
                assert isinstance(event, Upserted)
                store.upsert(event.object)

            assert [(each["apiVersion"], each["kind"]) for each in seen] == [("v1", "Secret")] * 3
            assert all(each.keys() == {"apiVersion", "kind", "metadata"} for each in seen)
            assert b"managedFields" not in msgspec.json.encode(seen)
            found = store.get(namespace, "web")
            assert [ref_of(each).name for each in found] == ["a", "b"]
            for keyed in found:
                assert isinstance(keyed, Deferred)
                store.want(keyed)
            await store.fetch_wanted()
            # `three` and `two`.
            assert [keyed["data"]["key"] for keyed in found] == ["dGhyZWU=", "dHdv"]
            assert reports.messages == ""
