"""A query returns the contenders of a domain, the oldest first."""

from typing import Any

import pytest

from haptic_trio.gateway.routes.precedence import contenders
from haptic_trio.gateway.routes.precedence.contenders import Oldest, Owner, contender_of
from haptic_trio.k8s.resource import Resource
from tests.gateway.objects import route

OWNER: Owner = ("Gateway", "web", "gw")
LAST: tuple[Any, ...] = ("~",)


def named(*wanted: Resource, **question: Any) -> list[str]:
    """Return the names of the contenders among *wanted*."""
    asked = Oldest(**{"owner": OWNER, "before": LAST, "domain": "", "count": 100, **question})
    return [found.name for found in asked(wanted)]


def test_the_oldest_are_first_and_none_is_too_young() -> None:
    routes = [route(f"r{age}", created=str(age), hostnames=[f"h{age}.test"]) for age in (3, 1, 2, 4)]

    assert named(*routes, count=2) == ["r1", "r2"]
    assert named(*routes, before=contender_of(routes[0], "HTTPRoute", OWNER).order) == ["r1", "r2"]


def test_one_contender_stands_for_all_routes_of_a_namespace_with_the_same_hosts() -> None:
    routes = [route(name, created=name, hostnames=["a.test"]) for name in "abc"]

    assert named(*routes, route("far", namespace="far", hostnames=["a.test"], parents=[])) == ["a"]


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        ("*.a.test", ["below", "own", "wider", "any"]),
        ("*.test", ["itself", "below", "own", "wider", "any", "other"]),
        ("*.example", ["any"]),
        ("a.test", ["itself", "wider", "any"]),
    ],
)
def test_a_domain_finds_what_is_below_it_and_what_covers_it(domain: str, expected: list[str]) -> None:
    hosts = {"itself": ["a.test"], "below": ["b.a.test"], "own": ["*.a.test"], "wider": ["*.test"], "any": []}
    routes = [
        route(name, created=str(age), hostnames=names)
        for age, (name, names) in enumerate({**hosts, "other": ["ba.test"], "bad": ["-.a.test"]}.items())
    ]

    assert named(*routes, domain=domain) == expected


@pytest.mark.parametrize(
    ("parent", "is_found"),
    [
        ({"name": "gw"}, True),
        ({"name": "gw", "sectionName": "http", "port": 80}, True),
        ({"name": "gw", "sectionName": "https"}, False),
        ({"name": "gw", "port": 81}, False),
        ({"name": "gw", "namespace": "far"}, False),
        ({"name": "gw", "kind": "ListenerSet"}, False),
        ({"name": "gw", "group": "other.example"}, False),
        ("gw", False),
    ],
)
@pytest.mark.parametrize("others", [0, 40])
def test_a_contender_refers_to_the_listener(parent: Any, is_found: bool, others: int) -> None:
    strangers = [route(f"s{i}", parents=[{"name": "other"}]) for i in range(others)]

    found = named(route("r", parents=[parent]), *strangers, listener=("http", 80))
    assert found == (["r"] if is_found else [])


def test_many_routes_are_read_once_for_all_listeners_of_an_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def counted(one: Resource, kind: str, owner: Owner) -> Any:
        read.append(one["metadata"]["name"])
        return contender_of(one, kind, owner)

    monkeypatch.setattr(contenders, "contender_of", counted)
    routes = tuple(
        route(f"r{i:02}", created=f"{i:02}", parents=[{"name": "gw", "sectionName": f"l{i % 8}"}], hostnames=["a.test"])
        for i in range(64)
    )

    for number in range(8):
        asked = Oldest(owner=OWNER, before=LAST, domain="", count=8, listener=(f"l{number}", 80))
        assert [one.name for one in asked(routes)] == [f"r{number:02}"]
        without = Oldest(
            owner=OWNER, before=LAST, domain="", count=8, listener=(f"l{number}", 80), without=frozenset({"web"})
        )
        assert [one.name for one in without(routes)] == []

    assert len(read) == len(routes)
