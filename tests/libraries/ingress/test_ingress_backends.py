"""A backend has the endpoints of its Service, up to a limit, and an unknown Service or port is answered with 503."""

import base64
import re
from collections.abc import Iterable
from typing import Any

import pytest
import trustme
from msgspec.structs import replace

from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline import render as rendering
from haptic_trio.pipeline.render import Renderer
from haptic_trio.validation_tests.fixtures import make_stores
from tests.libraries.conftest import Cluster
from tests.support.components.rendering import KINDS, Rendered, library_config
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service
from tests.support.traffic.servers import ask, serving

pytestmark = pytest.mark.haproxy

HOST = "a.example.com"
WITH_ANNOTATIONS = ("base", "ssl", "ingress", "nginx-annotations")


def servers(rendered: Rendered, backend: str) -> list[str]:
    """Return the addresses behind *backend*, in the order of their names s1, s2, …"""
    section = re.search(
        rf"^backend {re.escape(backend)} from profile-http\n((?:    .*\n)*)", rendered.text, re.MULTILINE
    )
    assert section, rendered.text
    lines = [line.split() for line in section[1].splitlines()]
    assert [line[:2] for line in lines] == [["server", f"s{number + 1}"] for number in range(len(lines))]
    return [line[2] for line in lines]


def web(port: int | str = 80) -> Resource:
    return ingress("web", rule(HOST, path("/", "web", port)))


def test_named_and_numbered_ports_lead_to_the_target_port(cluster: Cluster) -> None:
    ports = ({"name": "http", "port": 80, "targetPort": "web"}, {"name": "admin", "port": 81})
    with serving("http", "admin") as running:
        cluster.serve(
            ingress("web", rule(HOST, path("/name", "web", "admin"), path("/number", "web", 80))),
            service("web", *ports),
            endpoint_slice("web", endpoint("127.0.0.1"), ports=running),
        )

        assert ask(cluster.http_port, HOST, "/name").body.startswith("admin\n")
        assert ask(cluster.http_port, HOST, "/number").body.startswith("http\n")


@pytest.mark.parametrize("port", [81, "unknown"])
def test_an_unknown_port_is_answered_with_503(cluster: Cluster, port: int | str) -> None:
    with serving("web") as running:
        rendered = cluster.serve(
            ingress("web", rule(HOST, path("/", "web", port), path("/ok", "web"))),
            service("web"),
            endpoint_slice("web", endpoint("127.0.0.1"), ports=running["web"]),
        )

        assert rendered.rejections == ()
        assert ask(cluster.http_port, HOST).status == 503
        assert ask(cluster.http_port, HOST, "/ok").status == 200


def test_a_missing_service_is_answered_with_503(cluster: Cluster) -> None:
    assert cluster.serve(web()).rejections == ()

    assert ask(cluster.http_port, HOST).status == 503


def test_a_service_without_endpoints_is_answered_with_503(cluster: Cluster) -> None:
    cluster.serve(web(), service("web"))

    assert ask(cluster.http_port, HOST).status == 503


def test_an_ipv6_endpoint_is_reached(cluster: Cluster) -> None:
    with serving("web", host="::1") as running:
        cluster.serve(
            web(), service("web"), endpoint_slice("web", endpoint("::1"), ports=running["web"], family="IPv6")
        )

        assert ask(cluster.http_port, HOST).body.startswith("web\n")


def test_slices_are_merged_in_order_of_addresses_without_duplicates(cluster: Cluster) -> None:
    rendered = cluster.render(
        web(),
        service("web"),
        endpoint_slice("web", endpoint("10.0.0.3"), endpoint("10.0.0.1"), ports=8080),
        endpoint_slice("web", endpoint("10.0.0.1"), endpoint("10.0.0.2"), ports=8080, suffix="2"),
        endpoint_slice("web", endpoint("fd00::1"), ports=8080, suffix="3", family="IPv6"),
        endpoint_slice("web", endpoint("web.example.org"), ports=8080, suffix="4", family="FQDN"),
        endpoint_slice("other", endpoint("10.9.9.9"), ports=8080),
        endpoint_slice("web", endpoint("10.8.8.8"), ports=8080, namespace="other"),
    )

    assert servers(rendered, "default_web_80") == ["10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080", "[fd00::1]:8080"]
    assert cluster.check(rendered) == ""


