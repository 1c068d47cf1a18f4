"""Changes of endpoints, hosts and paths need no reload, and other changes report why they need one."""

from typing import Any

import pytest
import trustme

from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import FileKind, Generation, make_file, make_generation
from haptic_trio.haproxy.plan.operations import AddMapEntry, DeleteMapEntry, Plan, SetMapEntry, SetServerAddress
from haptic_trio.haproxy.plan.plan import make_plan
from haptic_trio.k8s.resource import Resource
from tests.support.components.rendering import render
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service, tls_secret

WEB = ingress("web", rule("a.example.com", path("/", "web")))
SERVICES = (service("web"), service("api"), ingress("api", rule("api.example.com", path("/", "api"))))
ISSUED = trustme.CA().issue_cert("a.example.com")
SECRET = tls_secret("web", ISSUED.cert_chain_pems[0].bytes(), ISSUED.private_key_pem.bytes())


def slices(*addresses: str) -> Resource:
    return endpoint_slice("web", *(endpoint(address) for address in addresses), ports=80)


def generation(*objects: Resource, **context: Any) -> Generation:
    rendered = render(objects, sslRedirect=True, **context)
    assert rendered.rejections == ()
    kinds = {"map": FileKind.MAP, "pem": FileKind.CERT, "list": FileKind.CRT_LIST}
    files = [make_file(kinds[name.rsplit(".")[-1]], name, text) for name, text in rendered.files.items()]
    return make_generation(parse_config(rendered.text, source="haproxy.cfg"), files)


def planned(before: tuple[Resource, ...], after: tuple[Resource, ...]) -> Plan:
    return make_plan(generation(*before), generation(*after))


BASE = (WEB, *SERVICES, SECRET, slices("10.0.0.1", "10.0.0.2"))


def test_an_endpoint_that_moves_is_one_command() -> None:
    plan = planned(BASE, (*BASE[:-1], slices("10.0.0.1", "10.0.0.9")))

    assert plan == Plan(operations=(SetServerAddress("default_web_80", "s2", "10.0.0.9", 80),))


def test_hosts_and_paths_come_and_go_as_map_entries() -> None:
    more = ingress("more", rule("b.example.com", path("/x", "web"), path("/y", "api", kind="Exact")))

    assert planned(BASE, (*BASE, more)).operations == (
        AddMapEntry("maps/path-exact.map", "b.example.com|/y", "default_api_80"),
        AddMapEntry("maps/path-prefix.map", "b.example.com|/x/", "default_web_80"),
    )
    assert not planned(BASE, (*BASE, more)).reloads
    assert planned((*BASE, more), BASE).operations == (
        DeleteMapEntry("maps/path-prefix.map", "b.example.com|/x/"),
        DeleteMapEntry("maps/path-exact.map", "b.example.com|/y"),
    )


def test_gaps_of_hosts_come_and_go_as_map_entries() -> None:
    def of(*paths: str) -> Generation:
        more = ingress("more", rule("b.example.com", *(path(one, "web") for one in paths)), namespace="other")
        return generation(*BASE, more, hostOwnership="namespace")

    assert make_plan(of("/x"), of("/x", "/")) == Plan(
        operations=(
            AddMapEntry("maps/path-prefix.map", "b.example.com|/", "other_web_80"),
            DeleteMapEntry("maps/path-prefix.map", "b.example.com|"),
        )
    )
    assert make_plan(of("/x", "/"), of("/x")) == Plan(
        operations=(
            AddMapEntry("maps/path-prefix.map", "b.example.com|", "no-path"),
            DeleteMapEntry("maps/path-prefix.map", "b.example.com|/"),
        )
    )


def test_a_path_that_turns_to_another_service_is_one_map_entry() -> None:
    turned = ingress("web", rule("a.example.com", path("/", "api")), rule("c.example.com", path("/", "web")))
    before = ingress("web", rule("a.example.com", path("/", "web")), rule("c.example.com", path("/", "web")))

    assert planned((before, *BASE[1:]), (turned, *BASE[1:])) == Plan(
        operations=(SetMapEntry("maps/path-prefix.map", "a.example.com|/", "default_api_80"),)
    )


def test_a_route_that_another_object_claims_needs_no_reload() -> None:
    rival = ingress("rival", rule("a.example.com", path("/", "api")), age=2)

    assert not planned(BASE, (*BASE, rival)).reloads
    assert not planned((*BASE, rival), (*BASE, ingress("rival", rule("d.example.com", path("/", "api"))))).reloads


@pytest.mark.parametrize(
    "after",
    [
        pytest.param((ingress("new", rule("n.example.com", path("/", "new"))), service("new")), id="backend"),
        pytest.param(
            (ingress("tls", rule("a.example.com", path("/t", "web")), tls=[{"secretName": "web"}]),), id="certificate"
        ),
    ],
)
def test_what_needs_a_reload_says_why(after: tuple[Resource, ...]) -> None:
    assert planned(BASE, (*BASE, *after)).reasons
