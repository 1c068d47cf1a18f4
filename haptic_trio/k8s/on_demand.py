"""On-demand store: holds keys, fetches an object when a template uses it, and caches it for a while.

What the store holds of an object, one `KeyedObject` for each version, is made
as soon as a watch has decoded it; the rest is let go. Look-ups, records of
them and changes are those of any store. What a render lacks it notes with
the store (see `haptic_trio.templating.incremental.deferred`); `fetch_wanted` gets it.
"""

import hashlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NoReturn, TypeAlias, cast

import msgspec
import trio

from haptic_trio.errors import HapticError
from haptic_trio.k8s.client import NotFoundError
from haptic_trio.k8s.errors import UnreachableError
from haptic_trio.k8s.fetching import Failures, FetchFailedError
from haptic_trio.k8s.index import Keys, KeySchema
from haptic_trio.k8s.object_cache import ObjectCache
from haptic_trio.k8s.resource import Resource, ResourceRef, version_of
from haptic_trio.k8s.store import Store, unversioned
from haptic_trio.templating.incremental.deferred import Deferred

Fetch: TypeAlias = Callable[[str, str], Awaitable[Resource]]
"""Return the object of a namespace and name as it is now; see `Client.get`."""

FETCHES: Final = 8
"""Objects of a kind that are fetched at the same time."""
FETCH_LIMIT: Final = 5.0
"""Seconds that the cluster has to answer."""
FETCH_ALLOWANCE: Final = 60.0
"""Seconds after which a render begins no other fetch; enough for tens of thousands of objects."""


class KeyedObject(Deferred):
    """What is held of an object: its identity and the keys that it is found under."""

    __slots__ = ("digest", "prefixes")

    digest: bytes | None
    """Of its content; None where that has not been seen."""
    prefixes: tuple[Keys, ...]


class _KnownKeys(KeySchema):
    def prefixes(self, resource: Resource) -> tuple[Keys, ...]:
        found: object = resource
        return found.prefixes if isinstance(found, KeyedObject) else super().prefixes(resource)


