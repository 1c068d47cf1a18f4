"""Index of a store: lookup keys, and a table that keeps the objects under each key in order."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import chain, product
from typing import TypeAlias

from haptic_trio.errors import HapticError, Problem, ProblemsError
from haptic_trio.ingress.served import COMPUTED_KEYS
from haptic_trio.jsonpath import JSONPathError, Path, compile_path
from haptic_trio.k8s.resource import Resource, ResourceRef, ref_of, text_of

Keys: TypeAlias = tuple[str, ...]


class TooManyKeysError(HapticError):
    """A look-up has more keys than the store is indexed by; trying again does not help."""

    def __init__(self, store: str, keys: Keys, index_by: Sequence[str]) -> None:
        self.store = store
        self.keys = keys
        self.index_by = tuple(index_by)
        super().__init__(
            f"{store} is indexed by {len(index_by)} keys ({', '.join(index_by)}), looked up by {len(keys)}"
        )


class AmbiguousLookupError(HapticError):
    """One object was asked for and several match; trying again helps once all but one are gone."""

    def __init__(self, store: str, keys: Keys, refs: tuple[ResourceRef, ...]) -> None:
        self.store = store
        self.keys = keys
        self.refs = refs
        shown = ", ".join(str(ref) for ref in refs[:3]) + (", …" if len(refs) > 3 else "")
        super().__init__(f"{len(refs)} objects of {store} match {', '.join(keys) or 'no key'}: {shown}")


def compile_paths(expressions: Sequence[str], field: str, *, plain: bool = False) -> tuple[Path, ...]:
    """Compile all *expressions* of the configuration field *field*, or raise `ProblemsError` with every bad one."""
    paths, problems = [], []
    for position, expression in enumerate(expressions):
        where = f"{field}[{position}]"
        try:
            path = COMPUTED_KEYS.get(expression) or compile_path(expression)
        except JSONPathError as error:
            problems.append(Problem(message=f"{expression!r}: {error.message}", path=where, hint=error.hint))
            continue
        if plain and not path.steps:
            hint = "use names, indexes and wildcards only"
            problems.append(Problem(message=f"{expression!r} is not a plain path", path=where, hint=hint))
        paths.append(path)
    if problems:
        raise ProblemsError(problems)
    return tuple(paths)


class KeySchema:
    """Keys of an index, as functions of an object.

    A path may yield several values; the object is then found under each.
    Where a path yields none (or null), the object is found under the keys
    of the paths before it and no further.
    """

    def __init__(self, index_by: Sequence[str]) -> None:
        """Raises `ProblemsError` for invalid JSONPath expressions."""
        self.index_by = tuple(index_by)
        self._paths = compile_paths(index_by, "indexBy")

    def prefixes(self, resource: Resource) -> tuple[Keys, ...]:
        """Return each key prefix that *resource* is found under, the empty one excluded, none twice."""
        columns: list[list[str]] = []
        is_single = True
        for path in self._paths:
            value = path.first(resource) if path.names else None
            if type(value) is str:
                columns.append([value])
                continue
            texts = dict.fromkeys(text_of(value) for value in path.find(resource) if value is not None)
            if not texts:
                break
            columns.append(list(texts))
            is_single = is_single and len(texts) == 1
        if is_single:
            # Nearly every object.
            keys = tuple([column[0] for column in columns])
            return (keys,) if len(keys) == 1 else tuple([keys[:depth] for depth in range(1, len(keys) + 1)])
        return tuple(chain.from_iterable(product(*columns[:depth]) for depth in range(1, len(columns) + 1)))

    def needs_only(self, field: str) -> bool:
        """Whether an object's top-level *field* is enough to find its prefixes."""
        return all(path.steps is not None and path.steps[:1] == (field,) for path in self._paths)

    def lookup_keys(self, store: str, keys: Sequence[object]) -> Keys:
        """Return *keys* as texts, or raise `TooManyKeysError`."""
        texts = tuple([key if type(key) is str else text_of(key) for key in keys])
        if len(texts) > len(self.index_by):
            raise TooManyKeysError(store, texts, self.index_by)
        return texts


