"""Bounded cache of fetched objects, with a time limit after the last use."""

from haptic_trio.k8s.resource import Resource, ResourceRef, version_of


class _Entry:
    __slots__ = ("is_used", "resource", "used_at", "version")

    def __init__(self, resource: Resource, version: str, now: float) -> None:
        self.resource = resource
        self.version = version
        self.used_at = now
        self.is_used = True


class ObjectCache:
    """A cache that drops objects only in `trim`, so that a render keeps the objects that it has fetched until its end.

    `get` may be called from other threads: it changes nothing but a flag of an object.
    """

    def __init__(self, size: int, ttl: float) -> None:
        """*ttl* is in seconds."""
        self._size = size
        self._ttl = ttl
        # Least recently used first, except for objects used since the last `trim`.
        self._entries: dict[ResourceRef, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def next_expiry(self) -> float | None:
        """When the next object expires; None if the cache is empty."""
        first = next(iter(self._entries.values()), None)
        return first.used_at + self._ttl if first is not None else None

    def get(self, ref: ResourceRef, version: str) -> Resource | None:
        """Return the object *ref*, if it was put for *version*."""
        entry = self._entries.get(ref)
        if entry is None or entry.version != version:
            return None
        entry.is_used = True
        return entry.resource

    def put(self, ref: ResourceRef, resource: Resource, version: str, now: float) -> None:
        """Keep *resource* as *version* of *ref*."""
        self._entries.pop(ref, None)
        self._entries[ref] = _Entry(resource, version, now)

    def follow(self, ref: ResourceRef, version: str | None) -> None:
        """Drop *ref* unless it is held in *version*; None: it was deleted."""
        entry = self._entries.get(ref)
        if entry is not None and (entry.version != version or not version):
            if version and version_of(entry.resource) == version:
                # The fetched object was newer than requested, and the watch has caught up.
                entry.version = version
            else:
                del self._entries[ref]

    def trim(self, now: float) -> None:
        """Drop objects that have expired at *now*, and the least recently used ones beyond the size."""
        for ref in [ref for ref, entry in self._entries.items() if entry.is_used]:
            entry = self._entries.pop(ref)
            entry.is_used, entry.used_at = False, now
            self._entries[ref] = entry
        excess = len(self._entries) - self._size
        gone = [
            ref
            for number, (ref, entry) in enumerate(self._entries.items())
            if number < excess or entry.used_at + self._ttl <= now
        ]
        for ref in gone:
            del self._entries[ref]
