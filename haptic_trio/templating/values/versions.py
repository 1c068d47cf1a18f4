"""Mapping with cheap snapshots: a snapshot costs what differs."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Generic, TypeVar, cast
from weakref import ref

K = TypeVar("K")
V = TypeVar("V")

_ABSENT: Final = object()


class Versioned(Generic[K, V]):
    """A mapping that changes. One thread writes; snapshots may be asked from any."""

    __slots__ = ("_now", "_snapshots")

    def __init__(self) -> None:
        self._now: dict[K, V] = {}
        self._snapshots: list[ref[Snapshot[K, V]]] = []

    def __len__(self) -> int:
        return len(self._now)

    def __iter__(self) -> Iterator[K]:
        return iter(self._now)

    def copied(self) -> "Versioned[K, V]":
        """Return a mapping with the values of this moment, which changes by itself."""
        copy: Versioned[K, V] = Versioned()
        copy._now = dict(self._now)
        return copy

    def get(self, key: K) -> V | None:
        """Return the value of *key* now."""
        return self._now.get(key)

    def put(self, key: K, value: V) -> None:
        """Give *key* the value *value*."""
        self._keep(key)
        self._now[key] = value

    def remove(self, key: K) -> None:
        """Remove *key*, if it exists."""
        self._keep(key)
        self._now.pop(key, None)

    def snapshot(self) -> "Snapshot[K, V]":
        """Return the state of this moment, which stays as it is."""
        snapshot = Snapshot(self._now)
        self._snapshots = [ref(snapshot), *(known for known in self._snapshots if known() is not None)]
        return snapshot

    def _keep(self, key: K) -> None:
        for known in self._snapshots:
            snapshot = known()
            if snapshot is not None:
                snapshot.keep(key)


class Snapshot(Mapping[K, V]):
    """One state of a mapping: the newest, but for what has changed since."""

    __slots__ = ("__weakref__", "_former", "_length", "_now")

    def __init__(self, now: Mapping[K, V]) -> None:
        self._now = now
        self._former: dict[K, Any] = {}
        self._length = len(now)

    def keep(self, key: K) -> None:
        """Remember the value of *key*, which is about to change."""
        if key not in self._former:
            self._former[key] = self._now.get(key, _ABSENT)

    def __getitem__(self, key: K) -> V:
        # In this order: what changes in between has been kept before.
        value = self._now.get(key, _ABSENT)
        value = self._former.get(key, value)
        if value is _ABSENT:
            raise KeyError(key)
        return cast("V", value)

    def __iter__(self) -> Iterator[K]:
        # Each copy is atomic, even while the writer changes the mapping; keys changed in between are in both.
        now = list(self._now)
        former = dict(self._former)
        yield from (key for key in now if key not in former)
        yield from (key for key, value in former.items() if value is not _ABSENT)

    def __len__(self) -> int:
        return self._length
