"""Routes that are attached to listeners."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haptic_trio.gateway.routes.attached import AttachedRoutes
from haptic_trio.gateway.routes.kinds import GRPC_ROUTE, HTTP_ROUTE
from haptic_trio.k8s.resource import Resource, ref_of
from haptic_trio.k8s.store import Stores
from tests.gateway.objects import CONTROLLER, gateway, gateway_class, route, rule, stores_of

_KINDS = {kind.name: kind for kind in (HTTP_ROUTE, GRPC_ROUTE)}


def change(stores: Stores, found: Resource, *, is_gone: bool) -> None:
    """Have *found*, a route, in the stores of its kind, or have it there no more."""
    kind = _KINDS[found["kind"]]
    names = (kind.store, kind.by_gateway, kind.by_host, kind.of_any_host, kind.without_host, kind.without_path)
    for name in names:
        if is_gone:
            stores[name].delete(ref_of(found))
        else:
            stores[name].upsert(found)


_ROUTES = st.builds(
    lambda kind, name, parent, host, created: route(
        name, rule(), kind=kind, parents=[{"name": parent}], hostnames=[host], created=created
    ),
    st.sampled_from(sorted(_KINDS)),
    st.sampled_from("abc"),
    st.sampled_from(["gw", "other"]),
    st.sampled_from(["a.test", "b.test", "*.test"]),
    st.sampled_from("123"),
)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(st.tuples(_ROUTES, st.booleans()), max_size=12))
def test_incremental_counts_equal_the_counts_of_a_new_instance(changes: list[tuple[Resource, bool]]) -> None:
    stores = stores_of(gateway_class(), gateway(), gateway("other"))
    attached = AttachedRoutes(stores, CONTROLLER)

    for found, is_gone in changes:
        change(stores, found, is_gone=is_gone)
        for owner in (gateway(), gateway("other")):
            assert attached.counts(owner) == AttachedRoutes(stores, CONTROLLER).counts(owner)


def test_counts_follow_what_a_listener_allows() -> None:
    stores = stores_of(gateway_class(), gateway(), route("a", rule(), hostnames=["a.test"]))
    attached = AttachedRoutes(stores, CONTROLLER)
    assert attached.counts(gateway()) == {"web/gw/http": 1}

    elsewhere = gateway("gw", {"name": "http", "port": 80, "protocol": "HTTP", "hostname": "b.test"})
    stores["gateways"].upsert(elsewhere)

    assert attached.counts(elsewhere) == {}


def test_nothing_is_kept_of_gateways_that_are_gone() -> None:
    stores = stores_of(gateway_class())
    attached = AttachedRoutes(stores, CONTROLLER)

    for number in range(50):
        one = gateway(f"gw-{number}")
        stores["gateways"].upsert(one)
        attached.counts(one)
        stores["gateways"].delete(ref_of(one))

    assert len(attached._known) < 50