@pytest.mark.parametrize(
    ("endpoints", "expected"),
    [
        pytest.param(
            [endpoint("10.0.0.1", ready=True), endpoint("10.0.0.2", ready=False)], ["10.0.0.1:80"], id="ready only"
        ),
        pytest.param([{"addresses": ["10.0.0.1"]}], ["10.0.0.1:80"], id="unknown readiness is ready"),
        pytest.param([{"addresses": ["10.0.0.1"], "conditions": {"ready": None}}], ["10.0.0.1:80"], id="null is ready"),
        pytest.param(
            [endpoint("10.0.0.1", ready=False, serving=True, terminating=True), endpoint("10.0.0.2", ready=True)],
            ["10.0.0.2:80"],
            id="terminating ones rest while there are ready ones",
        ),
        pytest.param(
            [
                endpoint("10.0.0.1", ready=False, serving=True, terminating=True),
                endpoint("10.0.0.2", ready=False, serving=False, terminating=True),
                endpoint("10.0.0.3", ready=False, serving=False, terminating=False),
            ],
            ["10.0.0.1:80"],
            id="those that terminate but serve are the last resort",
        ),
        pytest.param([endpoint("10.0.0.1", ready=False)], [], id="none"),
    ],
)
def test_conditions_decide_which_endpoints_count(
    cluster: Cluster, endpoints: list[dict[str, object]], expected: list[str]
) -> None:
    rendered = cluster.render(web(), service("web"), endpoint_slice("web", *endpoints, ports=80))

    assert servers(rendered, "default_web_80") == expected


def test_requests_reach_every_endpoint(cluster: Cluster) -> None:
    names = [f"pod-{number}" for number in range(10)]
    with serving(*names) as running:
        cluster.serve(
            web(),
            service("web"),
            *(endpoint_slice("web", endpoint("127.0.0.1"), ports=running[name], suffix=name) for name in names),
        )

        seen = {ask(cluster.http_port, HOST).body.split("\n")[0] for _ in range(100)}

    assert seen == set(names)


def test_a_backend_appears_once_however_many_ingresses_use_it(cluster: Cluster) -> None:
    rendered = cluster.render(
        *(ingress(f"web-{number}", rule(f"h{number}.example.com", path("/", "web"))) for number in range(3)),
        service("web"),
        service("unused"),
    )

    assert rendered.text.count("\nbackend default_web_80 ") == 1
    assert "unused" not in rendered.text


def test_backends_of_similar_names_stay_apart(cluster: Cluster) -> None:
    with serving("one", "two") as running:
        cluster.serve(
            ingress("one", rule("one.example.com", path("/", "c")), namespace="a-b"),
            ingress("two", rule("two.example.com", path("/", "b-c")), namespace="a"),
            service("c", namespace="a-b"),
            service("b-c", namespace="a"),
            endpoint_slice("c", endpoint("127.0.0.1"), ports=running["one"], namespace="a-b"),
            endpoint_slice("b-c", endpoint("127.0.0.1"), ports=running["two"], namespace="a"),
        )

        assert ask(cluster.http_port, "one.example.com").body.startswith("one\n")
        assert ask(cluster.http_port, "two.example.com").body.startswith("two\n")


def test_the_order_of_objects_does_not_matter(cluster: Cluster) -> None:
    objects = [
        ingress("b", rule("b.example.com", path("/", "web"), path("/x", "api", kind="Exact"))),
        ingress("a", rule(HOST, path("/", "api"))),
        service("web"),
        service("api"),
        endpoint_slice("web", endpoint("10.0.0.2"), endpoint("10.0.0.1"), ports=80),
        endpoint_slice("api", endpoint("10.0.0.3"), ports=80),
    ]

    assert cluster.render(*objects) == cluster.render(*reversed(objects))


