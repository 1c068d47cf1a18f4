"""What templates see of the cluster: look-ups by name of a watched kind."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol


class Lookup(Protocol):
    """A store as templates may use it; whoever implements it may record each call."""

    def list(self) -> Sequence[Any]:
        """Return all objects, in a stable order."""
        ...

    def get(self, *keys: str) -> Sequence[Any]:
        """Return the objects whose first index keys are *keys*."""
        ...

    def get_single(self, *keys: str) -> Any | None:
        """Return the one object with *keys*; None without one."""
        ...


class ResourceView:
    """One kind of object: `resources.services.get(namespace, name)`."""

    __slots__ = ("_lookup",)

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def list(self) -> Sequence[Any]:
        """Return all objects, in a stable order."""
        return self._lookup.list()

    def get(self, *keys: Any) -> Sequence[Any]:
        """Return the objects whose first index keys are *keys*."""
        return self._lookup.get(*map(str, keys))

    def get_single(self, *keys: Any) -> Any | None:
        """Return the one object with *keys*; None without one."""
        return self._lookup.get_single(*map(str, keys))


class ResourcesView(Mapping[str, ResourceView]):
    """All kinds by their configured names: `resources.ingresses`, `resources["ingresses"]`."""

    __slots__ = ("_views",)

    def __init__(self, lookups: Mapping[str, Lookup]) -> None:
        self._views = {name: ResourceView(lookup) for name, lookup in lookups.items()}

    def __getitem__(self, name: str) -> ResourceView:
        return self._views[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)
