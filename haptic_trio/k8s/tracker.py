"""Tracker: what has been written to a store, for a reader that looks up again what may have another answer."""

from collections.abc import Iterable, Mapping

from haptic_trio.k8s.index import Keys
from haptic_trio.k8s.resource import ResourceRef


class Tracker:
    """Objects that were written to a store since the last call, each once; call it on the store's side of a freeze."""

    __slots__ = ("__weakref__", "_touched")

    def __init__(self) -> None:
        self._touched: dict[ResourceRef, set[Keys]] = {}

    def note(self, ref: ResourceRef, prefixes: Iterable[Keys]) -> None:
        """Add a change of *ref*, which is or was found under *prefixes*."""
        known = self._touched.get(ref)
        if known is None:
            self._touched[ref] = set(prefixes)
        else:
            known.update(prefixes)

    def touched(self) -> Mapping[ResourceRef, set[Keys]]:
        """Return what `take` would return, and leave it."""
        return self._touched

    def forget(self, ref: ResourceRef) -> None:
        """Drop the changes of *ref*, which were undone."""
        self._touched.pop(ref, None)

    def add(self, other: "Tracker") -> None:
        """Add what *other* has noted."""
        for ref, prefixes in other._touched.items():  # noqa: SLF001  the two are of one class
            self.note(ref, prefixes)

    def take(self) -> dict[ResourceRef, set[Keys]]:
        """Return the objects that came, changed or went since the last call, and the key prefixes of all their states.

        Every look-up whose answer may have changed is by one of these
        prefixes, or by none.
        """
        touched, self._touched = self._touched, {}
        return touched
