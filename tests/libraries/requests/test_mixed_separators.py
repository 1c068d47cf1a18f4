"""Paths with characters that only some applications take for separators: no mix of them passes a rule for a path."""

from pathlib import Path

import pytest

from tests.gateway.filters.test_filters import leading_to
from tests.gateway.objects import gateway, route
from tests.gateway.objects import rule as route_rule
from tests.gateway.serving import served
from tests.libraries.conftest import Cluster
from tests.libraries.requests.test_paths import LIBRARIES, RULES, at, echoing, servers
from tests.support.kubernetes import ingress, path, rule
from tests.support.processes.ports import free_port
from tests.support.traffic.raw import exchange

pytestmark = pytest.mark.haproxy

CLOSED = {
    "nested": (
        *("/admin;%2Fpub", "/admin;\\pub", "/%2Fadmin/pub;x", "/%2Fadmin/pub%3Fx", "/\\admin/pub.", "/;/admin%2Fpub"),
        *("/;%2F%3F/admin/pub", "/z/../%2F/a/b/c/d/e/f/g/h;x", "/%2Fa/b/c/d/e/f/g/h;x", "/a/b;/c/d/e/f/g/h%2Fx"),
    ),
    "slash": ("/;/y", "/;x/admin/y", "/admin/;/y", "/admin%2F;/y"),
    "exact": (
        *("/admin;%2Fx", "/admin;x%5c", "/x;%2F%3F/admin", "/%2Fadmin;x", "/admin%3F;x%2Fy"),
        # Some applications read no further than to the first `;`.
        *("/admin;/x", "/admin;v=1/x/y", "/admin%2Fx", "/admin./x"),
    ),
}
OPEN = (
    "/group%2Fname",
    "/admin/pub/a%2Fb;v=1/c.",
    "/url/https%3A%2F%2Fa.test%2F%3Fb%2Fc%2Fd%2Fe%2Ff%2Fg%2Fh",
    "/x;v=1/",
)
DEEP = "/a/b/c/d/e/f/g"
"""A closed path with an open one below it, of eight segments."""


def test_no_mix_of_separators_passes_a_rule_for_a_path_between_open_ones(cluster: Cluster) -> None:
    guard = RULES["nginx-allow"]
    with echoing("open") as open_port, echoing("closed") as closed_port:
        opened = [path("/", "open"), path("/admin/pub", "open"), path(f"{DEEP}/h", "open")]
        closed = [path("/admin", "closed"), path(DEEP, "closed")]
        cluster.serve(
            ingress("open", rule(at("nested"), *opened)),
            ingress("closed", rule(at("nested"), *closed), annotations=guard),
            ingress("open-2", rule(at("exact"), path("/", "open"))),
            ingress("closed-2", rule(at("exact"), path("/admin", "closed", kind="Exact")), annotations=guard),
            ingress("open-3", rule(at("slash"), path("/", "open"))),
            ingress(
                "closed-3",
                rule(at("slash"), *(path(one, "closed", kind="Exact") for one in ("/", "/admin/"))),
                annotations=guard,
            ),
            *servers(("open", open_port), ("closed", closed_port)),
            libraries=LIBRARIES,
        )
        for name, spellings in CLOSED.items():
            for spelling in spellings:
                answer = exchange(cluster.http_port, f"GET {spelling} HTTP/1.1", f"Host: {at(name)}")
                assert answer.status == 400, (name, spelling)
        for spelling in OPEN:
            answer = exchange(cluster.http_port, f"GET {spelling} HTTP/1.1", f"Host: {at('nested')}")
            assert (answer.status, answer.body) == (200, f"open {spelling}")


@pytest.mark.parametrize("wider", ["*.example.com", None])
def test_no_separator_passes_the_rule_for_an_exact_path_of_a_host_to_a_wider_one(
    cluster: Cluster, wider: str | None
) -> None:
    with echoing("open") as open_port, echoing("closed") as closed_port:
        cluster.serve(
            ingress("open", rule(wider, path("/", "open"), path("/group", "closed", kind="Exact"))),
            ingress("host", rule(at("host"), path("/admin", "closed", kind="Exact")), annotations=RULES["nginx-allow"]),
            ingress("wild", rule("*.example.com", path("/wild", "closed", kind="Exact"))),
            ingress("plain", rule(at("plain"), path("/", "open"))),
            *servers(("open", open_port), ("closed", closed_port)),
            libraries=LIBRARIES,
        )
        expected = {
            **dict.fromkeys([*CLOSED["exact"], "/admin;/y", "/wild;/y", "/group;/y"], 400),
            "/x%2Fy": 200,
        }
        found = {
            one: exchange(cluster.http_port, f"GET {one} HTTP/1.1", f"Host: {at('host')}").status for one in expected
        }
        # Paths of a wider scope do not count for a host that has the path.
        plain = {
            one: exchange(cluster.http_port, f"GET {one} HTTP/1.1", f"Host: {at('plain')}").body
            for one in ("/admin;/y", "/wild;/y", "/group;/y")
        }

    assert found == expected
    assert plain == {one: f"open {one}" for one in plain}