def test_a_new_host_path_or_endpoint_changes_no_line_but_its_own(cluster: Cluster) -> None:
    objects = [web(), service("web"), endpoint_slice("web", endpoint("10.0.0.1"), ports=80)]
    before = cluster.render(*objects)
    routed = cluster.render(*objects, ingress("more", rule("b.example.com", path("/x", "web")), age=2))
    moved = cluster.render(web(), service("web"), endpoint_slice("web", endpoint("10.0.0.9"), ports=80))

    assert routed.text == before.text
    assert routed.files["maps/path-prefix.map"].startswith(before.files["maps/path-prefix.map"].rstrip("\n"))
    assert moved.text == before.text.replace("server s1 10.0.0.1:80", "server s1 10.0.0.9:80")
    assert moved.files == before.files


def many(name: str, namespace: str, ports: int, endpoints: int) -> list[Resource]:
    """Return an Ingress, and a Service with *ports* and *endpoints*."""
    listed: list[dict[str, Any]] = [
        {"name": f"p{number}", "port": 1000 + number, "protocol": "TCP"} for number in range(ports)
    ]
    addresses = (endpoint(f"10.0.{number // 250}.{number % 250}") for number in range(endpoints))
    return [
        ingress(name, rule(f"{name}.{namespace}.test", path("/", name, 1000)), namespace=namespace),
        service(name, *listed, namespace=namespace),
        endpoint_slice(name, *addresses, ports={port["name"]: port["port"] for port in listed}, namespace=namespace),
    ]


def render_limited(
    objects: Iterable[Resource], *, libraries: tuple[str, ...] = ("base", "ssl", "ingress"), **limits: int
) -> rendering.Rendered:
    """Return the render of *objects*, each of them or none of it, with *limits*."""
    config = library_config(*libraries)
    config = replace(config, templating=replace(config.templating, **limits))
    stores = make_stores(config)
    for one in objects:
        for name, watched in config.watched_resources.items():
            if KINDS[watched.resources] == one["kind"]:
                stores[name].upsert(one)
    return Renderer(config).render_here(stores)


def test_the_servers_of_a_namespace_are_limited() -> None:
    attacker = [one for name in "abc" for one in many(name, "attacker", 10, 5)]
    rendered = render_limited([*attacker, *many("web", "victim", 2, 50)], max_namespace_servers=120)

    assert {str(rejection.subject): rejection.problem.message for rejection in rendered.rejections} == {
        "Service attacker/c": "the output of all objects of the namespace attacker has more than 120 servers"
    }
    assert rendered.text.count("    server ") == 200


def secured(name: str, endpoints: int, ca: str = "") -> list[Resource]:
    """Return an Ingress whose backend has *endpoints* with TLS, verified by the Secret *ca* if it is given."""
    annotations = {"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"}
    if ca:
        annotations |= {
            "nginx.ingress.kubernetes.io/proxy-ssl-secret": ca,
            "nginx.ingress.kubernetes.io/proxy-ssl-verify": "on",
            "nginx.ingress.kubernetes.io/proxy-ssl-name": "app.test",
        }
    web, *rest = many(name, "attacker", 1, endpoints)
    return [ingress(name, *web["spec"]["rules"], namespace="attacker", annotations=annotations), *rest]


def test_a_server_with_tls_counts_as_ten() -> None:
    plain = many("web", "victim", 1, 50)
    attacker = [one for name in "abc" for one in secured(name, 5)]
    rendered = render_limited([*attacker, *plain], libraries=WITH_ANNOTATIONS, max_namespace_servers=100)

    assert {str(rejection.subject): rejection.problem.message for rejection in rendered.rejections} == {
        "Ingress attacker/c": "the output of all objects of the namespace attacker has more than 100 servers"
    }
    assert "TLS" in rendered.rejections[0].problem.hint
    assert rendered.text.count("    server ") == 60


