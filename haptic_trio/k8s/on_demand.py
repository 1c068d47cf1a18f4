"""On-demand store: holds keys, fetches an object when a template uses it, and caches it for a while.

For each version of an object the store holds one `LazyObject`, made as soon as
a watch has decoded the object; the decoded object is dropped. Lookups, their
records and changes are those of any store. A render registers the objects
that it needs by `want`, and `fetch_wanted` fetches them. The caller passes the
class of the lazy objects, which templates use like whole objects.
"""

import hashlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NoReturn, Protocol, TypeAlias, cast

import msgspec
import trio

from haptic_trio.errors import HapticError
from haptic_trio.k8s.client import NotFoundError
from haptic_trio.k8s.errors import UnreachableError
from haptic_trio.k8s.fetching import Failures, FetchFailure
from haptic_trio.k8s.index import Keys, KeySchema
from haptic_trio.k8s.object_cache import ObjectCache
from haptic_trio.k8s.resource import Resource, ResourceRef, version_of
from haptic_trio.k8s.store import Store, unversioned

Fetch: TypeAlias = Callable[[str, str], Awaitable[Resource]]
"""Returns the current object of a namespace and name; see `Client.get`."""

FETCHES: Final = 8
"""Maximum of concurrent fetches of a kind."""
FETCH_LIMIT: Final = 5.0
"""Seconds after which a fetch fails."""
FETCH_ALLOWANCE: Final = 60.0
"""Seconds after which a render begins no further fetch; enough for tens of thousands of objects."""


class Identified(Protocol):
    """The identity of one version of an object."""

    kind: str
    namespace: str
    name: str
    version: str


class LazyObject(Identified, Protocol):
    """The part of an object that is held: its identity and the keys that it is found under."""

    digest: bytes | None
    """Digest of the content; None if only metadata was received."""
    prefixes: tuple[Keys, ...]


MakeObject: TypeAlias = Callable[["OnDemandStore", Resource, str], LazyObject]
"""Makes the lazy object of a store for an object and its version; the store sets digest and prefixes."""
MakeError: TypeAlias = Callable[[str, str], Exception]
"""Makes the error for an object that could not be fetched, from a message and a hint."""


class _KnownKeys(KeySchema):
    def prefixes(self, resource: Resource) -> tuple[Keys, ...]:
        known: tuple[Keys, ...] | None = getattr(resource, "prefixes", None)
        return super().prefixes(resource) if known is None else known


