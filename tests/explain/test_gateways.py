"""Notes about the routing of requests to Gateways."""

import itertools
import posixpath
from collections.abc import Mapping
from pathlib import Path

import pytest

from haptic_trio.cli.output.explain import rows_of
from haptic_trio.explain.answers import HostAnswer, RouteAnswer
from haptic_trio.explain.base_maps import MapEntry, RouteMap, read_entries
from haptic_trio.explain.gateway_maps import EXACT, LISTENERS, PREFIX, RULES, outcomes, visits
from haptic_trio.explain.resolve import explain
from haptic_trio.explain.site import Site
from haptic_trio.explain.targets import UnknownTargetError
from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline.render import Renderer
from haptic_trio.validation_tests.fixtures import make_stores
from tests.explain.sites import site_of_render
from tests.gateway.objects import gateway, gateway_class, plural_of, route, rule, service
from tests.gateway.serving import Authority, endpoints, secret, served
from tests.support.components.rendering import library_config
from tests.support.processes.ports import free_port
from tests.support.traffic.servers import ask, serving

PAIR = {"certificateRefs": [{"name": "pair"}]}


def site_of(*objects: Resource) -> Site:
    config = library_config("base", "ssl", "gateway")
    stores = make_stores(config)
    for one in (gateway_class(), *objects):
        for name, kind in config.watched_resources.items():
            if (kind.api_version, kind.resources) == (one["apiVersion"], plural_of(one)):
                stores[name].upsert(one)
    renderer = Renderer(config)
    return site_of_render(config, stores, renderer, renderer.render_here(stores))


def mixed() -> Site:
    through = {"protocol": "TLS", "hostname": "through.test", "tls": {"mode": "Passthrough"}}
    backends = [{"name": "app", "port": 80}]
    return site_of(
        gateway(
            "gw",
            {"name": "through", "port": 443, **through},
            {"name": "web", "port": 443, "protocol": "HTTPS", "hostname": "*.test", "tls": PAIR},
            {"name": "plain", "port": 80, "protocol": "HTTP"},
        ),
        secret("pair", Authority().issue("*.test")),
        service("app"),
        route("web", rule("/shop"), hostnames=["shop.test"], parents=[{"name": "gw", "sectionName": "web"}]),
        route("through", {"backendRefs": backends}, hostnames=["through.test"], kind="TLSRoute"),
    )


def notes_of(site: Site, target: str) -> list[str]:
    answer = explain(site, target)
    assert isinstance(answer, HostAnswer)
    return [note for note in answer.notes if "listener" in note]


def routed(site: Site, target: str) -> list[str]:
    """Return what each frontend of a Gateway does with a request."""
    answer = explain(site, target)
    assert isinstance(answer, RouteAnswer)
    texts = [text for _, text, _ in rows_of(answer)]
    return [text for text in texts if "at the listener" in text]


def test_a_mixed_port_is_followed_to_the_frontend_that_serves() -> None:
    site = mixed()

    plain, web = routed(site, "shop.test/shop/a")

    front = "gateway-port::web_gw_443"
    place = f"web/gw/web of frontend {front}, which passes it to frontend {front}_inner_https"
    assert web.startswith("backend gateway::web_app_80 (maps/gateway-prefix.map:")
    assert web.endswith(f", HTTPRoute web/web), at the listener {place}")
    assert plain == "404: no route matches, at the listener web/gw/plain of frontend gateway-port::web_gw_80"
    _, through = routed(site, "through.test/")
    assert through.startswith("backend")
    assert through.endswith(f"TLSRoute web/through), at the listener web/gw/through of frontend {front}")


def test_a_host_has_its_listeners_and_another_one_is_unknown() -> None:
    site = site_of(gateway("gw", {"name": "a", "port": 80, "protocol": "HTTP", "hostname": "a.test"}))

    assert notes_of(site, "a.test") == ["frontend gateway-port::web_gw_80: listener web/gw/a"]
    with pytest.raises(UnknownTargetError):
        explain(site, "b.test")


