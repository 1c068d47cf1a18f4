"""Of many routes with one host and path, the oldest of each namespace count, and few changes affect the others."""

from collections.abc import Mapping
from typing import Any

from haptic_trio.gateway.routes.precedence.claimants import MOST_ROUTES, Names, WantsOldest, counted, few
from haptic_trio.k8s.resource import Resource
from tests.gateway.objects import route, rule


def aged(number: int, *, namespace: str = "crowd", path: str = "/") -> Resource:
    """Return a route; the greater *number* the younger."""
    created = f"2026-01-01T{number // 3600:02d}:{number // 60 % 60:02d}:{number % 60:02d}Z"
    # The order of names is not that of ages.
    return route(f"r{number * 7919 % 10_000:04}", rule(path), namespace=namespace, created=created)


def found(*routes: Resource) -> tuple[Resource, ...]:
    """Return *routes* as a lookup finds them."""
    return tuple(sorted(routes, key=lambda one: (one["metadata"]["namespace"], one["metadata"]["name"])))


def name(one: Mapping[str, Any]) -> str:
    """Return the name of *one*."""
    return str(one["metadata"]["name"])


CROWD = [aged(number) for number in range(MOST_ROUTES + 44)]


def test_the_oldest_of_each_namespace_count() -> None:
    others = [aged(number, namespace="a") for number in range(400, 403)]

    assert [name(one) for one in counted(found(*CROWD, *others))] == [
        name(one) for one in [*CROWD[:MOST_ROUTES], *others]
    ]


def test_all_of_a_few_routes_count() -> None:
    routes = few(found(*CROWD[:32]))

    assert routes is not None
    assert [name(one) for one in routes] == [name(one) for one in CROWD[:32]]
    assert few(found(*CROWD[:33])) is None


def test_each_route_finds_its_name_if_it_counts() -> None:
    other = aged(1, namespace="a")
    routes = found(*CROWD, other)

    for one in CROWD[:MOST_ROUTES]:
        assert name(one) in Names.around(one)(routes)[1]
    for one in CROWD[MOST_ROUTES:]:
        is_full, names = Names.around(one)(routes)
        assert is_full
        assert name(one) not in names
    assert Names.around(other)(routes) == (False, frozenset({name(other)}))


def test_who_follows_a_deleted_route_concerns_few_others() -> None:
    before, after = found(*CROWD), found(*CROWD[1:])

    changed = [one for one in CROWD[1:] if Names.around(one)(before) != Names.around(one)(after)]

    assert name(CROWD[MOST_ROUTES]) in map(name, changed)
    assert len(changed) < len(CROWD) / 8


def test_conditions_and_backends_of_the_oldest_concern_no_other() -> None:
    def change(**match: object) -> Resource:
        path = {"type": "PathPrefix", "value": "/cart"}
        changed = rule(matches=[{"path": path, **match}], to=f"to-{len(match)}")
        return {**CROWD[0], "spec": {**CROWD[0]["spec"], "rules": [changed]}}

    oldest = [
        WantsOldest("HTTPRoute", normalizes=True)(found(one, *CROWD[1:]))
        for one in (
            change(),
            change(method="GET"),
            change(headers=[{"name": "a", "value": "b"}]),
            aged(0, path="/other"),
        )
    ]

    assert oldest[0] == oldest[1] == oldest[2] != oldest[3]
    assert oldest[0] is not None
    assert oldest[0].paths == {("PathPrefix", "/cart")}