class Table:
    """Objects of one kind in order of namespace and name, as a whole and under each key prefix."""

    def __init__(self, schema: KeySchema) -> None:
        self._schema = schema
        self._all = _Bucket()
        # Most keys are those of one object: a tuple of it is a fifth of a bucket.
        self._buckets: dict[Keys, _Bucket | tuple[Resource]] = {}
        self._objects: dict[ResourceRef, Resource] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def copied(self) -> "Table":
        """Return a table of the same objects, which changes by itself."""
        copy = Table(self._schema)
        copy._all = self._all.copied()
        # A copy of a dictionary hashes no key again, unlike a comprehension.
        copy._buckets = dict(self._buckets)
        for keys, bucket in self._buckets.items():
            if not isinstance(bucket, tuple):
                copy._buckets[keys] = bucket.copied()
        copy._objects = dict(self._objects)
        return copy

    def refs(self) -> Iterator[ResourceRef]:
        """Yield the reference of every object."""
        return iter(self._objects)

    def by_ref(self, ref: ResourceRef) -> Resource | None:
        """Return the object *ref*, or None."""
        return self._objects.get(ref)

    def put(self, ref: ResourceRef, resource: Resource) -> tuple[Keys, ...]:
        """Insert *resource*, in place of what is there; return the key prefixes that the former and this one have."""
        former = self._objects.get(ref)
        prefixes = self._schema.prefixes(resource)
        # Objects do not change, so the prefixes of the former one need not be kept.
        before = prefixes if former is None else self._schema.prefixes(former)
        gone = tuple(set(before).difference(prefixes)) if before != prefixes else ()
        for prefix in gone:
            self._drop(prefix, ref)
        self._objects[ref] = resource
        self._all.put(ref, resource)
        for prefix in prefixes:
            bucket = self._buckets.get(prefix)
            if bucket is None or (isinstance(bucket, tuple) and ref_of(bucket[0]) == ref):
                self._buckets[prefix] = (resource,)
                continue
            if isinstance(bucket, tuple):
                several = self._buckets[prefix] = _Bucket()
                several.put(ref_of(bucket[0]), bucket[0])
                bucket = several
            bucket.put(ref, resource)
        return gone + prefixes

    def remove(self, ref: ResourceRef) -> tuple[Keys, ...]:
        """Take the object *ref* out; it must be there. Return the key prefixes that it had."""
        prefixes = self._schema.prefixes(self._objects.pop(ref))
        self._all.remove(ref)
        for prefix in prefixes:
            self._drop(prefix, ref)
        return prefixes

    def get(self, keys: Keys) -> tuple[Resource, ...]:
        """Return the objects below *keys*, in order; the same tuple until one of them changes."""
        bucket = self._buckets.get(keys, ()) if keys else self._all
        return bucket if isinstance(bucket, tuple) else bucket.snapshot()

    def has(self, keys: Keys) -> bool:
        """Whether there is an object below *keys*."""
        return keys in self._buckets if keys else bool(self._objects)

    def _drop(self, prefix: Keys, ref: ResourceRef) -> None:
        bucket = self._buckets[prefix]
        if isinstance(bucket, _Bucket):
            bucket.remove(ref)
            if bucket.refs:
                return
        del self._buckets[prefix]


class _Bucket:
    """Parallel lists in order: a look-up for writing is a bisection, a snapshot is one copy of references."""

    __slots__ = ("_objects", "_snapshot", "refs")

    def __init__(self) -> None:
        self.refs: list[ResourceRef] = []
        self._objects: list[Resource] = []
        self._snapshot: tuple[Resource, ...] | None = None

    def copied(self) -> "_Bucket":
        copy = _Bucket()
        copy.refs, copy._objects, copy._snapshot = list(self.refs), list(self._objects), self._snapshot
        return copy

    def put(self, ref: ResourceRef, resource: Resource) -> None:
        # A list arrives in order.
        position = len(self.refs) if not self.refs or self.refs[-1] < ref else bisect_left(self.refs, ref)
        if position < len(self.refs) and self.refs[position] == ref:
            self._objects[position] = resource
        else:
            self.refs.insert(position, ref)
            self._objects.insert(position, resource)
        self._snapshot = None

    def remove(self, ref: ResourceRef) -> None:
        position = bisect_left(self.refs, ref)
        del self.refs[position], self._objects[position]
        self._snapshot = None

    def snapshot(self) -> tuple[Resource, ...]:
        snapshot = self._snapshot
        if snapshot is None:
            snapshot = self._snapshot = tuple(self._objects)
        return snapshot
