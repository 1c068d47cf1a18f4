"""Writer of the Services of Gateways, run while this replica leads.

A desired object is applied when it differs from the applied one, and again when
another client changed it. A new leader applies all objects once; for up-to-date
objects this changes nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn, Protocol

import trio

from haptic_trio.channels import AnyChange, Latest
from haptic_trio.gateway.listeners.infrastructure import is_of, objects_of, service_name
from haptic_trio.gateway.listeners.listeners import is_managed
from haptic_trio.k8s.client import NotFoundError
from haptic_trio.k8s.errors import InvalidError
from haptic_trio.k8s.resource import Resource, ResourceRef, ResourceType, ref_of, version_of
from haptic_trio.k8s.store import ReadableStore
from haptic_trio.status.sources import FIELD_MANAGER
from haptic_trio.templating.values.faults import ContentUnavailableError
from haptic_trio.workqueue.controller import Controller
from haptic_trio.workqueue.metrics import WorkQueueMetrics
from haptic_trio.workqueue.outcome import PermanentError

SERVICES: Final = ResourceType("v1", "services")
INPUTS: Final = ("gateways", "gatewayClasses", "listenerSets", "namespaces")
"""Stores that the desired objects depend on."""
_WRITTEN: Final = ("services", "endpointSlices")
RETRY_BASE: Final = 0.25
RETRY_MAX: Final = 60.0


class ServiceServer(Protocol):
    """The part of `ApiCluster` that the writer uses."""

    async def get(self, resource_type: ResourceType, namespace: str, name: str) -> Resource:
        """Return an object, or raise `NotFoundError`."""
        ...

    async def apply(
        self, resource: Resource, *, field_manager: str, force: bool = False, subresource: str = ""
    ) -> Resource:
        """Apply *resource* (server-side apply) and return the stored object."""
        ...


class GatewayServices:
    """Keeps one Service for each Gateway of *controller*."""

    def __init__(
        self,
        server: ServiceServer,
        stores: Mapping[str, ReadableStore],
        controller: str,
        *,
        report: Callable[[ResourceRef, str], None] = lambda _ref, _problem: None,
        metrics: WorkQueueMetrics | None = None,
    ) -> None:
        """*report* gets each Gateway whose Service cannot be written, and the reason."""
        self._server = server
        self._stores = stores
        self._controller = controller
        self._report = report
        self._inputs = {name: stores[name].track() for name in INPUTS}
        self._outputs = {name: stores[name].track() for name in _WRITTEN if name in stores}
        # By Gateway: the applied objects; by object: its version after that.
        self._applied: dict[ResourceRef, Sequence[Resource]] = {}
        self._versions: dict[ResourceRef, str] = {}
        self._queue: Controller[ResourceRef] = (
            Controller(self._reconcile, name="gateway-services", metrics=metrics)
            .with_backoff(RETRY_BASE, RETRY_MAX)
            # Another replica may lead already.
            .with_shutdown(0)
        )

    async def run(self, cells: tuple[Latest[Any], ...]) -> NoReturn:
        """Keep the Services until cancelled; reads the changes of the stores after each change of *cells*."""
        changes = AnyChange(cells)
        async with trio.open_nursery() as nursery:
            await nursery.start(self._queue.run)
            self._queue.enqueue(*self._gateways())
            while True:
                await changes.wait()
                self._queue.enqueue(*self._take_changes())
        raise AssertionError("its tasks end only by cancellation")

    def _gateways(self) -> list[ResourceRef]:
        return [ref_of(gateway) for gateway in self._stores["gateways"].list()]

    def _take_changes(self) -> list[ResourceRef]:
        changed = {name: tracker.take() for name, tracker in self._inputs.items()}
        touched = {
            ref for name, tracker in self._outputs.items() for ref in tracker.take() if not self._is_as_left(name, ref)
        }
        if any(changed[name] for name in INPUTS if name != "gateways"):
            found = self._gateways()
        else:
            found = list(changed["gateways"])
        for ref, objects in list(self._applied.items()):
            if not touched.isdisjoint(map(ref_of, objects)):
                del self._applied[ref]
                found.append(ref)
        return list(dict.fromkeys(found))

    def _is_as_left(self, store: str, ref: ResourceRef) -> bool:
        try:
            found = self._stores[store].by_ref(ref)
        except ContentUnavailableError:
            return False
        return found is not None and version_of(found) == self._versions.get(ref)

    async def _reconcile(self, ref: ResourceRef) -> None:
        gateway = self._stores["gateways"].by_ref(ref)
        if gateway is None or not is_managed(gateway, self._stores, self._controller):
            for one in self._applied.pop(ref, ()):
                self._versions.pop(ref_of(one), None)
            return
        wanted = objects_of(gateway, self._stores)
        if not wanted or self._applied.get(ref) == wanted:
            return
        name = service_name(gateway)
        if not await self._may_write(gateway, name):
            self._report(ref, f"Service {name} exists and is not managed by haptic-trio: it stays unchanged")
            return
        try:
            for one in wanted:
                stored = await self._server.apply(one, field_manager=FIELD_MANAGER, force=True)
                self._versions[ref_of(one)] = version_of(stored)
        except InvalidError as error:
            self._report(ref, str(error))
            raise PermanentError(error) from error
        self._applied[ref] = wanted

    async def _may_write(self, gateway: Resource, name: str) -> bool:
        try:
            found = await self._server.get(SERVICES, ref_of(gateway).namespace, name)
        except NotFoundError:
            return True
        return is_of(found, gateway)
