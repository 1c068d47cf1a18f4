"""Store of the watched objects of one kind: many readers, one writer, lookups by key.

Reading and writing happen on the event loop, except while a store is frozen:
then a worker thread may read it too, because writes wait until it thaws.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any, Protocol
from weakref import WeakSet

import msgspec

from haptic_trio.jsonpath import remove_path
from haptic_trio.k8s.index import AmbiguousLookupError, Keys, KeySchema, Table, compile_paths
from haptic_trio.k8s.intake import Intake
from haptic_trio.k8s.resource import Resource, ResourceRef, ref_of
from haptic_trio.k8s.tracker import Tracker

_VERSION_FIELDS = ("resourceVersion", "managedFields")


class Changes(msgspec.Struct, frozen=True):
    """Changes of a replacement, each in order of namespace and name."""

    added: tuple[ResourceRef, ...] = ()
    changed: tuple[ResourceRef, ...] = ()
    removed: tuple[ResourceRef, ...] = ()

    @property
    def refs(self) -> tuple[ResourceRef, ...]:
        """All of them: added, changed, removed."""
        return self.added + self.changed + self.removed

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


class ReadableStore(Protocol):
    """Read-only view of the objects of one kind, for templates and resolvers."""

    @property
    def name(self) -> str:
        """The name under which templates know it, such as `ingresses`."""
        ...

    @property
    def schema(self) -> KeySchema:
        """Keys by which the objects are indexed."""
        ...

    @property
    def version(self) -> int:
        """Grows with each visible change."""
        ...

    def __len__(self) -> int: ...

    def list(self) -> Sequence[Resource]:
        """Return all objects, ordered by namespace and name."""
        ...

    def get(self, *keys: str) -> Sequence[Resource]:
        """Return the objects found under *keys*, ordered by namespace and name.

        Fewer keys than the index has: all objects below. Raises
        `TooManyKeysError` for more.
        """
        ...

    def get_single(self, *keys: str) -> Resource | None:
        """Return the one object found under *keys*, None for none, or raise `AmbiguousLookupError`."""
        ...

    def by_ref(self, ref: ResourceRef) -> Resource | None:
        """Return the object *ref*, or None."""
        ...

    def without_ignored(self, resource: Resource) -> Resource:
        """Return *resource* as the store would hold it: a copy without the ignored fields."""
        ...

    def track(self) -> Tracker:
        """Return a tracker of what readers may see change from now on, for as long as the caller keeps it."""
        ...


class FieldRemover:
    """Removes ignored fields from objects; equal to each remover of the same fields."""

    def __init__(self, expressions: Sequence[str]) -> None:
        """Raises `ProblemsError` for expressions that cannot be used."""
        self._expressions = tuple(dict.fromkeys(expressions))
        self._paths = compile_paths(self._expressions, "ignoreFields", plain=True)

    def __call__(self, resource: Resource) -> Resource:
        """Return *resource* without the ignored fields; itself if it has none."""
        for path in self._paths:
            resource = remove_path(resource, path)
        return resource

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldRemover) and self._expressions == other._expressions

    def __hash__(self) -> int:
        return hash(self._expressions)


class Store:
    """All watched objects of one kind. One task writes; see `frozen` for reading from a thread.

    An object counts as changed when something other than its
    resourceVersion, its managedFields and the ignored fields differs.
    Otherwise the object that is there stays, so readers can compare by
    identity.
    """

    def __init__(
        self,
        name: str,
        index_by: Sequence[str],
        ignore_fields: Sequence[str] = (),
        *,
        make_schema: Callable[[Sequence[str]], KeySchema] = KeySchema,
    ) -> None:
        """Raises `ProblemsError` for expressions that cannot be used."""
        self.name = name
        self.schema = make_schema(index_by)
        self.version = 0
        self.remove_ignored = FieldRemover(ignore_fields)
        self._table = Table(self.schema)
        self._freezes = 0
        # What the writer has changed since the freeze; None is a deletion.
        self._pending: dict[ResourceRef, Resource | None] = {}
        self.intake = Intake()
        """Decides which changes wait; `Stores` has one for all of its stores."""
        # The newest versions of objects whose changes wait; None is a deletion.
        self._waiting: dict[ResourceRef, Resource | None] = {}
        # What readers saw of changed objects in the last cycle; None is none.
        self._former: dict[ResourceRef, Resource | None] = {}
        self._trackers: WeakSet[Tracker] = WeakSet()

    def __len__(self) -> int:
        return len(self._table)

    def list(self) -> Sequence[Resource]:
        """See `ReadableStore.list`; the same tuple until something changes."""
        return self._table.get(())

    def get(self, *keys: str) -> Sequence[Resource]:
        """See `ReadableStore.get`; the same tuple until something below *keys* changes."""
        return self._table.get(self.schema.lookup_keys(self.name, keys))

    def get_single(self, *keys: str) -> Resource | None:
        """See `ReadableStore.get_single`."""
        return single(self.name, keys, self.get(*keys))

    def by_ref(self, ref: ResourceRef) -> Resource | None:
        """See `ReadableStore.by_ref`."""
        return self._table.by_ref(ref)

    def take_over(self, former: "Store") -> None:
        """Begin with the content that readers see in *former*, whose schema and ignored fields are the same."""
        self._table = former._table.copied()  # noqa: SLF001  the two are of one class
        self._waiting = dict(former._waiting)  # noqa: SLF001  the two are of one class
        self.version += 1

    def take_in(self, ref: ResourceRef) -> None:
        """Let readers see the change of *ref* that waits, if there is one; the store is not frozen."""
        if ref in self._waiting:
            self._apply(ref, self._waiting.pop(ref))

    def put_back(self, ref: ResourceRef) -> None:
        """Let readers see *ref* as in the last cycle; its newest version waits. The store may be frozen."""
        if ref not in self._former:
            return
        former, newest = self._former[ref], self._table.by_ref(ref)
        self._apply(ref, former)
        self._waiting[ref] = newest
        del self._former[ref]

    def waiting(self, ref: ResourceRef) -> tuple[Resource | None, ...]:
        """Return the version of *ref* that waits, None for a deletion; nothing without one."""
        return (self._waiting[ref],) if ref in self._waiting else ()

    def release(self, ref: ResourceRef, version: Resource | None) -> bool:
        """Let readers see *version* of *ref*, which has waited; return whether a newer one waits. Not while frozen."""
        if self._waiting.get(ref) is version:
            self._waiting.pop(ref, None)
        self._apply(ref, version)
        return ref in self._waiting

    def settle(self) -> None:
        """Take note that readers have seen all that is not waiting."""
        self._former.clear()

    def without_ignored(self, resource: Resource) -> Resource:
        """See `ReadableStore.without_ignored`."""
        return self.remove_ignored(resource)

    def upsert(self, resource: Resource) -> bool:
        """Put *resource* in; False if that changes nothing."""
        return self.put(ref_of(resource), self.without_ignored(resource))

    def put(self, ref: ResourceRef, reduced: Resource) -> bool:
        """Put *reduced*, a result of `without_ignored` that *ref* refers to, in; False if that changes nothing."""
        return self._put(ref, reduced) is not _UNCHANGED

    def delete(self, ref: ResourceRef) -> bool:
        """Take the object *ref* out; False if it is not there."""
        if self._current(ref) is None:
            return False
        self._write(ref, None)
        return True

    def replace(self, resources: Iterable[Resource]) -> Changes:
        """Make *resources* the content; of several with the same reference the last one counts."""
        wanted = {ref_of(resource): resource for resource in resources}
        added, changed = [], []
        for ref in sorted(wanted, key=_order):
            outcome = self._put(ref, self.without_ignored(wanted[ref]))
            if outcome is _ADDED:
                added.append(ref)
            elif outcome is _CHANGED:
                changed.append(ref)
        removed = sorted(self.present() - wanted.keys(), key=_order)
        for ref in removed:
            self._write(ref, None)
        return Changes(tuple(added), tuple(changed), tuple(removed))

    def track(self) -> Tracker:
        """See `ReadableStore.track`; names what has changed and nothing else."""
        tracker = Tracker()
        self._trackers.add(tracker)
        return tracker

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Keep what readers see as it is; may be nested.

        The writer goes on: its calls return what they change relative to the
        writes before them, and readers see it when the last freeze ends, as
        far as the intake admits it.
        """
        self._freezes += 1
        try:
            yield
        finally:
            self._freezes -= 1
            if not self._freezes:
                pending, self._pending = self._pending, {}
                for ref, resource in pending.items():
                    self._write(ref, resource)

    def _put(self, ref: ResourceRef, resource: Resource) -> str:
        current = self._current(ref)
        if current is not None and self._is_same(current, resource):
            return _UNCHANGED
        self._write(ref, resource)
        return _ADDED if current is None else _CHANGED

    def _is_same(self, current: Resource, resource: Resource) -> bool:
        return same_content(current, resource)

    def _current(self, ref: ResourceRef) -> Resource | None:
        if ref in self._pending:
            return self._pending[ref]
        return self._waiting[ref] if ref in self._waiting else self._table.by_ref(ref)

    def present(self) -> set[ResourceRef]:
        """Return the references of all objects, whether readers see them already or not."""
        present = set(self._table.refs())
        for ref, resource in chain(self._waiting.items(), self._pending.items()):
            (present.discard if resource is None else present.add)(ref)
        return present

    def _write(self, ref: ResourceRef, resource: Resource | None) -> None:
        if self._freezes:
            self._pending[ref] = resource
        elif resource is None and self._table.by_ref(ref) is None:
            # Readers have not seen it. Another store may wait for the same object, so the intake keeps its place.
            self._waiting.pop(ref, None)
        elif self.intake.admits(ref, self._table.by_ref(ref), resource):
            self._waiting.pop(ref, None)
            self._apply(ref, resource)
        else:
            self._waiting[ref] = resource

    def _apply(self, ref: ResourceRef, resource: Resource | None) -> None:
        if self.intake.is_limited:
            self._former.setdefault(ref, self._table.by_ref(ref))
        if resource is not None:
            touched = self._table.put(ref, resource)
        elif self._table.by_ref(ref) is not None:
            touched = self._table.remove(ref)
        else:
            return
        self.version += 1
        # The iteration of a set of weak references costs more than the rest of this.
        if self._trackers:
            for tracker in self._trackers:
                tracker.note(ref, touched)


