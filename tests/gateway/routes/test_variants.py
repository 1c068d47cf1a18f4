"""Variants of the backends of a Service: their names, and their cost among routes that may not name the Service."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, overload

import pytest

from haptic_trio.gateway.extensions import backend_suffix
from haptic_trio.gateway.listeners.clients import certificate_suffix
from haptic_trio.gateway.objects import GatewayObjectError, hash_of
from haptic_trio.gateway.routes.backends import Cookie, Retry, backend_name, variant_name
from haptic_trio.gateway.routes.variants import variants_of
from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.store import Store
from tests.gateway.objects import gateway, grant, made, route, rule, service, stores_of
from tests.gateway.serving import Authority, secret

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


def in_evil(resource: Resource) -> Resource:
    return {**resource, "metadata": {**resource["metadata"], "namespace": "evil"}}


def test_no_session_name_makes_the_name_of_a_backend_with_a_client_certificate() -> None:
    presenting = in_evil(gateway("gw", tls={"backend": {"clientCertificateRef": {"name": "pair"}}}))
    end = certificate_suffix(presenting)
    # A session name has no colon.
    names = {"x", "x_cert_evil_gw", "_cert_evil_gw", f"x{end.replace(':', '_')}", end.replace(":", "_")}
    sessions = [rule(f"/{name}", sessionPersistence={"sessionName": name}) for name in sorted(names)]
    found = stores_of(
        service(),
        presenting,
        in_evil(secret("pair", Authority().issue("gw.test"))),
        route("own", rule("/"), *sessions, parents=[{"name": "gw", "namespace": "evil"}]),
    )

    base = backend_name("web", "app", 80)
    backends = [variant_name(base, one.suffix) + one.end for one in variants_of(service(), found)]

    assert len(backends) == 2 * (1 + len(sessions))
    assert len(set(backends)) == len(backends)


def test_suffixes_of_different_kinds_make_different_names() -> None:
    words = ["", "x", "h", "retry1_", "cookie0_x", "_cert_evil_gw", "tls_evil_gw", "_tls_evil_gw", hash_of("x", 32)]
    cookies = [None, *(Cookie(f"{word}{more}") for word in words for more in ("", "_tls_a_b", "x" * 100))]
    retries = [Retry(1, codes, is_set=is_set, cookie=cookie).suffix
               for codes, is_set, cookie in product([(), (500, 503)], [False, True], cookies)]  # fmt: skip
    routes = [made("HTTPRoute", name, namespace=namespace) for namespace, name in [("a", "b"), ("evil", "gw")]]
    filters = ["", *(backend_suffix(one, "HTTPRoute", names) for one in routes for names in (["x"], ["x", "y"]))]
    ends = ["", *(certificate_suffix(in_evil(gateway(name))) for name in ("gw", "a", "h", "g" * 100, hash_of("x", 32)))]
    services = [("web", "app"), ("web", "a" * 63), ("n" * 63, "a" * 63)]

    parts = set(product(services, ["", "_tcp", "_h2"], retries, filters, ends))
    made_names = {variant_name(backend_name(*one, 80), kind + retry + more) + end
                  for one, kind, retry, more, end in parts}  # fmt: skip

    assert len(made_names) == len(parts)


def test_a_route_whose_name_could_be_that_of_another_with_its_namespace_has_no_backends_of_its_own() -> None:
    with pytest.raises(GatewayObjectError, match="invalid name"):
        backend_suffix(made("HTTPRoute", "b_c", namespace="a"), "HTTPRoute", ["x"])