def test_conditions_weights_and_what_haproxy_answers() -> None:
    site = site_of(
        gateway(),
        service("app"),
        service("more"),
        route(
            "all",
            {**rule("/"), "matches": [{"method": "POST"}], "backendRefs": [{"name": "gone", "port": 80}]},
            {"backendRefs": [{"name": "app", "port": 80, "weight": 3}, {"name": "more", "port": 80}]},
            rule("/away", filters=[{"type": "RequestRedirect", "requestRedirect": {"scheme": "https"}}]),
            {**rule("/only"), "matches": [{"path": {"value": "/only"}, "method": "PUT"}]},
        ),
    )

    (split,), (away,), (only,) = (routed(site, f"a.test{path}") for path in ("/", "/away", "/only"))

    assert split.startswith("the answer 500 if method POST (")
    assert "; else backend gateway::web_app_80 for 3 of 4 and backend gateway::web_more_80 for 1 of 4 (" in split
    assert away.startswith("a redirect (")
    assert only.startswith("backend gateway::web_app_80 if method PUT (")


def maps_of(**texts: str) -> Mapping[str, RouteMap]:
    names = {"listeners": LISTENERS, "exact": EXACT, "prefix": PREFIX, "rules": RULES}
    lines = {name: texts.get(short, "").split(";;") for short, name in names.items()}
    return {
        name: RouteMap([MapEntry(number, *line.split(" ")) for number, line in enumerate(found, 1) if line])
        for name, found in lines.items()
    }


def test_the_narrowest_host_and_the_longest_prefix_win() -> None:
    maps = maps_of(
        listeners="f|* any;;f|*.b.test wide",
        exact="wide|*|/x exact",
        prefix="wide|*.test|/ short;;wide|*.test|/x/ long;;wide|*|/ last",
    )

    def hits(host: str, path: str) -> list[str]:
        return [hit.target for visit in visits(maps, host, path) for hit in visit.hits]

    assert [visit.listener for visit in visits(maps, "c.test", "/")] == ["any"]
    assert hits("a.b.test", "/x") == ["long"]
    assert hits("a.b.test", "/xy") == ["short"]
    assert hits("c.test", "/") == []


def test_the_namespace_behind_a_target_is_not_part_of_it() -> None:
    maps = maps_of(listeners="f|* any", prefix="any|a.test|/ ?m,GET>app>own;>rest>own;;any|*|/ app>own")

    found = {host: [hit.target for visit in visits(maps, host, "/") for hit in visit.hits] for host in ("a.test", "b")}
    assert found == {"a.test": ["app", "rest"], "b": ["app"]}


@pytest.mark.haproxy
def test_haproxy_agrees_with_the_explanation(tmp_path: Path) -> None:
    port = free_port()
    names = ("one", "two", "three")
    listeners = [{"name": "any"}, {"name": "wide", "hostname": "*.b.test"}, {"name": "own", "hostname": "a.b.test"}]
    routes = [
        route("one", rule("/", to="one"), {**rule(to="two"), "matches": [{"path": {"type": "Exact", "value": "/x"}}]}),
        route("two", rule("/x", to="two"), hostnames=["*.c.test", "c.b.test"]),
        route("three", rule("/x/y", "/z", to="three"), hostnames=["a.c.test", "*.b.test"]),
    ]
    with serving(*names) as servers:
        found = [endpoints(name, ("", servers[name])) for name in names]
        ways = [{"port": port, "protocol": "HTTP", **one} for one in listeners]
        objects = [gateway("gw", *ways), *map(service, names), *found, *routes]
        with served(tmp_path, port, *objects) as rendered:
            files = {posixpath.basename(file.path): file.content.decode() for file in rendered.files.values()}
            maps = {name: RouteMap(tuple(read_entries(files[name]))) for name in (LISTENERS, EXACT, PREFIX, RULES)}
            for host, path in itertools.product(
                ("a.b.test", "c.b.test", "x.c.b.test", "b.test", "a.c.test", "b.a.c.test", "d"),
                ("/", "/x", "/x/", "/x/y", "/xy", "/z/1", "/zz"),
            ):
                (visit,) = visits(maps, host, path)
                reported = [outcome for hit in visit.hits for outcome in outcomes(maps, hit.target)]
                answer = ask(port, host, path)
                seen = answer.body.partition("\n")[0] if answer.status == 200 else answer.status
                expected = [f"backend gateway::web_{seen}_80"] if answer.status == 200 else []
                assert (seen in (*names, 404), reported) == (True, expected), (host, path)


def test_a_rule_that_is_not_there_or_rejected_is_an_error() -> None:
    maps = maps_of(rules="k x;;z b,0,app")

    assert [list(outcomes(maps, target)) for target in ("=k", "=gone", "=z", "app")] == [
        ["the answer 500"],
        ["the answer 500"],
        ["the answer 500"],
        ["backend app"],
    ]
