"""The same objects in stores of both kinds, and what templates make of them."""

from collections.abc import Callable
from typing import Any

import msgspec
import trio
import trio.testing

from haptic_trio.config.model import Config, StoreKind
from haptic_trio.errors import Problem
from haptic_trio.k8s.client import NotFoundError
from haptic_trio.k8s.errors import ForbiddenError
from haptic_trio.k8s.on_demand import OnDemandStore
from haptic_trio.k8s.resource import Resource, ResourceRef, ResourceType, ref_of
from haptic_trio.k8s.store import Store, Stores
from haptic_trio.pipeline.rejection.errors import RejectedError
from haptic_trio.pipeline.rejection.quarantine import Quarantine
from haptic_trio.pipeline.render import Rendered, Renderer
from haptic_trio.stages.components import make_stores
from tests.pipeline.test_incremental import WATCHED, everything
from tests.support.components.pipeline import config_of

KINDS = {"services": "Service", "configmaps": "ConfigMap"}


class Cluster:
    """What `Client.get` reads, and how often it has."""

    def __init__(self) -> None:
        self.objects: dict[ResourceRef, Resource] = {}
        self.forbidden: set[ResourceRef] = set()
        self.fetched: list[str] = []
        self.answers = True
        self.delay = 0.0

    async def get(self, resource_type: ResourceType, namespace: str, name: str) -> Resource:
        await trio.lowlevel.checkpoint()
        if not self.answers:
            await trio.sleep_forever()
        await trio.sleep(self.delay)
        ref = ResourceRef(KINDS[resource_type.plural], namespace, name)
        self.fetched.append(name)
        if ref in self.forbidden:
            raise ForbiddenError(f"GET {ref}", "403 no")
        if ref not in self.objects:
            raise NotFoundError(ref)
        return self.objects[ref]


class Pair:
    """The same objects in full stores and in those on demand, and a renderer for each."""

    def __init__(self, template: str, **fields: Any) -> None:
        fields = {"watchedResources": WATCHED, **fields}
        self.full = self._make(config_of(template, **fields), StoreKind.FULL)
        self.sparse = self._make(config_of(template, **fields), StoreKind.ON_DEMAND)
        self.serial = 0

    cluster: Cluster

    def _make(self, config: Config, kind: StoreKind) -> tuple[Renderer, Stores, Quarantine]:
        if kind is StoreKind.ON_DEMAND:
            self.cluster = Cluster()
        watched = {
            name: msgspec.structs.replace(each, store=kind, cache_size=2)
            for name, each in config.watched_resources.items()
        }
        self.plurals = {name: each.resources for name, each in watched.items()}
        config = msgspec.structs.replace(config, watched_resources=watched)
        stores = make_stores(config, self.cluster if kind is StoreKind.ON_DEMAND else None)  # type: ignore[arg-type]
        return Renderer(config), stores, Quarantine()

    def demanding(self) -> list[OnDemandStore]:
        return [store for store in self.sparse[1].values() if isinstance(store, OnDemandStore)]

    def _each(self, kind: str, do: Callable[[Store, Callable[[Resource], Resource]], object]) -> None:
        for _renderer, stores, _quarantine in (self.full, self.sparse):
            for name, store in stores.items():
                if KINDS[self.plurals[name]] == kind:
                    do(store, store.reduce if isinstance(store, OnDemandStore) else lambda resource: resource)

    def write(self, resource: Resource) -> Resource:
        """Have *resource*, which is never what was there before, in the cluster."""
        self.serial += 1
        metadata = {**resource["metadata"], "resourceVersion": str(self.serial)}
        resource = {**resource, "metadata": metadata, "spec": {**resource["spec"], "serial": self.serial}}
        self.cluster.objects[ref_of(resource)] = resource
        return resource

    def report(self, resource: Resource) -> None:
        """Have the stores learn of *resource*."""
        self._each(resource["kind"], lambda store, reduce: store.upsert(reduce(resource)))

    def put(self, resource: Resource) -> None:
        self.report(self.write(resource))

    def remove(self, ref: ResourceRef) -> None:
        self.cluster.objects.pop(ref, None)
        self._each(ref.kind, lambda store, _reduce: store.delete(ref))

    def relist(self, kind: str) -> None:
        found = [resource for ref, resource in self.cluster.objects.items() if ref.kind == kind]
        self._each(kind, lambda store, reduce: store.replace(map(reduce, found)))

    async def render(self, which: tuple[Renderer, Stores, Quarantine]) -> Rendered | tuple[Problem, ...]:
        renderer, stores, quarantine = which
        try:
            with stores.frozen():
                rendered = await renderer.render(stores, quarantine.recall())
        except RejectedError as error:
            return error.problems
        quarantine.take(rendered.serial, rendered.changed, is_new=rendered.is_new)
        quarantine.accept(rendered.serial, rendered.rejections)
        return rendered

    async def texts(self) -> str:
        """Return the words of haproxy.cfg as the stores on demand give it."""
        rendered = await self.render(self.sparse)
        assert isinstance(rendered, Rendered), rendered
        return " ".join(rendered.text.split())

    async def is_same(self) -> None:
        full, sparse = await self.render(self.full), await self.render(self.sparse)
        if isinstance(full, Rendered) and isinstance(sparse, Rendered):
            assert everything(sparse) == everything(full)
        else:
            assert sparse == full


def service(name: str, namespace: str = "x", **spec: Any) -> Resource:
    return {"kind": "Service", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def created(resource: Resource) -> Resource:
    """Return *resource* with what a server adds."""
    return {**resource, "metadata": {**resource["metadata"], "creationTimestamp": "2026-01-01T00:00:00Z"}}


def config_map(name: str, namespace: str = "x", **spec: Any) -> Resource:
    return {"kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "spec": spec}
