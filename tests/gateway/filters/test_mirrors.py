"""A rule with more mirrors than supported is rejected."""

from typing import Any

import pytest

from haptic_trio.gateway.routes.kinds import HTTP_ROUTE
from haptic_trio.gateway.routes.rules import MOST_MIRRORS, UNSUPPORTED, dropped_text, faults_of, served_rules
from tests.gateway.objects import gateway, gateway_class, route, rule, service, stores_of


def _mirrors(count: int) -> list[dict[str, Any]]:
    mirror = {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "app", "port": 80}}}
    return [mirror] * count


def _rule(own: int, *of_backends: int) -> dict[str, Any]:
    backends = [{"name": "app", "port": 80, "filters": _mirrors(count)} for count in of_backends]
    return rule("/mirrored", filters=_mirrors(own), backendRefs=backends)


@pytest.mark.parametrize(
    ("own", "of_backends", "most"), [(5, (0,), 5), (0, (5,), 5), (2, (0, 3), 5), (16, (16, 0), 32)]
)
def test_a_rule_with_more_mirrors_than_are_supported_is_rejected(
    own: int, of_backends: tuple[int, ...], most: int
) -> None:
    one = route("web", rule("/"), _rule(own, *of_backends))
    stores = stores_of(gateway_class(), gateway(), service(), one)

    (fault,) = faults_of(one, HTTP_ROUTE, stores)
    assert (fault.number, fault.reason) == (1, UNSUPPORTED)
    wanted = f"Dropped Rule rules[1]: filters: {most} mirrors for one request; at most {MOST_MIRRORS} are supported"
    assert dropped_text([fault]) == wanted
    assert [served.number for served in served_rules(one, HTTP_ROUTE, stores)] == [0]


@pytest.mark.parametrize(("own", "of_backends"), [(4, (0,)), (2, (2, 2)), (0, (4, 4))])
def test_a_rule_and_a_backend_of_it_have_as_many_mirrors_as_are_supported(
    own: int, of_backends: tuple[int, ...]
) -> None:
    one = route("web", _rule(own, *of_backends))
    assert not faults_of(one, HTTP_ROUTE, stores_of(gateway_class(), gateway(), service(), one))
