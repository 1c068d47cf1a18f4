"""With `hostOwnership: namespace`, no other namespace serves a path that a host does not have."""

from typing import Any

import pytest

from haptic_trio.k8s.resource import Resource
from tests.libraries.conftest import Cluster
from tests.libraries.tenants.tenants import ALL, HI, HOST, NGINX, WILDCARD, evil, secured, victim
from tests.libraries.tenants.test_tenants import Site
from tests.support.components.rendering import render
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service, service_backend
from tests.support.traffic.servers import ask, serving

OWN = victim(rule(HOST, path("/api", "web")))
WIDE = evil(rule(WILDCARD, path("/", "web")))
EVERY = evil(rule(None, path("/", "web")), name="every")


def gaps(*objects: Resource, **context: Any) -> dict[str, str]:
    """Return the entries that end lookups; each key of the map is there once, and nobody gets a warning about one."""
    rendered = render(objects, libraries=ALL, **{"hostOwnership": "namespace", **context})
    lines = rendered.files["maps/path-prefix.map"].splitlines()
    entries = [line.split() for line in lines]
    keys = [key for key, _ in entries]
    assert len(set(keys)) == len(keys)
    return {key: value for key, value in entries if value.startswith("no-")}


@pytest.mark.parametrize(
    ("objects", "context", "expected"),
    [
        pytest.param([OWN], {"hostOwnership": "shared"}, {}, id="shared"),
        pytest.param([OWN, WIDE, EVERY], {}, {f"{HOST}|": "no-path"}, id="both of another namespace"),
        pytest.param(
            [OWN, WIDE], {"catchAllNamespaces": ["infra"]}, {f"{HOST}|": "no-wildcard"}, id="rules are trusted"
        ),
        pytest.param(
            [OWN, WIDE, victim(rule(None, path("/x", "web")), name="every")],
            {},
            {f"{HOST}|": "no-wildcard"},
            id="own rules for every host",
        ),
        pytest.param(
            [OWN, victim(rule(WILDCARD, path("/x", "web")), name="wide"), EVERY],
            {},
            {f"{WILDCARD}|": "no-path"},
            id="own wildcard, which has gaps itself",
        ),
        pytest.param(
            [OWN, victim(rule(WILDCARD, path("/x", "web")), name="wide")],
            {"catchAllNamespaces": ["infra"]},
            {},
            id="own wildcard, trusted rules",
        ),
        pytest.param([victim(rule(HOST, path("/", "web"))), WIDE], {}, {}, id="all paths"),
        pytest.param(
            [OWN, victim(rule(HOST, path("/", "web")), name="rest", age=2), WIDE], {}, {}, id="all paths by another one"
        ),
        pytest.param(
            [OWN, evil(rule(HOST, path("/", "web")))], {}, {f"{HOST}|": "no-path"}, id="all paths by another namespace"
        ),
        pytest.param(
            [victim(rule(HOST, path("/", "web", kind="Exact")))], {}, {f"{HOST}|": "no-path"}, id="exact path"
        ),
        pytest.param([victim(rule(HOST), defaultBackend=service_backend("web")), WIDE], {}, {}, id="default backend"),
        pytest.param(
            [victim(rule("a.org", path("/", "web")), tls=secured(HOST))], {}, {f"{HOST}|": "no-path"}, id="only TLS"
        ),
        pytest.param(
            [victim(rule("a.org", path("/api", "web")), annotations={NGINX + "server-alias": HOST})],
            {},
            {"a.org|": "no-path", f"{HOST}|": "no-path"},
            id="alias",
        ),
        pytest.param(
            [victim(rule("a.org", path("/", "web")), annotations={NGINX + "server-alias": HOST})],
            {},
            {},
            id="whole alias",
        ),
        pytest.param(
            [victim(rule("a.org", path("/", "web")), annotations={HI + "redirect-from": HOST})], {}, {}, id="redirect"
        ),
        pytest.param(
            [victim(rule(f"www.{HOST}", path("/x", "web")), annotations={NGINX + "from-to-www-redirect": "true"})],
            {},
            {f"www.{HOST}|": "no-path"},
            id="www",
        ),
        pytest.param(
            [
                victim(
                    rule(HOST, path("/api(/|$)(.*)", "web", kind="ImplementationSpecific")),
                    annotations={NGINX + "use-regex": "true"},
                )
            ],
            {},
            {f"{HOST}|": "no-path"},
            id="expression",
        ),
        pytest.param(
            [victim(rule("localhost", path("/api", "web")))],
            {},
            {"localhost|": "no-path"},
            id="host without a wildcard",
        ),
        pytest.param(
            [victim(rule("localhost", path("/api", "web")))],
            {"catchAllNamespaces": ["infra"]},
            {},
            id="host without a wildcard, trusted rules",
        ),
        pytest.param(
            [victim(rule(HOST, path("/api", "web")), annotations={NGINX + "canary": "true"})], {}, {}, id="canary"
        ),
    ],
)
def test_the_oldest_ingress_ends_the_lookup_of_paths_that_the_host_does_not_have(
    objects: list[Resource], context: dict[str, Any], expected: dict[str, str]
) -> None:
    assert gaps(*objects, **context) == expected
    assert gaps(*reversed(objects), **context) == expected


def test_a_path_of_another_namespace_takes_none_from_the_owner_of_the_host() -> None:
    rest = victim(rule(HOST, path("/", "web")), name="rest", age=25)
    files = render([OWN, evil(rule(HOST, path("/", "web"))), rest], libraries=ALL, hostOwnership="namespace").files

    assert files["maps/path-prefix.map"].split() == [f"{HOST}|/api/", "victim_web_80", f"{HOST}|/", "victim_web_80"]


