"""What templates see of the cluster: look-ups by name of a watched kind."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Any, Protocol

from haptic_trio.templating.run import current_run


class Lookup(Protocol):
    """A store as templates may use it."""

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

    __slots__ = ("_lookup", "name")

    def __init__(self, lookup: Lookup, name: str = "") -> None:
        self._lookup = lookup
        self.name = name

    def peek(self) -> Sequence[Any]:
        """Return all objects without a record of it; for the engine, not for templates."""
        return self._lookup.list()

    def list(self) -> Sequence[Any]:
        """Return all objects, in a stable order."""
        current_run().ask(("get", self.name))
        return self._lookup.list()

    def get(self, *keys: Any) -> Sequence[Any]:
        """Return the objects whose first index keys are *keys*."""
        texts = tuple(map(str, keys))
        current_run().ask(("get", self.name, *texts))
        return self._lookup.get(*texts)

    def has(self, *keys: Any) -> bool:
        """Whether there is an object whose first index keys are *keys*; what it holds is not looked at."""
        texts = tuple(map(str, keys))
        current_run().ask(("has", self.name, *texts))
        return bool(self._lookup.get(*texts))

    def get_single(self, *keys: Any) -> Any | None:
        """Return the one object with *keys*; None without one."""
        texts = tuple(map(str, keys))
        current_run().ask(("get", self.name, *texts))
        return self._lookup.get_single(*texts)


@contextmanager
def showing(view: ResourceView, lookup: Lookup) -> Iterator[None]:
    """Have *view* show *lookup* for a while; who has asked before is not told."""
    # No method: templates could call it.
    shown, view._lookup = view._lookup, lookup  # noqa: SLF001  the two are one piece
    try:
        yield
    finally:
        view._lookup = shown  # noqa: SLF001


class ResourcesView(Mapping[str, ResourceView]):
    """All kinds by their configured names: `resources.ingresses`, `resources["ingresses"]`."""

    __slots__ = ("_used", "_views")

    def __init__(self, lookups: Mapping[str, Lookup]) -> None:
        self._views = {name: ResourceView(lookup, name) for name, lookup in lookups.items()}
        self._used: set[str] = set()

    def __getitem__(self, name: str) -> ResourceView:
        view = self._views[name]
        self._used.add(name)
        return view

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)


def used_kinds(views: ResourcesView) -> AbstractSet[str]:
    """Return the names of the kinds that anything has been asked of so far; it grows while something is rendered."""
    # No method: templates could call it.
    return views._used  # noqa: SLF001  the two are one piece
