"""Servers are judged by errors, checks and their zone, as settings and annotations say, on a real HAProxy."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from haptic_trio.k8s.resource import Resource
from haptic_trio.templating.filters.zones import far_addresses
from tests.libraries.conftest import Cluster
from tests.support.components.rendering import Rendered
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service
from tests.support.processes.ports import free_port
from tests.support.traffic.servers import PATIENCE, QuietHandler, answering, ask, serving

HOST = "a.example.com"
LIBRARIES = ("base", "ssl", "ingress", "nginx-annotations", "haptic-annotations")


@contextmanager
def failing(path_of_checks: str = "/") -> Iterator[tuple[int, threading.Event]]:
    """Run a server that answers with 500; yields its port, and what is set once *path_of_checks* is requested."""
    checked = threading.Event()

    class Handler(QuietHandler):
        def answer(self) -> None:
            if self.path == path_of_checks:
                checked.set()
            self.send_response(500)
            self.send_header("Content-Length", "0")
            self.end_headers()

    with answering(Handler) as port:
        yield port, checked


def site(*ports: int, **annotations: str) -> list[Resource]:
    given = {f"haptic-trio/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return [
        ingress("web", rule(HOST, path("/", "web")), annotations=given),
        service("web"),
        *(endpoint_slice("web", endpoint("127.0.0.1"), ports=port, suffix=str(port)) for port in ports),
    ]


def statuses(cluster: Cluster, number: int) -> list[int]:
    return [ask(cluster.http_port, HOST, "/work").status for _ in range(number)]


@pytest.mark.haproxy
@pytest.mark.parametrize("by_setting", [True, False])
def test_a_server_with_consecutive_errors_gets_no_more_requests(cluster: Cluster, by_setting: bool) -> None:
    with serving("good") as running, failing() as (bad, _):
        objects = site(running["good"], bad, **({} if by_setting else {"outlier_errors": "3", "outlier_time": "1h"}))
        settings = {"outlierErrors": 3, "outlierTime": "1h"} if by_setting else {}
        cluster.serve(*objects, libraries=LIBRARIES, balance="roundrobin", **settings)

        first = statuses(cluster, 60)

        assert first.count(500) == 3
        assert statuses(cluster, 20) == [200] * 20


@pytest.mark.haproxy
def test_servers_with_errors_serve_on_without_the_setting(cluster: Cluster) -> None:
    with serving("good") as running, failing() as (bad, _):
        cluster.serve(*site(running["good"], bad), libraries=LIBRARIES, balance="roundrobin")

        assert statuses(cluster, 20).count(500) == 10


@pytest.mark.haproxy
def test_the_path_of_health_checks_is_requested_and_an_error_ends_traffic(cluster: Cluster) -> None:
    with serving("good") as running, failing("/healthz") as (bad, checked):
        cluster.serve(
            *site(running["good"], bad, check_path="/healthz", check_interval="500ms"),
            libraries=LIBRARIES,
            balance="roundrobin",
        )

        assert checked.wait(PATIENCE)
        # Three failed checks, 500 ms apart, take the server out.
        seen: list[int] = []
        while seen[-10:] != [200] * 10:
            assert len(seen) < 100_000
            seen += statuses(cluster, 1)


@pytest.mark.haproxy
def test_slow_start_and_checks_are_settings_of_all_servers(cluster: Cluster) -> None:
    settings = {"slowStart": "30s", "checkInterval": "2s"}
    with serving("good") as running:
        rendered = cluster.serve(*site(running["good"], slow_start="1m"), libraries=LIBRARIES, **settings)

        assert "default-server slowstart 30s" in rendered.text
        assert "default-server check inter 2s" in rendered.text
        assert "slowstart 1m" in rendered.text
        assert statuses(cluster, 5) == [200] * 5


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        ({"outlier_errors": "0"}, "outlier-errors must be a whole number"),
        ({"outlier_errors": "3 disabled"}, "outlier-errors must be a whole number"),
        ({"outlier_time": "30s"}, "outlier-time requires outlier-errors"),
        ({"outlier_errors": "3", "outlier_time": "1ms"}, "too fast"),
        ({"check_interval": "1ms"}, "too fast"),
        ({"slow_start": "soon"}, "duration"),
        ({"check_path": "a"}, "does not begin with"),
        ({"check_path": "/\n    server x 192.0.2.1:1"}, "newline"),
        ({"retries": "1"}, "haptic-trio/retries is not supported"),
    ],
)
def test_an_invalid_annotation_rejects_the_ingress(cluster: Cluster, annotations: dict[str, str], problem: str) -> None:
    rendered = cluster.render(*site(80, **annotations), libraries=LIBRARIES)

    assert problem in rendered.rejected["Ingress default/web"]


@pytest.mark.haproxy
def test_these_annotations_go_together_with_those_of_another_controller(cluster: Cluster) -> None:
    with serving("good") as running:
        objects = site(running["good"], slow_start="10s")
        objects[0]["metadata"]["annotations"]["nginx.ingress.kubernetes.io/upstream-vhost"] = "inside.test"
        rendered = cluster.serve(*objects, libraries=LIBRARIES)

        assert rendered.rejections == ()
        assert "host: inside.test" in ask(cluster.http_port, HOST).body


def hinted(name: str, *zones: str, port: int, ready: bool = True) -> Resource:
    found = endpoint("127.0.0.1", ready=ready) | {"hints": {"forZones": [{"name": zone} for zone in zones]}}
    return endpoint_slice("web", found, ports=port, suffix=name)


def zoned(cluster: Cluster, *slices: Resource, **context: object) -> Rendered:
    objects = [ingress("web", rule(HOST, path("/", "web"))), service("web", trafficDistribution="PreferClose"), *slices]
    return cluster.serve(*objects, libraries=LIBRARIES, zone="a", balance="roundrobin", **context)


def answering_servers(cluster: Cluster) -> set[str]:
    return {ask(cluster.http_port, HOST).body.split("\n")[0] for _ in range(40)}


@pytest.mark.haproxy
def test_endpoints_of_the_own_zone_are_preferred(cluster: Cluster) -> None:
    with serving("near", "far") as running:
        near = endpoint_slice(
            "web", endpoint("127.0.0.1") | {"hints": {"forZones": [{"name": "a"}]}}, ports=running["near"]
        )
        far = endpoint_slice(
            "web",
            # Another address of the loopback network, as endpoints are known by their addresses.
            endpoint("127.0.0.2") | {"hints": {"forZones": [{"name": "b"}]}},
            ports=running["far"],
            suffix="far",
        )
        rendered = zoned(cluster, near, far)

        assert f"127.0.0.2:{running['far']} backup\n" in rendered.text
        assert answering_servers(cluster) == {"near"}


@pytest.mark.haproxy
def test_endpoints_of_other_zones_serve_if_none_of_the_own_one_answers(cluster: Cluster) -> None:
    with serving("far", "other", host="127.0.0.2") as running:
        near = hinted("near", "a", port=free_port())
        slices = [
            endpoint_slice(
                "web",
                endpoint("127.0.0.2") | {"hints": {"forZones": [{"name": zone}]}},
                ports=running[name],
                suffix=name,
            )
            for name, zone in (("far", "b"), ("other", "c"))
        ]
        zoned(cluster, near, *slices, outlierErrors=1, outlierTime="1h", retries=3)
        seen: list[str] = []
        while len(set(seen[-40:])) != 2 or len(seen) < 40:
            assert len(seen) < 10_000
            seen.append(ask(cluster.http_port, HOST).body.split("\n")[0])

        assert set(seen[-40:]) == {"far", "other"}


@pytest.mark.parametrize(
    ("zone", "hints", "far"),
    [
        pytest.param("a", [("1", ["a"], True), ("2", ["b"], True)], ["2"], id="one of each"),
        pytest.param("", [("1", ["a"], True), ("2", ["b"], True)], [], id="no zone"),
        pytest.param("c", [("1", ["a"], True), ("2", ["b"], True)], [], id="none of the zone"),
        pytest.param("a", [("1", ["a"], True), ("2", [], True)], [], id="one without hints"),
        pytest.param("a", [("1", ["a"], True), ("2", [], False)], [], id="hints of endpoints that are not ready"),
        pytest.param("a", [("1", ["a"], False), ("2", ["b"], True)], [], id="the only one of the zone is not ready"),
        pytest.param("a", [("1", ["b", "a"], True), ("2", ["b"], True)], ["2"], id="several zones"),
    ],
)
def test_hints_count_as_in_kube_proxy(zone: str, hints: list[tuple[str, list[str], bool]], far: list[str]) -> None:
    slices = [
        endpoint_slice(
            "web",
            endpoint(address, ready=ready) | {"hints": {"forZones": [{"name": name} for name in zones]}},
            ports=80,
            suffix=address,
        )
        for address, zones, ready in hints
    ]

    assert far_addresses(slices, zone) == far
    assert far_addresses([{"endpoints": None}, {"endpoints": [{"addresses": [], "hints": None}]}], zone) == []
