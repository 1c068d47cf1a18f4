"""Overlay of a store with some objects replaced or hidden, for dry runs."""

from bisect import insort
from collections.abc import Mapping, Sequence
from operator import is_

from haptic_trio.k8s.index import Keys, KeySchema, Table
from haptic_trio.k8s.resource import Resource, ResourceRef, ref_of
from haptic_trio.k8s.store import ReadableStore, same_content, single
from haptic_trio.k8s.tracker import Tracker


class Overlay:
    """Reads as *base* would if *replacements* had been written to it; None leaves an object out.

    Follows later changes of *base*. Making one costs nothing that grows with
    *base*, and neither do look-ups that no replacement touches.
    """

    def __init__(self, base: ReadableStore, replacements: Mapping[ResourceRef, Resource | None]) -> None:
        """Raises `ValueError` for a replacement that stands under another object's reference."""
        self._base = base
        self._replacements: dict[ResourceRef, Resource | None] = {}
        for ref, resource in replacements.items():
            if resource is not None and ref_of(resource) != ref:
                raise ValueError(f"{ref_of(resource)} cannot replace {ref}")
            self._replacements[ref] = None if resource is None else base.without_ignored(resource)
        self._seen = -1
        self._replaced: list[Resource | None] = []
        """The objects of the base under the references of the replacements, when these were last worked out."""
        self._effective: dict[ResourceRef, Resource | None] = {}
        self._table = Table(base.schema)
        self._touched: frozenset[Keys] = frozenset()
        self._merged: dict[Keys, tuple[Resource, ...]] = {}

    @property
    def name(self) -> str:
        """See `ReadableStore.name`."""
        return self._base.name

    @property
    def schema(self) -> KeySchema:
        """See `ReadableStore.schema`."""
        return self._base.schema

    @property
    def version(self) -> int:
        """See `ReadableStore.version`; that of the base."""
        return self._base.version

    @property
    def differences(self) -> Mapping[ResourceRef, Resource | None]:
        """The replacements that change what is read: each object as it reads here, None if it is left out."""
        self._catch_up()
        return self._effective

    @property
    def touched(self) -> frozenset[Keys]:
        """The look-ups that the base may answer otherwise; none where there are no differences."""
        self._catch_up()
        return self._touched

    def __len__(self) -> int:
        self._catch_up()
        hidden = sum(self._base.by_ref(ref) is not None for ref in self._effective)
        return len(self._base) - hidden + len(self._table)

    def list(self) -> Sequence[Resource]:
        """See `ReadableStore.list`."""
        return self._find(())

    def get(self, *keys: str) -> Sequence[Resource]:
        """See `ReadableStore.get`."""
        return self._find(self.schema.lookup_keys(self.name, keys))

    def get_single(self, *keys: str) -> Resource | None:
        """See `ReadableStore.get_single`."""
        return single(self.name, keys, self.get(*keys))

    def by_ref(self, ref: ResourceRef) -> Resource | None:
        """See `ReadableStore.by_ref`."""
        self._catch_up()
        return self._effective[ref] if ref in self._effective else self._base.by_ref(ref)

    def without_ignored(self, resource: Resource) -> Resource:
        """See `ReadableStore.without_ignored`."""
        return self._base.without_ignored(resource)

    def track(self) -> Tracker:
        """See `ReadableStore.track`; names changes of the base that a replacement hides, too."""
        return self._base.track()

    def _find(self, keys: Keys) -> Sequence[Resource]:
        self._catch_up()
        below = self._base.get(*keys)
        if keys not in self._touched:
            return below
        merged = self._merged.get(keys)
        if merged is None:
            found = [resource for resource in below if ref_of(resource) not in self._effective]
            for resource in self._table.get(keys):
                insort(found, resource, key=ref_of)
            merged = self._merged[keys] = tuple(found)
        return merged

    def _catch_up(self) -> None:
        """Work out again what the replacements touch, if the base has changed since."""
        version = self._base.version
        if version == self._seen:
            return
        before, self._replaced = self._replaced, [self._base.by_ref(ref) for ref in self._replacements]
        if self._seen >= 0 and all(map(is_, before, self._replaced)):
            # Objects beside the replacements have changed, as in most cases.
            self._merged, self._seen = {}, version
            return
        effective: dict[ResourceRef, Resource | None] = {}
        table = Table(self.schema)
        touched: set[Keys] = set()
        for (ref, replacement), current in zip(self._replacements.items(), self._replaced, strict=True):
            if current is None and replacement is None:
                continue
            if replacement is not None and _is_same(current, replacement):
                continue
            effective[ref] = replacement
            touched.add(())
            if current is not None:
                touched.update(self.schema.prefixes(current))
            if replacement is not None:
                touched.update(self.schema.prefixes(replacement))
                table.put(ref, replacement)
        self._effective, self._table, self._touched = effective, table, frozenset(touched)
        self._merged = {}
        self._seen = version


def _is_same(current: Resource | None, replacement: Resource) -> bool:
    # Of what stands for an object in a store on demand nothing can be compared.
    return type(current) is dict and same_content(current, replacement)
