"""The status of objects that are fetched on demand, and that depends on such."""

from functools import partial

import trio
import trio.testing

from haptic_trio.channels import Latest
from haptic_trio.k8s.errors import ForbiddenError
from haptic_trio.k8s.on_demand import OnDemandStore
from haptic_trio.k8s.resource import Resource, ResourceRef, ref_of
from haptic_trio.k8s.store import Stores
from haptic_trio.status.ingress import Addresses, IngressClaim, IngressStatus
from haptic_trio.status.writer import StatusWriter
from haptic_trio.templating.deferred import KeyedObject
from haptic_trio.templating.values.faults import ContentUnavailableError
from tests.support.kubernetes import ingress, ingress_class


class Cluster:
    """What is read one by one, and the statuses that were written."""

    def __init__(self, *resources: Resource) -> None:
        self.objects = {ref_of(resource).name: resource for resource in resources}
        self.forbidden: set[str] = set()
        self.written: list[tuple[str, object]] = []

    async def get(self, _namespace: str, name: str) -> Resource:
        await trio.lowlevel.checkpoint()
        if name in self.forbidden:
            raise ForbiddenError(f"GET {name}", "403 no")
        return self.objects[name]

    async def apply(
        self, resource: Resource, *, field_manager: str, force: bool = False, subresource: str = ""
    ) -> Resource:
        assert (bool(field_manager), force, subresource) == (True, True, "status")
        await trio.lowlevel.checkpoint()
        self.written.append((ref_of(resource).name, resource["status"]))
        return resource


async def ignore(_refs: tuple[ResourceRef, ...]) -> None:
    await trio.lowlevel.checkpoint()


async def test_what_a_status_needs_is_fetched_and_what_cannot_be_is_tried_again(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    classes, ingresses = [ingress_class("haptic", "us"), ingress_class("other", "them")], [ingress("a"), ingress("b")]
    cluster = Cluster(*classes, *ingresses)
    cluster.forbidden.add("b")
    make = partial(
        OnDemandStore,
        fetch=cluster.get,
        make_object=KeyedObject,
        make_error=ContentUnavailableError,
        cache_size=0,
        cache_ttl=10.0,
    )
    stores = Stores(
        [make("ingresses", ["metadata.namespace", "metadata.name"]), make("ingressClasses", ["metadata.name"])]
    )
    for name, resources in (("ingresses", ingresses), ("ingressClasses", classes)):
        store = stores[name]
        assert isinstance(store, OnDemandStore)
        store.replace(map(store.reduce, resources))
    addresses: Latest[Addresses] = Latest()
    addresses.put(Addresses(("192.0.2.7",)))
    source = IngressStatus(
        IngressClaim(class_name="haptic", controller="us", without_class=False),
        store="ingresses",
        class_store="ingressClasses",
        classes=stores["ingressClasses"].list,
        addresses=lambda: addresses.value,
    )
    for store in stores.values():
        assert isinstance(store, OnDemandStore)
        nursery.start_soon(store.run_upkeep, ignore)
    nursery.start_soon(StatusWriter(cluster, stores, [source]).run, ())

    wanted = {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}
    await trio.sleep(30)
    assert cluster.written == [("a", wanted)]
    cluster.forbidden.clear()
    await trio.sleep(300)
    assert cluster.written == [("a", wanted), ("b", wanted)]
    nursery.cancel_scope.cancel()