def test_a_server_with_tls_counts_as_more_if_it_has_very_many_authorities() -> None:
    bundle = "".join(trustme.CA().cert_pem.bytes().decode() for _ in range(100))
    data = {"ca.crt": base64.b64encode(bundle.encode()).decode()}
    authorities = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "ca", "namespace": "attacker"},
        "data": data,
    }
    objects = [*secured("a", 5, "ca"), authorities]

    fitting = render_limited(objects, libraries=WITH_ANNOTATIONS, max_namespace_servers=130)
    rejected = render_limited(objects, libraries=WITH_ANNOTATIONS, max_namespace_servers=129)

    assert fitting.rejections == ()
    assert [str(rejection.subject) for rejection in rejected.rejections] == ["Ingress attacker/a"]


def test_a_large_backend_counts_as_more_servers() -> None:
    fitting = render_limited(many("a", "attacker", 1, 2000), max_namespace_servers=2500)
    rejected = render_limited(many("a", "attacker", 1, 2000), max_namespace_servers=2499)
    several = render_limited(
        [one for name in "abc" for one in many(name, "attacker", 1, 900)], max_namespace_servers=2700
    )

    assert fitting.rejections == ()
    assert [str(rejection.subject) for rejection in rejected.rejections] == ["Service attacker/a"]
    assert several.rejections == ()


def test_the_rules_of_a_backend_are_limited() -> None:
    headers = "\n".join(f"X-H{number}: a" for number in range(20))
    annotations = {"haproxy-ingress.github.io/request-set-headers": headers}
    heavy = ingress("heavy", rule("a.test", path("/", "web")), namespace="attacker", annotations=annotations)
    light = ingress("light", rule("b.test", path("/", "web")), namespace="attacker")
    libraries = ("base", "ssl", "ingress", "haproxy-ingress-annotations")
    web = service("web", namespace="attacker")
    rendered = render_limited([heavy, light, web], libraries=libraries, max_backend_rules=15)

    assert {str(rejection.subject): rejection.problem.message for rejection in rendered.rejections} == {
        "Ingress attacker/heavy": "a backend has more than 15 rules, which each request runs"
    }


def test_the_servers_of_a_backend_are_limited() -> None:
    objects = [*many("large", "attacker", 2, 31), *many("wide", "attacker", 10, 30), *many("web", "victim", 2, 30)]
    rendered = render_limited(objects, max_backend_servers=30)

    assert {str(rejection.subject): rejection.problem.message for rejection in rendered.rejections} == {
        "Service attacker/large": "a backend has more than 30 servers"
    }
    assert rendered.text.count("    server ") == 360


def test_a_headless_service_without_a_selector_has_the_endpoints_that_its_owner_writes(cluster: Cluster) -> None:
    ports = {"name": "http", "port": 80}, {"name": "admin", "port": 81}
    with serving("written", "mirrored") as running:
        # One slice by hand, and one that Kubernetes copies from an object `Endpoints`; conditions may be missing.
        by_hand = endpoint_slice("web", ports={"http": running["written"]}, suffix="hand")
        by_hand["endpoints"] = [{"addresses": ["127.0.0.1"]}]
        mirrored = endpoint_slice("web", endpoint("127.0.0.1"), ports={"admin": running["mirrored"]}, suffix="copy")
        mirrored["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] = (
            "endpointslicemirroring-controller.k8s.io"
        )
        cluster.serve(
            ingress("web", rule(HOST, path("/name", "web", "http"), path("/number", "web", 81))),
            service("web", *ports, clusterIP="None"),
            by_hand,
            mirrored,
        )

        assert ask(cluster.http_port, HOST, "/name").body.startswith("written\n")
        assert ask(cluster.http_port, HOST, "/number").body.startswith("mirrored\n")