class OnDemandStore(Store):
    """A `Store` of lazy objects, to be filled with what `reduce` returns.

    If it receives whole objects, a change of only the resourceVersion,
    managedFields and ignored fields is not a change, as in a full store. If
    it receives metadata alone, each version is a change.
    """

    def __init__(
        self,
        name: str,
        index_by: Sequence[str],
        ignore_fields: Sequence[str] = (),
        *,
        fetch: Fetch,
        make_object: MakeObject,
        make_error: MakeError,
        cache_size: int,
        cache_ttl: float,
    ) -> None:
        """Raises `ProblemsError` for expressions that cannot be used. *cache_ttl* is in seconds."""
        super().__init__(name, index_by, ignore_fields, make_schema=_KnownKeys)
        self._fetch = fetch
        self._make_object = make_object
        self._make_error = make_error
        self._cache = ObjectCache(cache_size, cache_ttl)
        self._failures = Failures()
        self._wanted: dict[ResourceRef, LazyObject] = {}
        self._changed = trio.Event()

    @property
    def needs_only_metadata(self) -> bool:
        """Whether `reduce` needs only the metadata of an object."""
        return self.schema.needs_only("metadata")

    @property
    def cached(self) -> int:
        """Number of whole objects in the cache."""
        return len(self._cache)

    @property
    def is_wanting(self) -> bool:
        """Whether `fetch_wanted` has objects to fetch."""
        return bool(self._wanted)

    def reduce(self, resource: Resource) -> Resource:
        """Return the lazy object for *resource*, which is small."""
        content = self.without_ignored(resource)
        keyed = self._make_object(self, content, version_of(resource))
        # Equal texts share memory.
        texts = {text: text for text in (keyed.namespace, keyed.name)}
        keyed.prefixes = tuple(tuple(texts.get(key, key) for key in keys) for keys in self.schema.prefixes(content))
        keyed.digest = None if self.needs_only_metadata else _digest_of(content)
        return cast("Resource", keyed)

    def content_of(self, deferred: Identified) -> Resource | None:
        """Return the whole object; None if it has to be fetched. Raises an error of *make_error* if that has failed."""
        ref = _ref_of(deferred)
        found = self._cache.get(ref, deferred.version)
        if found is None and (failure := self._failures.find(ref, deferred.version)) is not None:
            raise self._make_error(failure.message, failure.hint)
        return found

    def want(self, deferred: Identified) -> bool:
        """Register *deferred*, a lazy object of this store, for `fetch_wanted`.

        False if it is registered already, is here, or has failed.
        """
        ref = _ref_of(deferred)
        if ref in self._wanted or self._cache.get(ref, deferred.version) is not None:
            return False
        if self._failures.find(ref, deferred.version) is not None:
            return False
        self._wanted[ref] = cast("LazyObject", deferred)
        return True

    def is_failing(self, ref: ResourceRef) -> bool:
        """Whether fetching *ref* has failed and its retry is not due."""
        current = self.by_ref(ref)
        return current is not None and self._failures.find(ref, version_of(current)) is not None

    async def fetch_wanted(self) -> None:
        """Fetch the registered objects; those that cannot be fetched are failing, and retried later.

        Takes at most `FETCH_LIMIT` seconds for an object. Once the cluster does
        not respond, the objects that are left fail at once.
        """
        wanted, self._wanted = self._wanted, {}
        silent: list[FetchFailure] = []
        limiter = trio.CapacityLimiter(FETCHES)

        async def fetch(ref: ResourceRef, keyed: LazyObject) -> None:
            async with limiter:
                if silent:
                    error = FetchFailure(ref, silent[0].reason, silent[0].hint)
                    self._failures.note(keyed.version, error, trio.current_time())
                    return
                await self._fetch_one(ref, keyed, silent)

        async with trio.open_nursery() as nursery:
            for ref, keyed in wanted.items():
                nursery.start_soon(fetch, ref, keyed)
        self._wake()

    async def _fetch_one(self, ref: ResourceRef, keyed: LazyObject, silent: list[FetchFailure]) -> None:
        try:
            with trio.fail_after(FETCH_LIMIT):
                resource = await self._fetch(ref.namespace, ref.name)
        except trio.TooSlowError:
            error = FetchFailure(ref, f"the cluster has not responded within {FETCH_LIMIT:g} s")
            silent.append(error)
        except NotFoundError:
            error = FetchFailure(ref, "it does not exist any more", "the watch should report its deletion soon")
        except HapticError as exc:
            error = FetchFailure(ref, str(exc), str(getattr(exc, "hint", "")))
            if isinstance(exc, UnreachableError):
                silent.append(error)
        else:
            self._failures.forget(ref)
            self._cache.put(ref, self.without_ignored(resource), keyed.version, trio.current_time())
            return
        self._failures.note(keyed.version, error, trio.current_time())

    async def run_upkeep(self, retry: Callable[[tuple[ResourceRef, ...]], Awaitable[None]]) -> NoReturn:
        """Drop expired objects, and call *retry* with the objects whose retry is due, until cancelled."""
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
        """See `Store.frozen`; fetched objects stay until the last freeze ends."""
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
        before, after = cast("LazyObject", current), cast("LazyObject", resource)
        return (after.version != "" and before.version == after.version) or (
            after.digest is not None and before.digest == after.digest
        )

    def _apply(self, ref: ResourceRef, resource: Resource | None) -> None:
        super()._apply(ref, resource)
        self._cache.follow(ref, version_of(resource) if resource is not None else None)
        if resource is None:
            self._failures.forget(ref)


def _ref_of(deferred: Identified) -> ResourceRef:
    return ResourceRef(deferred.kind, deferred.namespace, deferred.name)


def _digest_of(content: Resource) -> bytes | None:
    compared = {**content, "metadata": unversioned(content.get("metadata"))}
    try:
        encoded = msgspec.json.encode(compared, order="deterministic")
    except RecursionError:
        # The calls in progress leave fewer levels than decoding had: each version counts as a change.
        return None
    return hashlib.blake2b(encoded, digest_size=12).digest()
