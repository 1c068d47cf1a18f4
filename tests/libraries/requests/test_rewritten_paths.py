"""Paths that a rewrite makes: none leads an application out of the new path."""

import pytest

from tests.libraries.conftest import Cluster
from tests.libraries.requests.test_paths import LIBRARIES, NGINX, ORG, at, echoing, servers
from tests.support.kubernetes import ingress, path, rule
from tests.support.traffic.raw import exchange

pytestmark = pytest.mark.haproxy

ANY = "ImplementationSpecific"
OUT = (
    "..",
    "../",
    "../admin",
    "%2e%2e/admin",
    "..%2fadmin",
    "..;/admin",
    "..\\admin",
    "..%5cadmin",
    ".%20/admin",
    ".;x",
)
"""What follows a path without a slash, so that dots become a segment of their own."""


def test_a_rewrite_makes_no_dot_segments(cluster: Cluster) -> None:
    with echoing("app") as port:
        cluster.serve(
            ingress(
                "nginx",
                rule(at("nginx"), path("/api(.*)", "app", kind=ANY), path("/(.*)", "app", kind=ANY)),
                annotations={NGINX + "rewrite-target": "/pub/$1", NGINX + "use-regex": "true"},
            ),
            ingress("org", rule(at("org"), path("/", "app")), annotations={ORG + "path-rewrite": "/api(.*) /pub/\\1"}),
            *servers(("app", port)),
            libraries=LIBRARIES,
        )
        for name in ("nginx", "org"):
            for end in OUT:
                answer = exchange(cluster.http_port, f"GET /api{end} HTTP/1.1", f"Host: {at(name)}")
                assert answer.status == 400, (name, end)
            for end in (".well-known/x..y", "...a/.b"):
                answer = exchange(cluster.http_port, f"GET /api{end} HTTP/1.1", f"Host: {at(name)}")
                assert (answer.status, answer.body) == (200, f"app /pub/{end}")