class OnDemandStore(Store):
    """A `Store` of keyed objects, to be filled with what `reduce` returns.

    Where it is fed with whole objects, it knows a change that touches
    nothing but the resourceVersion, managedFields and ignored fields for
    none, as a full store does. With metadata alone each version is a change.
    """

    def __init__(
        self,
        name: str,
        index_by: Sequence[str],
        ignore_fields: Sequence[str] = (),
        *,
        fetch: Fetch,
        cache_size: int,
        cache_ttl: float,
    ) -> None:
        """Raises `ProblemsError` for expressions that cannot be used. *cache_ttl* is in seconds."""
        super().__init__(name, index_by, ignore_fields, make_schema=_KnownKeys)
        self._fetch = fetch
        self._cache = ObjectCache(cache_size, cache_ttl)
        self._failures = Failures()
        self._wanted: dict[ResourceRef, KeyedObject] = {}
        self._changed = trio.Event()

    @property
    def needs_only_metadata(self) -> bool:
        """Whether `reduce` can do with an object's metadata."""
        return self.schema.needs_only("metadata")

    @property
    def cached(self) -> int:
        """How many objects are held as a whole."""
        return len(self._cache)

    @property
    def is_wanting(self) -> bool:
        """Whether there is something for `fetch_wanted`."""
        return bool(self._wanted)

    def reduce(self, resource: Resource) -> Resource:
        """Return what is held of *resource*; nothing that is large."""
        content = self.without_ignored(resource)
        keyed = KeyedObject(self, content, version_of(resource))
        # Equal texts need to be there but once.
        texts = {text: text for text in (keyed.namespace, keyed.name)}
        keyed.prefixes = tuple(tuple(texts.get(key, key) for key in keys) for keys in self.schema.prefixes(content))
        keyed.digest = None if self.needs_only_metadata else _digest_of(content)
        return cast("Resource", keyed)

    def content_of(self, deferred: Deferred) -> Resource | None:
        """See `Keeper.content_of`."""
        ref = _ref_of(deferred)
        found = self._cache.get(ref, deferred.version)
        if found is None and (failure := self._failures.find(ref, deferred.version)) is not None:
            raise failure
        return found

    def want(self, deferred: Deferred) -> bool:
        """See `Keeper.want`."""
        ref = _ref_of(deferred)
        if ref in self._wanted or self._cache.get(ref, deferred.version) is not None:
            return False
        if self._failures.find(ref, deferred.version) is not None:
            return False
        assert isinstance(deferred, KeyedObject)
        self._wanted[ref] = deferred
        return True

    def is_failing(self, ref: ResourceRef) -> bool:
        """Whether fetching *ref* has failed, and it is not time to try again."""
        current = self.by_ref(ref)
        return current is not None and self._failures.find(ref, version_of(current)) is not None

    async def fetch_wanted(self) -> None:
        """Fetch what is wanted; what cannot be had is failing from then on, and tried again later.

        Takes `FETCH_LIMIT` seconds at most for each object, and for all the
        others once the cluster does not answer.
        """
        wanted, self._wanted = self._wanted, {}
        silent: list[FetchFailedError] = []
        limiter = trio.CapacityLimiter(FETCHES)

        async def fetch(ref: ResourceRef, keyed: KeyedObject) -> None:
            async with limiter:
                if silent:
                    error = FetchFailedError(ref, silent[0].reason, silent[0].hint)
                    self._failures.note(keyed.version, error, trio.current_time())
                    return
                await self._fetch_one(ref, keyed, silent)

        async with trio.open_nursery() as nursery:
            for ref, keyed in wanted.items():
                nursery.start_soon(fetch, ref, keyed)
        self._wake()

    async def _fetch_one(self, ref: ResourceRef, keyed: KeyedObject, silent: list[FetchFailedError]) -> None:
        try:
            with trio.fail_after(FETCH_LIMIT):
                resource = await self._fetch(ref.namespace, ref.name)
        except trio.TooSlowError:
            error = FetchFailedError(ref, f"the cluster has not answered within {FETCH_LIMIT:g} s")
            silent.append(error)
        except NotFoundError:
            error = FetchFailedError(ref, "it is not there any more", "a watch should tell so any moment")
        except HapticError as exc:
            error = FetchFailedError(ref, str(exc), str(getattr(exc, "hint", "")))
            if isinstance(exc, UnreachableError):
                silent.append(error)
        else:
            self._failures.forget(ref)
            self._cache.put(ref, self.without_ignored(resource), keyed.version, trio.current_time())
            return
        self._failures.note(keyed.version, error, trio.current_time())

    async def run_upkeep(self, retry: Callable[[tuple[ResourceRef, ...]], Awaitable[None]]) -> NoReturn:
        """Forget what has expired, and *retry* those whose fetch may be tried again, until cancelled."""
        while True:
            changed = self._changed
            with trio.move_on_at(self._next_due()):
                await changed.wait()
            if self._freezes:
                continue
            now = trio.current_time()
            self._cache.trim(now)
            due = self._failures.take_due(now)
            if due:
                await retry(due)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """See `Store.frozen`; what has been fetched meanwhile stays until the last freeze ends."""
        try:
            with super().frozen():
                yield
        finally:
            if not self._freezes:
                self._cache.trim(trio.current_time())
                self._wake()

    def _next_due(self) -> float:
        if self._freezes:
            return float("inf")
        due = (self._cache.next_expiry, self._failures.next_retry)
        return min((at for at in due if at is not None), default=float("inf"))

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def _is_same(self, current: Resource, resource: Resource) -> bool:
        before, after = cast("KeyedObject", current), cast("KeyedObject", resource)
        return (after.version != "" and before.version == after.version) or (
            after.digest is not None and before.digest == after.digest
        )

    def _apply(self, ref: ResourceRef, resource: Resource | None) -> None:
        super()._apply(ref, resource)
        self._cache.follow(ref, version_of(resource) if resource is not None else None)
        if resource is None:
            self._failures.forget(ref)


def _ref_of(deferred: Deferred) -> ResourceRef:
    return ResourceRef(deferred.kind, deferred.namespace, deferred.name)


def _digest_of(content: Resource) -> bytes:
    compared = {**content, "metadata": unversioned(content.get("metadata"))}
    return hashlib.blake2b(msgspec.json.encode(compared, order="deterministic"), digest_size=12).digest()
