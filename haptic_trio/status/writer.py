"""Status writer: a work item for each object whose status differs, run while this replica leads.

The desired status comes from sources (`haptic_trio.status.sources`), the present
one from the stores. The only state is the statuses that were written and have
not come back by a watch yet, so a new leader continues where the old one stopped.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn, Protocol

import msgspec
import trio

from haptic_trio.channels import Latest
from haptic_trio.k8s.client import Client, Deleted, Listed, NotFoundError, Selection, Upserted
from haptic_trio.k8s.errors import AbsentKindError, InvalidError
from haptic_trio.k8s.on_demand import OnDemandStore
from haptic_trio.k8s.resource import Resource, ResourceRef, ResourceType, ref_of, version_of
from haptic_trio.k8s.store import ReadableStore
from haptic_trio.k8s.tracker import Tracker
from haptic_trio.status.ingress import Addresses, addresses_of
from haptic_trio.status.sources import FIELD_MANAGER, Status, StatusKey, StatusSource, application_of, is_fulfilled
from haptic_trio.templating.deferred import NotFetchedError
from haptic_trio.templating.values.faults import ContentUnavailableError
from haptic_trio.workqueue.controller import Controller
from haptic_trio.workqueue.metrics import WorkQueueMetrics
from haptic_trio.workqueue.outcome import PermanentError

SERVICES: Final = ResourceType("v1", "services")
WORKERS: Final = 8
"""Concurrent writes: enough for a thousand per second at 8 ms each, with few connections."""
RETRY_BASE: Final = 0.25
RETRY_MAX: Final = 60.0
_SHARE: Final = 32
"""Objects of a namespace that wait with the highest priority; the more there are, the lower is that of the next one."""
_STEP: Final = 0.01
"""Seconds of comparisons between two checkpoints; an object with many parents takes far longer than another one."""
_MOST_FETCHES: Final = 20
"""Fetches for the status of one object, one after the other, before it is retried later."""


class StatusServer(Protocol):
    """The part of `ApiCluster` that the writer uses."""

    async def apply(
        self, resource: Resource, *, field_manager: str, force: bool = False, subresource: str = ""
    ) -> Resource:
        """Apply *resource* (server-side apply) and return the stored object."""
        ...


class Difference(msgspec.Struct, frozen=True):
    """A status that differs from the desired one."""

    resource: Resource
    wanted: Status | None
    """None: remove the fields that haptic-trio owns."""
    exact: bool


class StatusLedger:
    """Finds the objects whose status differs from the desired one. No I/O."""

    def __init__(self, stores: Mapping[str, ReadableStore], sources: Sequence[StatusSource]) -> None:
        """Sources without a store in *stores* are ignored."""
        self._stores = stores
        self._sources = {source.name: source for source in sources if source.store in stores}
        followed = {
            name for source in self._sources.values() for name in (source.store, *source.inputs) if name in stores
        }
        self._trackers: dict[str, Tracker] = {name: stores[name].track() for name in sorted(followed)}
        inputs = {name for source in self._sources.values() for name in source.inputs}
        self._echoing = {source.name: source.store for source in self._sources.values() if source.store not in inputs}
        # By object: the version before the write, and the written status, until a watch brings another version.
        self._written: dict[StatusKey, tuple[str, Status | None]] = {}

    def everything(self, sources: Iterable[str] | None = None) -> list[StatusKey]:
        """Return all objects of *sources*; None: of all sources."""
        return [
            StatusKey(source.name, ref_of(resource))
            for source in self._sources.values()
            if sources is None or source.name in sources
            for resource in self._stores[source.store].list()
        ]

    def take_changes(self) -> list[StatusKey]:
        """Return the objects whose status may differ since the last call."""
        changed = {name: tracker.take() for name, tracker in self._trackers.items()}
        keys: list[StatusKey] = []
        for source in self._sources.values():
            if any(changed.get(name) for name in source.inputs):
                keys += self.everything([source.name])
            if refs := changed[source.store]:
                keys += [StatusKey(source.name, ref) for ref in (*refs, *source.related())]
        return list(dict.fromkeys(keys))

    def take_echoes(self) -> list[StatusKey]:
        """Return the objects that have changed since the last call in stores that are not an input of a source.

        These changes are own writes that come back by the watch, or writes of other clients.
        """
        return [StatusKey(name, ref) for name, store in self._echoing.items() for ref in self._trackers[store].take()]

    def compare(self, key: StatusKey) -> Difference | None:
        """Return the difference to write for *key*; None if there is none."""
        source = self._sources[key.source]
        if not source.is_ready:
            return None
        resource = self._stores[source.store].by_ref(key.ref)
        if resource is None:
            self._written.pop(key, None)
            return None
        wanted, present = source.wanted(resource), resource.get("status")
        if self._written.get(key) == (version_of(resource), wanted):
            return None
        if wanted is not None:
            is_due = not is_fulfilled(present, wanted)
        else:
            # An earlier write may differ from everything that the source would write now.
            former = self._written.get(key, ("", None))[1]
            is_due = former is not None or source.is_left_over(resource)
        if not is_due:
            self._written.pop(key, None)
            return None
        return Difference(resource, wanted, exact=source.is_shared or wanted is None)

    def note_written(self, key: StatusKey, difference: Difference) -> None:
        """Record that *difference* was written."""
        self._written[key] = version_of(difference.resource), difference.wanted


class StatusWriter:
    """Writes the status of all objects of *sources* that differ from the desired one."""

    def __init__(
        self,
        server: StatusServer,
        stores: Mapping[str, ReadableStore],
        sources: Sequence[StatusSource],
        *,
        metrics: WorkQueueMetrics | None = None,
    ) -> None:
        self._server = server
        self._stores = stores
        self._ledger = StatusLedger(stores, sources)
        self._controller: Controller[StatusKey] = (
            Controller(self._reconcile, name="status", metrics=metrics)
            .with_workers(WORKERS)
            .with_backoff(RETRY_BASE, RETRY_MAX)
            # Another replica may lead already.
            .with_shutdown(0)
        )
        self._comparisons: Latest[tuple[str, ...] | None] = Latest()
        self._waiting: dict[str, set[StatusKey]] = {}
        """By namespace."""

    def compare_again(self, *sources: str) -> None:
        """Compare every object of *sources* again; needed when inputs other than stores changed."""
        self._comparisons.put(sources)

    async def run(self, cells: tuple[Latest[Any], ...], unread: Latest[Any] | None = None) -> NoReturn:
        """Write until cancelled; reads the changes of the stores after each change of *cells*.

        After each change of *unread*, reads only stores that are not an input of a source.
        """
        async with trio.open_nursery() as nursery:
            await nursery.start(self._controller.run)
            self._ledger.take_changes()
            nursery.start_soon(self._follow_comparisons)
            for cell in cells:
                nursery.start_soon(self._follow, cell, cell.version, self._ledger.take_changes)
            if unread is not None:
                nursery.start_soon(self._follow, unread, unread.version, self._ledger.take_echoes)
            await self._enqueue(self._ledger.everything())
        raise AssertionError("its tasks end only by cancellation")

    async def _follow(self, cell: Latest[Any], seen: int, take: Callable[[], Sequence[StatusKey]]) -> NoReturn:
        while True:
            seen, _value = await cell.wait_newer(seen)
            await self._enqueue(take())

    async def _follow_comparisons(self) -> NoReturn:
        seen = self._comparisons.version
        while True:
            seen, sources = await self._comparisons.wait_newer(seen)
            await self._enqueue(self._ledger.everything(sources))

    async def _enqueue(self, keys: Sequence[StatusKey]) -> None:
        began = trio.current_time()
        for key in keys:
            if self._may_differ(key):
                # One change, such as that of a Service, can change the statuses of all routes of a namespace.
                waiting = self._waiting.setdefault(key.ref.namespace, set())
                waiting.add(key)
                self._controller.enqueue(key, priority=-(len(waiting) // _SHARE).bit_length())
            if trio.current_time() - began >= _STEP:
                await trio.lowlevel.checkpoint()
                began = trio.current_time()

    def _may_differ(self, key: StatusKey) -> bool:
        try:
            return self._ledger.compare(key) is not None
        except ContentUnavailableError:
            return True
        except Exception:  # noqa: BLE001  the work queue retries the object, logs the error, and goes on with others
            return True

    async def _compare(self, key: StatusKey) -> Difference | None:
        """Return `StatusLedger.compare`, fetching on-demand objects for it; raises `ContentUnavailableError`."""
        for _attempt in range(_MOST_FETCHES):
            try:
                return self._ledger.compare(key)
            except NotFetchedError as error:
                error.deferred.keeper.want(error.deferred)
                for store in self._stores.values():
                    if isinstance(store, OnDemandStore):
                        await store.fetch_wanted()
        return self._ledger.compare(key)

    def _take(self, key: StatusKey) -> None:
        waiting = self._waiting.get(key.ref.namespace, set())
        waiting.discard(key)
        if not waiting:
            self._waiting.pop(key.ref.namespace, None)

    async def _reconcile(self, key: StatusKey) -> None:
        self._take(key)
        difference = await self._compare(key)
        if difference is None:
            return
        application = application_of(difference.resource, difference.wanted, exact=difference.exact)
        try:
            await self._server.apply(application, field_manager=FIELD_MANAGER, force=True, subresource="status")
        except (NotFoundError, AbsentKindError):
            # The object was deleted; the store will follow.
            return
        except InvalidError as error:
            raise PermanentError(error) from error
        self._ledger.note_written(key, difference)


async def follow_service(client: Client, namespace: str, name: str, addresses: Latest[Addresses]) -> NoReturn:
    """Keep the addresses of the Service *namespace*/*name* in *addresses* until cancelled; none without a Service."""
    selection = Selection(type=SERVICES, namespaces=(namespace,), field_selector=f"metadata.name={name}")
    async with client.watch(selection) as events:
        async for event in events:
            service: Resource | None = None
            match event:
                case Listed(objects):
                    service = objects[0] if objects else None
                case Upserted(resource):
                    service = resource
                case Deleted():
                    pass
            found = addresses_of(service)
            if found != addresses.value:
                addresses.put(found)
    # The watch ends with the client.
    await trio.sleep_forever()
    raise AssertionError("unreachable")


def find_object(stores: Mapping[str, ReadableStore], ref: ResourceRef) -> Resource | None:
    """Return the object *ref* from the first store that has it."""
    return next((found for store in stores.values() if (found := store.by_ref(ref)) is not None), None)
