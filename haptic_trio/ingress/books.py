"""Register of the Ingresses that serve a host, updated at the cost of what changes."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from haptic_trio.chunked import changed_items
from haptic_trio.gateway.objects import Resource
from haptic_trio.ingress.classes import class_of
from haptic_trio.ingress.ordered import ByNamespace, put, put_under
from haptic_trio.ingress.served import NONE, Age, Named, Served, Vendors, served_by

_Group: TypeAlias = tuple[str, tuple[Named, ...]]
_FEW: Final = 16


class Contested(NamedTuple):
    """A path that several namespaces have: the oldest Ingress with it, and the oldest of another namespace."""

    holder: Age
    rival: Age


class HostBook:
    """The Ingresses that serve one host, in order of age."""

    __slots__ = ("_claims", "_clients", "_groups", "_host", "_paths", "contests", "requests")

    def __init__(self, host: str) -> None:
        self._host = host
        self._claims = ByNamespace[Age]()
        self._paths: dict[str, ByNamespace[Age]] = {}
        self._groups: dict[_Group, list[Age]] = {}
        self._clients: dict[str, list[Age]] = {}
        self.requests: list[Age] = []
        """The Ingresses that serve requests for the host."""
        self.contests: dict[str, Contested] = {}

    @property
    def firsts(self) -> list[Age]:
        """The oldest Ingress of each namespace, in order of age."""
        return self._claims.firsts

    def change(self, served: Served, *, is_there: bool) -> None:
        """Add *served*, an Ingress that serves the host, or remove it."""
        age, namespace = served.age, served.age[1]
        self._claims.change(namespace, age, is_there=is_there)
        paths = served.routes.get(self._host)
        if paths is not None:
            if not served.passes_through:
                put(self.requests, age, is_there=is_there)
            if served.clients:
                put_under(self._clients, namespace, age, is_there=is_there)
            for path in paths:
                self._change_path(path, age, is_there=is_there)
        secrets = served.certificates.get(self._host)
        if secrets:
            put_under(self._groups, (namespace, secrets), age, is_there=is_there)

    def _change_path(self, path: str, age: Age, *, is_there: bool) -> None:
        claims = self._paths.setdefault(path, ByNamespace())
        claims.change(age[1], age, is_there=is_there)
        firsts = claims.firsts
        if len(firsts) > 1:
            self.contests[path] = Contested(firsts[0], firsts[1])
        else:
            self.contests.pop(path, None)
            if not firsts:
                del self._paths[path]

    def secrets(self) -> tuple[list[tuple[Age, tuple[Named, ...]]], Age | None]:
        """Return the Ingresses with Secrets in the namespace of the oldest one, and the oldest with other Secrets."""
        if not self._groups:
            return [], None
        namespace = self.firsts[0][1]
        own = sorted((ages[0], group[1]) for group, ages in self._groups.items() if group[0] == namespace)
        first = (namespace, own[0][1]) if own else None
        rival = min((ages[0] for group, ages in self._groups.items() if group != first), default=None)
        return own, rival

    def clients(self) -> Age | None:
        """Return the oldest Ingress in the owner's namespace that requires client certificates."""
        return next(iter(self._clients.get(self.firsts[0][1], ())), None) if self.firsts else None


class Reader:
    """Finds added and removed Ingresses between two reads of a store."""

    __slots__ = ("_classes", "_counted", "_found", "_vendors")

    def __init__(self, vendors: Vendors, classes: frozenset[str]) -> None:
        self._vendors = vendors
        self._classes = classes
        self._counted: Counter[str] = Counter()
        self._found: Sequence[Resource] = ()

    @property
    def others(self) -> frozenset[str]:
        """The classes of the Ingresses that do not count."""
        return frozenset(self._counted) if self._counted else NONE

    def read(self, found: Sequence[Resource], change: Callable[..., Any]) -> None:
        """Call *change* with each added or removed Ingress; *found* has all current ones."""
        gone, come = changed_items(self._found, found)
        self._found = found
        for resources, is_there in ((gone, False), (come, True)):
            for resource in resources:
                name = class_of(resource)
                if name in self._classes:
                    change(served_by(resource, self._vendors), is_there=is_there)
                elif is_there:
                    self._counted[name] += 1
                else:
                    self._counted[name] -= 1
                    self._counted = +self._counted

    @property
    def is_small(self) -> bool:
        """Whether reading all Ingresses again is cheap."""
        return len(self._found) < _FEW
