"""Rate limits of all instances on a real HAProxy: the part that one of several instances enforces."""

import pytest

from tests.libraries.conftest import Cluster
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service
from tests.support.traffic.servers import ask, serving

HOST = "a.example.com"
LIMITS = {
    "nginx-annotations": {
        "nginx.ingress.kubernetes.io/limit-rpm": "8",
        "nginx.ingress.kubernetes.io/limit-burst-multiplier": "1",
    },
    "haproxy-org-annotations": {"haproxy.org/rate-limit-requests": "8", "haproxy.org/rate-limit-period": "1h"},
}
"""Limits of eight requests."""


@pytest.mark.haproxy
@pytest.mark.parametrize(
    ("library", "instances", "allowed"),
    [
        *(("base", 1, 8), ("base", 3, 3), ("base", 100, 1)),
        *(("nginx-annotations", 3, 3), ("nginx-annotations", 100, 1)),
        ("haproxy-org-annotations", 3, 3),
    ],
)
def test_one_of_several_instances_allows_its_part(cluster: Cluster, library: str, instances: int, allowed: int) -> None:
    limit = {"rateLimit": 8, "rateLimitPeriod": "1h"} if library == "base" else {}
    libraries = ("base", "ssl", "ingress", *(() if library == "base" else (library,)))
    with serving("web") as running:
        rendered = cluster.render(
            ingress("web", rule(HOST, path("/", "web")), annotations=LIMITS.get(library, {})),
            service("web"),
            endpoint_slice("web", endpoint("127.0.0.1"), ports=running["web"]),
            libraries=libraries,
            rateLimitScope="fleet",
            **limit,
        )
        assert rendered.files["maps/instances.map"] == "number 1\n"
        rendered.files["maps/instances.map"] = f"number {instances}\n"
        assert cluster.check(rendered) == ""
        with cluster.running(rendered.text, rendered):
            statuses = [ask(cluster.http_port, HOST).status for _ in range(10)]

    assert statuses.count(200) == allowed
    assert statuses[:allowed] == [200] * allowed
