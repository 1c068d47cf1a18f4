"""Objects that cannot be rendered, and what stands in for them.

An object whose data a template or HAProxy refuses is held until its
resourceVersion changes. Meanwhile its last version that was part of a valid
configuration is rendered instead; without one, or when that is refused too,
the object is left out. Everybody else is served.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from haptic_trio.errors import Problem
from haptic_trio.k8s.resource import Resource, ResourceRef, ref_of, version_of

Key = tuple[str, ResourceRef]


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """One object in quarantine."""

    store: str
    ref: ResourceRef
    version: str
    """resourceVersion that was refused."""
    fallback: Resource | None
    """What is rendered instead; None leaves the object out."""
    problem: Problem


class Quarantine:
    """The objects that are held now."""

    def __init__(self) -> None:
        self._held: dict[Key, Held] = {}
        self._good: Mapping[str, Sequence[Resource]] = {}

    @property
    def held(self) -> tuple[Held, ...]:
        """What is held now, in the order in which it was found."""
        return tuple(self._held.values())

    def count(self) -> int:
        """Return how many objects are held, in however many stores each is."""
        return len({ref for _store, ref in self._held})

    def keep_good(self, good: Mapping[str, Sequence[Resource]]) -> None:
        """Remember the objects, by store, that the newest valid configuration was rendered from."""
        self._good = good

    def hold(self, store: str, ref: ResourceRef, current: Resource | None, problem: Problem) -> Held | None:
        """Hold the object; return None when nothing more can be done about it.

        *current* is what the store has under *ref*. The first time the last
        good version stands in, if it differs from the refused one; the
        second time nothing does.
        """
        key = (store, ref)
        before = self._held.get(key)
        if current is None or (before is not None and before.fallback is None):
            return None
        fallback = None
        if before is None:
            # Failures are rare; keeping an index by reference for them is not worth it.
            good = next((resource for resource in self._good.get(store, ()) if ref_of(resource) == ref), None)
            fallback = good if good is not None and version_of(good) != version_of(current) else None
        held = Held(store=store, ref=ref, version=version_of(current), fallback=fallback, problem=problem)
        self._held[key] = held
        return held

    def release_changed(self, current: Callable[[str, ResourceRef], Resource | None]) -> tuple[Held, ...]:
        """Release, and return, what has another resourceVersion now or is gone."""
        released = tuple(
            held
            for held in self._held.values()
            if (now := current(held.store, held.ref)) is None or version_of(now) != held.version
        )
        for held in released:
            del self._held[held.store, held.ref]
        return released

    def replacements(self, store: str) -> dict[ResourceRef, Resource | None]:
        """Return what stands in for the held objects of *store*."""
        return {held.ref: held.fallback for held in self._held.values() if held.store == store}