@pytest.mark.parametrize(
    "bad", ["a b.example.com", "*.*.org", "-", "x|y.example.com", "é.example.com", "a..b", "x\ny.org"]
)
def test_hostile_hosts_make_no_entry_and_keep_none_from_others(bad: str) -> None:
    hostile = evil(rule("c.example.org", path("/c", "web")), rule(bad, path("/", "web")), tls=secured(bad), name="bad")
    lines = Site(OWN, hostile, WIDE, hostOwnership="namespace").render()["path-prefix.map"].splitlines()
    found = dict(line.split() for line in lines if " no-" in line)

    closed = {f"{HOST}|": "no-path", "c.example.org|": "no-path", "c.example.org|/c/": "no-route"}
    assert found == closed


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        (
            victim(rule(HOST, path("/a//b", "web"), path("/api", "web")), annotations={HI + "redirect-from": "b.org"}),
            {f"{HOST}|/api/": "no-route", f"{HOST}|": "no-path", "b.org|": "no-route"},
        ),
        (
            victim(rule(HOST, path("/a//b", "web")), defaultBackend=service_backend("web")),
            {f"{HOST}|": "no-route"},
        ),
        (
            victim(
                rule("b.org", path("/a//b", "web"), path("/", "web")),
                annotations={NGINX + "from-to-www-redirect": "true"},
            ),
            {"b.org|/": "no-route", "www.b.org|": "no-route"},
        ),
    ],
    ids=["redirect", "default backend", "www"],
)
def test_a_quarantined_ingress_keeps_its_hosts_closed(broken: Resource, expected: dict[str, str]) -> None:
    lines = Site(broken, WIDE, EVERY, hostOwnership="namespace").render()["path-prefix.map"].splitlines()

    assert dict(line.split() for line in lines if " no-" in line) == expected


def test_entries_follow_each_change_as_a_fresh_render_has_them() -> None:
    site = Site(OWN, hostOwnership="namespace")
    rest = victim(rule(HOST, path("/", "web")), name="rest", age=2)
    older = evil(rule(HOST, path("/b", "web")), name="older", age=0)

    def found() -> set[str]:
        lines = site.render()["path-prefix.map"].splitlines()
        return {line for line in lines if " no-" in line}

    closed = {f"{HOST}| no-path"}
    assert found() == closed
    for change, undo, expected in (
        (rest, rest, set[str]()),
        (older, older, closed),
        (WIDE, WIDE, closed),
        (EVERY, EVERY, closed),
        (victim(rule(WILDCARD, path("/", "web")), name="wide"), None, set[str]()),
        (evil(rule(WILDCARD, path("/", "web")), name="oldest", age=0), None, closed),
    ):
        site.put(change)
        assert found() == expected
        if undo is not None:
            site.remove(undo)
            assert found() == closed


@pytest.mark.slow
@pytest.mark.parametrize("other", [WIDE, EVERY], ids=["wildcard", "every host"])
def test_a_wildcard_that_comes_and_goes_renders_no_host_of_others_again(other: Resource) -> None:
    hosts = [
        ingress("shop", rule(f"h{number}.example.com", path("/api", "web")), namespace=f"team{number}", age=2)
        for number in range(100)
    ]
    site = Site(*hosts, hostOwnership="namespace")
    site.render()

    def cost(change: Any) -> int:
        change(other)
        return site.renderer.render_here(site.stores).fragments_rendered

    alone = Site(hostOwnership="namespace")
    alone.render()
    alone.put(other)
    least = alone.renderer.render_here(alone.stores).fragments_rendered
    for _ in range(2):
        assert cost(site.put) <= least
        assert cost(site.remove) <= least


@pytest.mark.haproxy
@pytest.mark.parametrize("ownership", ["namespace", "shared"])
@pytest.mark.parametrize("trusted", [(), ("attacker",)], ids=["nobody", "attacker"])
def test_haproxy_answers_404_for_a_path_that_the_owner_does_not_have(
    cluster: Cluster, ownership: str, trusted: tuple[str, ...]
) -> None:
    with serving("victim", "attacker") as ports:
        parts: list[Resource] = []
        for namespace, port in ports.items():
            parts.append(service("web", namespace=namespace))
            parts.append(endpoint_slice("web", endpoint("127.0.0.1"), ports={"": port}, namespace=namespace))
        cluster.serve(
            OWN,
            victim(rule("*.org", path("/api", "web")), name="wide"),
            WIDE,
            EVERY,
            *parts,
            libraries=ALL,
            hostOwnership=ownership,
            catchAllNamespaces=list(trusted),
        )

        def who(host: str, path_: str) -> str:
            answer = ask(cluster.http_port, host, path_)
            return answer.body.partition("\n")[0] if answer.status == 200 else str(answer.status)

        for spelling in ("/other", "/", "/apis", "//other", "/%6fther", "/api/../other"):
            assert who(HOST, spelling) == ("attacker" if ownership == "shared" or trusted else "404")
            assert who("a.org", spelling) == ("attacker" if ownership == "shared" or trusted else "404")
        for spelling in ("/api", "/api/x", "/%61pi"):
            assert who(HOST, spelling) == who(HOST.upper() + ".", spelling) == "victim"
        assert who("other.example.com", "/other") == "attacker"
        assert who("unknown", "/other") == "attacker"
