"""Warnings where a ListenerSet takes a host from a route of another namespace on a wider listener."""

from typing import Any

import pytest

from haptic_trio.k8s.resource import Resource
from tests.gateway.objects import gateway, made, route, rule, service
from tests.libraries.gateway.test_gateway import Site
from tests.support.work import Work

EVERYBODY = {"namespaces": {"from": "All"}}
HTTP = {"name": "http", "port": 81, "protocol": "HTTP", "allowedRoutes": EVERYBODY}
SHARED = gateway("shared", HTTP, {**HTTP, "name": "other", "port": 82}, allowedListeners=EVERYBODY)
TAKEN = "requests for shop.test at port 81 go to the listener that the ListenerSet tenant/set has for this host"
WANTED = "the HTTPRoute victim/shop of another namespace has shop.test, too"


def added(*hosts: str, namespace: str = "tenant") -> Resource:
    listeners = [{**HTTP, "name": f"l{number}", "hostname": host} for number, host in enumerate(hosts)]
    parent = {"name": "shared", "namespace": "web"}
    return made("ListenerSet", "set", namespace=namespace, spec={"parentRef": parent, "listeners": listeners})


def shop(*hosts: str, own: str = "victim", **parent: Any) -> Resource:
    parents = [{"name": "shared", "namespace": "web"} | parent]
    return route("shop", rule("/"), hostnames=hosts, namespace=own, parents=parents)


def site_with(*objects: Resource) -> Site:
    site = Site()
    site.put(SHARED, service(namespace="victim"), *objects)
    return site


def warnings(site: Site) -> list[tuple[str, str, str]]:
    return [(str(one.subject), one.reason, one.message) for one in site.render().warnings]


@pytest.mark.parametrize("host", ["shop.test", "*.shop.test"])
def test_both_owners_are_warned(host: str) -> None:
    site = site_with(added("free.test", host), shop("own.test", host))

    (of_route, of_set) = sorted(warnings(site))

    assert of_route[:2] == ("HTTPRoute victim/shop", "HostTaken")
    assert of_route[2].startswith(TAKEN.replace("shop.test", host))
    assert of_set[:2] == ("ListenerSet tenant/set", "HostWanted")
    assert of_set[2].startswith(WANTED.replace("shop.test", host))
    site.put(added("free.test"))
    assert warnings(site) == []


@pytest.mark.parametrize(
    ("one", "taking"),
    [
        (shop("shop.test", own="tenant"), added("shop.test")),
        (shop("shop.test", port=82), added("shop.test")),
        (shop("shop.test", sectionName="gone"), added("shop.test")),
        (shop("shop.test", name="set", namespace="tenant", kind="ListenerSet"), added("shop.test")),
        (shop(), added("shop.test")),
        (shop("other.test"), added("shop.test")),
    ],
    ids=["own namespace", "other port", "not attached", "attached to the set", "every host", "other host"],
)
def test_a_route_that_loses_no_host_causes_no_warning(one: Resource, taking: Resource) -> None:
    assert warnings(site_with(one, taking)) == []


def test_a_route_for_another_host_does_not_render_the_gateway_again() -> None:
    site = site_with(added("shop.test"), shop("other.test"))
    site.render()

    site.put(shop("third.test"))

    # Its entries in three maps.
    assert site.render().fragments_rendered == 3


def test_very_many_routes_for_a_host_cost_the_gateway_no_more() -> None:
    costs = []
    for size in (30, 300):
        site = site_with()
        site.put(*(named for number in range(size) for named in rivals(number)))
        site.render()
        with Work() as work:
            site.put(added("shop.test"))
            assert site.render().fragments_rendered == 2
        costs.append(work.calls)

    assert costs[1] <= 1.2 * costs[0], costs


def rivals(number: int) -> list[Resource]:
    """Routes of an attacker, half of them without effect on the shared Gateway."""
    one, other = shop("shop.test", own="attacker"), shop("shop.test", own="attacker", name="gone")
    one["metadata"]["name"], other["metadata"]["name"] = f"a{number}", f"b{number}"
    return [one, other]
