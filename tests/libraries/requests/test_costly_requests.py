"""Processor time of HAProxy that one request takes for the annotations of a tenant, who may send it as well."""

import pytest

from haptic_trio.k8s.resource import Resource
from tests.libraries.conftest import Cluster
from tests.libraries.tenants.tenants import ALL, HI, NGINX
from tests.support.components.rendering import Rendered
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service
from tests.support.processes.ports import free_port
from tests.support.traffic.proxy import processor_seconds
from tests.support.traffic.raw import exchange
from tests.support.traffic.servers import serving

ORG = "haproxy.org/"
HOST = "evil.example.com"
MOST_SECONDS = 0.05
"""As for regular expressions of routes; the costliest of these requests takes 10 ms."""
ORIGINS = ",".join(f"https://*.o{number}.example.com" for number in range(500))
CORS = {
    "nginx": {f"{NGINX}enable-cors": "true", f"{NGINX}cors-allow-origin": ORIGINS},
    "haproxy-ingress": {f"{HI}cors-enable": "true", f"{HI}cors-allow-origin": ORIGINS},
    "haproxy.org": {f"{ORG}cors-enable": "true", f"{ORG}cors-allow-origin": ORIGINS},
}
LONG = "a" * 200
"""PCRE looks for the last character of such an expression in the whole path first."""


def cost_of(cluster: Cluster, evil: Resource, *lines: str) -> tuple[float, int]:
    """Return the processor time of a request with *lines*, and the status of its answer."""
    with serving("web") as ports:
        slices = endpoint_slice("web", endpoint("127.0.0.1"), ports=ports["web"])
        rendered = cluster.render(evil, service("web"), slices, libraries=ALL)
        assert rendered.rejected == {}
        assert cluster.check(rendered) == ""
        text = rendered.text.replace("global\n", "global\n    nbthread 1\n", 1)
        with cluster.running(text, rendered) as process:
            before = processor_seconds(process)
            status = exchange(cluster.http_port, *lines).status
            return processor_seconds(process) - before, status


@pytest.mark.haproxy
@pytest.mark.parametrize("annotations", CORS.values(), ids=CORS)
def test_an_origin_with_very_many_values_takes_little_processor_time(
    cluster: Cluster, annotations: dict[str, str]
) -> None:
    evil = ingress("evil", rule(HOST, path("/", "web")), annotations=annotations)

    seconds, status = cost_of(cluster, evil, "GET / HTTP/1.1", f"Host: {HOST}", f"Origin: {',' * 15_000}")

    # Each of the values would be compared with each of the origins: half a second.
    assert seconds < MOST_SECONDS
    assert status == 200


@pytest.mark.haproxy
@pytest.mark.parametrize(("text", "is_allowed"), [("a." * 100 + "com", True), ("a." * 1_300 + "com", False)])
def test_a_longer_origin_than_any_host_has_is_compared_with_none(
    cluster: Cluster, text: str, *, is_allowed: bool
) -> None:
    listed = ",".join([*(f"https://*.{'a.' * 200}b{number}" for number in range(300)), "https://*.com"])
    evil = ingress(
        "evil",
        rule(HOST, path("/", "web")),
        annotations={f"{HI}cors-enable": "true", f"{HI}cors-allow-origin": listed},
    )
    rendered = cluster.render(evil, service("web"), libraries=ALL)
    assert rendered.rejected == {}

    with serving("web") as ports:
        slices = endpoint_slice("web", endpoint("127.0.0.1"), ports=ports["web"])
        cluster.serve(evil, service("web"), slices, libraries=ALL)
        answer = exchange(cluster.http_port, "GET / HTTP/1.1", f"Host: {HOST}", f"Origin: https://{text}")

    # Labels of the longer one would be compared with those of each origin: 38 ms for origins of 250 KB.
    assert ("access-control-allow-origin" in answer.headers) == is_allowed


@pytest.mark.haproxy
@pytest.mark.parametrize("prefix", [NGINX, HI])
def test_a_long_path_that_may_be_rewritten_takes_little_processor_time(cluster: Cluster, prefix: str) -> None:
    evil = rewritten(prefix, 999)

    seconds, status = cost_of(cluster, evil, f"GET /{'a' * 15_000} HTTP/1.1", f"Host: {HOST}")

    assert seconds < MOST_SECONDS
    assert status == 200


@pytest.mark.parametrize("prefix", [NGINX, HI])
def test_an_ingress_with_more_paths_to_rewrite_is_rejected(cluster: Cluster, prefix: str) -> None:
    def render(count: int) -> Rendered:
        return cluster.render(rewritten(prefix, count), service("web"), libraries=ALL)

    assert render(999).rejected == {}
    assert "use several Ingresses" in render(1_000).rejected["Ingress default/evil"]


AFFINITY = {
    "nginx": {f"{NGINX}affinity": "cookie", f"{NGINX}session-cookie-name": "a"},
    "haproxy-ingress": {f"{HI}affinity": "cookie", f"{HI}session-cookie-name": "a"},
    "haproxy.org": {f"{ORG}cookie-persistence": "a"},
}


@pytest.mark.haproxy
@pytest.mark.parametrize("annotations", AFFINITY.values(), ids=AFFINITY)
@pytest.mark.parametrize(("count", "status"), [(20, 503), (3_700, 400)])
def test_very_many_cookies_of_affinity_take_little_processor_time(
    cluster: Cluster, annotations: dict[str, str], count: int, status: int
) -> None:
    evil = ingress("evil", rule(HOST, path("/", "web")), annotations=annotations)
    port = free_port()
    servers = [endpoint(f"127.0.{number // 250}.{number % 250 + 1}") for number in range(1_000)]
    rendered = cluster.render(evil, service("web"), endpoint_slice("web", *servers, ports=port), libraries=ALL)
    assert rendered.rejected == {}
    text = rendered.text.replace("global\n", "global\n    nbthread 1\n", 1)
    with cluster.running(text, rendered) as process:
        costs = []
        for _ in range(3):
            before = processor_seconds(process)
            lines = f"Host: {HOST}", f"Cookie: {'a=1;' * count}"
            assert exchange(cluster.http_port, "GET / HTTP/1.1", *lines).status == status
            costs.append(processor_seconds(process) - before)

    # Each cookie would be compared with each server: 14 ms, or 35 ms with HAProxy 3.4.
    assert min(costs) < MOST_SECONDS / 10


HEADERS = {
    f"{HI}request-set-headers": "x: a",
    f"{HI}response-add-headers": "x: a",
    f"{HI}request-del-headers": "x",
    f"{ORG}request-set-header": "x a",
}


@pytest.mark.parametrize(("name", "line"), HEADERS.items(), ids=HEADERS)
def test_an_ingress_with_very_many_headers_to_change_is_rejected(cluster: Cluster, name: str, line: str) -> None:
    def render(count: int) -> Rendered:
        evil = ingress("evil", rule(HOST, path("/", "web")), annotations={name: "\n".join([line] * count)})
        return cluster.render(evil, service("web"), libraries=ALL)

    assert render(100).rejected == {}
    # HAProxy compares each with all that are set before: 700 headers of a response would take 12 ms.
    assert "lists more than 100 headers" in render(101).rejected["Ingress default/evil"]


def rewritten(prefix: str, count: int) -> Resource:
    """Return an Ingress with `/` and *count* other paths that are rewritten."""
    paths = [path("/", "web"), *(path(f"/{LONG}{number}", "web") for number in range(count))]
    return ingress("evil", rule(HOST, *paths), annotations={f"{prefix}rewrite-target": "/"})