_UNCHANGED, _ADDED, _CHANGED = "unchanged", "added", "changed"


class Stores(Mapping[str, Store]):
    """The stores of an iteration by name."""

    def __init__(self, stores: Iterable[Store], intake: Intake | None = None) -> None:
        self._stores = {store.name: store for store in stores}
        self.intake = intake if intake is not None else Intake()
        for store in self._stores.values():
            store.intake = self.intake

    def __getitem__(self, name: str) -> Store:
        return self._stores[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stores)

    def __len__(self) -> int:
        return len(self._stores)

    def take_over(self, former: "Stores", names: Iterable[str]) -> None:
        """Begin with the content of *former* in the stores *names*; what waits there waits here, too."""
        for name in names:
            self._stores[name].take_over(former[name])
        self.intake.take_over(former.intake)

    def take_in(self, *, is_for_others: bool = False, is_for_all: bool = False) -> None:
        """Begin another cycle: let readers see changes that have waited, as far as the intake admits them."""
        for ref in self.intake.begin(is_for_others=is_for_others, is_for_all=is_for_all):
            for store in self._stores.values():
                store.take_in(ref)

    def put_back(self, ref: ResourceRef) -> None:
        """Let readers see *ref* as in the last cycle, until `release`."""
        self.intake.hold(ref)
        for store in self._stores.values():
            store.put_back(ref)

    def waiting(self, ref: ResourceRef) -> dict[str, Resource | None]:
        """Return the newest version of *ref*, which waits, by name of the store; None for a deletion."""
        return {name: version for name, store in self._stores.items() for version in store.waiting(ref)}

    def release(self, ref: ResourceRef, versions: Mapping[str, Resource | None]) -> None:
        """Let readers see *versions* of *ref*, which has waited; a newer version waits again, after all others."""
        self.intake.forget(ref)
        for name, version in versions.items():
            self._stores[name].release(ref, version)
        if self.waiting(ref):
            self.intake.hold(ref)

    def settle(self) -> None:
        """Take note that readers have seen all that is not waiting."""
        for store in self._stores.values():
            store.settle()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze all of them at the same moment; see `Store.frozen`."""
        with ExitStack() as stack:
            for store in self._stores.values():
                stack.enter_context(store.frozen())
            yield


def single(store: str, keys: Keys, found: Sequence[Resource]) -> Resource | None:
    """Return the only one of *found*, None for none, or raise `AmbiguousLookupError`."""
    if len(found) > 1:
        raise AmbiguousLookupError(store, tuple(keys), tuple(ref_of(resource) for resource in found))
    return found[0] if found else None


def same_content(left: Resource, right: Resource) -> bool:
    """Whether two states of an object differ in nothing but resourceVersion and managedFields; False if too deep."""
    if left is right:
        return True
    try:
        return left.keys() == right.keys() and all(
            unversioned(value) == unversioned(right[field]) if field == "metadata" else value == right[field]
            for field, value in left.items()
        )
    except RecursionError:  # The calls in progress leave fewer levels than decoding had.
        return False


def unversioned(metadata: Any) -> Any:
    """Return *metadata* without what changes whenever anything does."""
    if not isinstance(metadata, dict):
        return metadata
    return {field: value for field, value in metadata.items() if field not in _VERSION_FIELDS}


def _order(ref: ResourceRef) -> tuple[str, str, str]:
    return ref.namespace, ref.name, ref.kind
