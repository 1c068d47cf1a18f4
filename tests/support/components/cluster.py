"""A cluster in memory, whose content and whose silence the test dictates."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress

import trio

from haptic_trio.k8s.client import Listing, NotFoundError, Selection, WatchEvent
from haptic_trio.k8s.manifests.catalog import ObjectChange, type_of
from haptic_trio.k8s.manifests.subscription import Matcher, Subscription
from haptic_trio.k8s.resource import Resource, ResourceRef, ResourceType

Key = tuple[ResourceType, str, str]


class _Subscription(Subscription):
    """A subscription that can fail."""

    type: ResourceType
    error: Exception | None = None

    def __init__(self, matcher: Matcher, list_now: Callable[[], Iterable[Resource]], *, buffer: int) -> None:
        super().__init__(matcher, list_now, buffer=buffer)
        self.broken = trio.Event()

    async def __anext__(self) -> WatchEvent:
        found: list[WatchEvent] = []

        async def receive() -> None:
            with suppress(StopAsyncIteration):
                found.append(await Subscription.__anext__(self))
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await self.broken.wait()
            nursery.cancel_scope.cancel()
        if self.error is not None:
            raise self.error
        if not found:
            raise StopAsyncIteration
        return found[0]


class MemoryCluster:
    """A `Client` over what the test puts into it."""

    def __init__(self, *resources: Resource) -> None:
        self.watches = 0
        """How many watches are open."""
        self.opened = 0
        """How many watches were ever opened."""
        self.failures: dict[ResourceType, list[Exception]] = {}
        """What the next watches of a type raise, one after another."""
        self.listed = 0
        """How many objects the lists have brought so far."""
        self._objects: dict[Key, Resource] = {}
        self._version = 0
        self._subscriptions: set[_Subscription] = set()
        self._silent: dict[ResourceType, trio.Event] = {}
        self.put(*resources)

    def put(self, *resources: Resource) -> None:
        """Create or replace objects; each gets a new resourceVersion."""
        for resource in resources:
            self._version += 1
            metadata = {**resource["metadata"], "resourceVersion": str(self._version)}
            new = {**resource, "metadata": metadata}
            old = self._objects.get(_key_of(new))
            self._objects[_key_of(new)] = new
            self._offer(ObjectChange(old, new))

    def remove(self, resource: Resource) -> None:
        """Delete the object of that type, namespace and name."""
        self._offer(ObjectChange(self._objects.pop(_key_of(resource)), None))

    def silence(self, resource_type: ResourceType) -> None:
        """Let new watches of *resource_type* wait for their first list, as those of an API server that hangs."""
        self._silent[resource_type] = trio.Event()

    def answer(self, resource_type: ResourceType) -> None:
        """End the silence, for those that wait as well."""
        self._silent.pop(resource_type).set()

    def break_watches(self, resource_type: ResourceType, error: Exception) -> None:
        """Let the open watches of *resource_type* raise *error*."""
        for subscription in self._subscriptions:
            if subscription.type == resource_type:
                subscription.error = error
                subscription.broken.set()

    def relist(self) -> None:
        """List everything again on all watches, as after an interruption."""
        for subscription in self._subscriptions:
            subscription._resync = True
            subscription._arrived.set()

    @asynccontextmanager
    async def watch(self, selection: Selection) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """See `Client.watch`."""
        if failures := self.failures.get(selection.type):
            raise failures.pop(0)
        subscription = _Subscription(Matcher(selection), lambda: self._list(selection.type), buffer=1000)
        subscription.type = selection.type
        self._subscriptions.add(subscription)
        self.watches += 1
        self.opened += 1
        try:
            if selection.type in self._silent:
                await self._silent[selection.type].wait()
            yield subscription
        finally:
            self.watches -= 1
            self._subscriptions.discard(subscription)

    @property
    def listing(self) -> Listing:
        """See `Client.listing`."""
        return Listing(self.listed)

    async def get(self, resource_type: ResourceType, namespace: str, name: str) -> Resource:
        """See `Client.get`."""
        try:
            return self._objects[resource_type, namespace, name]
        except KeyError:
            raise NotFoundError(ResourceRef(resource_type.plural, namespace, name)) from None

    def _offer(self, change: ObjectChange) -> None:
        for subscription in self._subscriptions:
            subscription.offer(change)

    def _list(self, resource_type: ResourceType) -> list[Resource]:
        return [resource for (kind, _namespace, _name), resource in self._objects.items() if kind == resource_type]


def _key_of(resource: Resource) -> Key:
    metadata = resource["metadata"]
    return type_of(resource), metadata.get("namespace", ""), metadata["name"]
