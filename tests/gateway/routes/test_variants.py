"""Variants of the backends of a Service: what they cost among routes that may not name it."""

from collections.abc import Iterator, Sequence
from typing import Any, overload

from haptic_trio.gateway.routes.variants import variants_of
from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.store import Store
from tests.gateway.objects import grant, route, rule, service, stores_of

Found = Sequence[Resource]


class Counting(Sequence[Resource]):
    """Objects that a lookup has found; counts how many are looked at."""

    looks = 0

    def __init__(self, found: Found) -> None:
        self._found = found

    def __len__(self) -> int:
        return len(self._found)

    @overload
    def __getitem__(self, index: int) -> Resource: ...
    @overload
    def __getitem__(self, index: slice) -> Found: ...
    def __getitem__(self, index: int | slice) -> Resource | Found:
        if isinstance(index, slice):
            return Counting(self._found[index])
        Counting.looks += 1
        return self._found[index]

    def __iter__(self) -> Iterator[Resource]:
        return map(self.__getitem__, range(len(self)))


class Lookup:
    """A store whose answers count."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, *keys: str) -> Found:
        """Return the objects found under *keys*."""
        return Counting(self._store.get(*keys))


def test_routes_that_may_not_name_a_service_cost_nothing() -> None:
    foreign = rule("/", retry={"attempts": 3})
    foreign["backendRefs"][0]["namespace"] = "web"
    routes = [route(f"r{number}", foreign, namespace="far") for number in range(5_000)]

    def ask(*more: Resource) -> tuple[int, int]:
        stores = stores_of(service(), route("own", rule("/")), *routes, *more)
        lookups: dict[str, Any] = {**stores, "httpRoutesByService": Lookup(stores["httpRoutesByService"])}
        Counting.looks = 0
        return len(variants_of(service(), lookups)), Counting.looks

    count, looks = ask()
    assert count == 1
    assert looks < 200
    assert ask(grant("web", origin="far"))[0] == 2