def test_no_mix_of_separators_passes_the_rule_of_a_route_between_open_ones(tmp_path: Path) -> None:
    port = free_port()
    away = [{"type": "RequestRedirect", "requestRedirect": {"hostname": "login.example.com", "statusCode": 302}}]
    closed = {
        "matches": [
            *({"path": {"type": "PathPrefix", "value": value}} for value in ("/admin", DEEP)),
            {"path": {"type": "Exact", "value": "/exact"}},
        ],
        "filters": away,
    }
    with echoing("open") as open_port:
        objects = [
            gateway("gw", {"name": "web", "port": port, "protocol": "HTTP"}),
            *leading_to("open", open_port),
            route("web", route_rule("/", "/admin/pub", f"{DEEP}/h", to="open"), closed),
        ]
        with served(tmp_path, port, *objects):
            for spelling in (*CLOSED["nested"], "/exact;/x"):
                assert exchange(port, f"GET {spelling} HTTP/1.1", "Host: web.test").status == 400, spelling
            for spelling in OPEN:
                assert exchange(port, f"GET {spelling} HTTP/1.1", "Host: web.test").body == f"open {spelling}"


def test_no_separator_passes_the_rule_of_a_route_for_a_host_to_a_wider_one(tmp_path: Path) -> None:
    port = free_port()
    exact, opened = ({"path": {"type": "Exact", "value": value}} for value in ("/exact", "/open"))
    posted = {"path": {"type": "PathPrefix", "value": "/posted"}, "method": "POST"}
    values = ("/admin", r"/files/.*\.pdf", "/api/[^/]+/secret")
    expressions = [{"path": {"type": "RegularExpression", "value": value}} for value in values]
    backend = [{"name": "closed", "port": 80}]
    with echoing("open") as open_port, echoing("closed") as closed_port:
        objects = [
            gateway("gw", {"name": "web", "port": port, "protocol": "HTTP"}),
            *leading_to("open", open_port),
            *leading_to("closed", closed_port),
            route("any", route_rule("/", to="open"), {"matches": expressions, "backendRefs": backend}),
            route("wide", {"matches": [{"path": {"type": "Exact", "value": "/wide"}}], "backendRefs": backend}),
            route("c", route_rule("/", to="open"), hostnames=["*.c.test"]),
            route("same", {"matches": [opened], "backendRefs": [{"name": "open", "port": 80}]}, hostnames=["a.c.test"]),
            route("wild", {"matches": [exact], "backendRefs": backend}, hostnames=["*.b.test"]),
            route("host", {"matches": [exact, posted], "backendRefs": backend}, hostnames=["a.test"]),
            route("plain", route_rule("/", to="open"), hostnames=["plain.test"]),
        ]
        with served(tmp_path, port, *objects):

            def status(host: str, target: str) -> int:
                return exchange(port, f"GET {target} HTTP/1.1", f"Host: {host}").status

            for host in ("a.test", "x.b.test", "x.y.b.test"):
                for target in ("/exact;/x", "/exact%2Fx", "/admin;/x", "/wide;/x"):
                    assert (host, target, status(host, target)) == (host, target, 400)
                assert status(host, "/x;/exact/y") == 200
            assert status("a.c.test", "/open;/x") == 200
            # A request without a host has the scope of an empty one.
            for target, expected in {"/wide;/x": 400, "/admin;/x": 400, "/x;/y": 200}.items():
                assert exchange(port, f"GET {target} HTTP/1.0").status == expected
            # No application reads the beginning of this path alone.
            assert status("a.test", "/files/x%2Fy.pdf") == 200
            assert status("a.test", "/files/x;/y.pdf") == 400
            # Some applications take one of the characters literally, and the other one not.
            for rest in (
                ";/x%2Fy/secret",
                "%5Cx%2Fy/secret",
                "/x%2Fy/secret;/z",
                "/x%2Fy/secret%3Fz",
                "/x%2Fy/secret.",
            ):
                assert (rest, status("a.test", f"/api{rest}")) == (rest, 400)
            assert status("a.test", "/api/x%2Fy;v=1/c.") == 200
            # A long path with so many of the characters has too many readings.
            assert status("a.test", "/x%2Fy;/a%3B/b%3F/c.") == 200
            assert status("a.test", f"/{'x' * 3000}%2Fy;/a%3B/b%3F/c.") == 400
            # The list of `/posted` has no candidate for this request, which the wider host serves.
            assert status("a.test", "/posted/x") == 200
            assert status("a.test", "/posted;/x") == 400
            assert status("x.b.test", "/posted;/x") == 200
            assert status("plain.test", "/exact;/x") == status("plain.test", "/wide;/x") == 200
