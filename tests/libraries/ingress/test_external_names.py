"""Services of type ExternalName: only names of the administrator's list are served, and never at a denied address."""

import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address, ip_network

import pytest

from haptic_trio.k8s.resource import Resource
from haptic_trio.templating.filters.external import external_name
from tests.libraries.conftest import Cluster
from tests.support.components.rendering import Rendered, library_config
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service
from tests.support.traffic.servers import ask, serving

HOST, OWN = "a.example.com", "own.example.com"
PUBLIC = ("1.1.1.1", "192.88.99.1", "2001:4860:4860::8888", "2606:4700::1111", "2a00::1")
LIBRARIES = ("base", "ssl", "ingress", "nginx-annotations", "haproxy-ingress-annotations")


@contextmanager
def name_server(addresses: Mapping[str, str]) -> Iterator[tuple[int, list[str]]]:
    """Run a name server that knows *addresses*; yields its port, and the names that it was asked for."""
    asked: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))

        def run() -> None:
            while True:
                query, client = server.recvfrom(4096)
                if not query:
                    return
                server.sendto(_answer(query, addresses, asked), client)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield server.getsockname()[1], asked
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stopper:
                stopper.sendto(b"", server.getsockname())
            thread.join()


def _answer(query: bytes, addresses: Mapping[str, str], asked: list[str]) -> bytes:
    labels, at = [], 12
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode())
        at += 1 + length
    name, (kind, _class) = ".".join(labels).lower(), struct.unpack("!HH", query[at + 1 : at + 5])
    asked.append(name)
    found = addresses.get(name) if kind == 1 else None
    flags = 0x8180 if name in addresses else 0x8183
    head = query[:2] + struct.pack("!HHHHH", flags, 1, 1 if found else 0, 0, 0)
    record = struct.pack("!HHHIH", 0xC00C, 1, 1, 1, 4) + socket.inet_aton(found) if found else b""
    return head + query[12 : at + 5] + record


def outside(name: str, port: int, host: str = "api.example.net") -> Resource:
    return service(name, {"name": "web", "port": 80, "targetPort": port}, type="ExternalName", externalName=host)


def site(port: int, host: str = "api.example.net", **annotations: str) -> list[Resource]:
    given = {f"nginx.ingress.kubernetes.io/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return [
        ingress("web", rule(HOST, path("/", "outside"))),
        ingress("own", rule(OWN, path("/", "outside", "web")), annotations=given),
        outside("outside", port, host),
    ]


def serve(cluster: Cluster, *objects: Resource, dns: int, **context: object) -> Rendered:
    settings = {"externalNames": ["*.example.net"], "externalNameServers": [f"127.0.0.1:{dns}"], **context}
    return cluster.serve(*objects, libraries=LIBRARIES, **settings)


@pytest.mark.haproxy
def test_a_listed_name_is_resolved_and_reached(cluster: Cluster) -> None:
    with serving("outside", "inside") as running, name_server({"api.example.net": "127.0.0.1"}) as (dns, asked):
        rendered = serve(
            cluster,
            *site(running["outside"], upstream_vhost="api.example.net"),
            # An EndpointSlice of such a Service has no effect.
            endpoint_slice("outside", endpoint("127.0.0.1"), ports={"web": running["inside"]}),
            dns=dns,
            externalNameDeniedNetworks=[],
        )

        assert rendered.rejections == ()
        assert ask(cluster.http_port, HOST, "/a?b=1").body.startswith("outside\n/a?b=1\n")
        answer = ask(cluster.http_port, OWN)
        assert answer.body.startswith("outside\n")
        assert "host: api.example.net" in answer.body
        assert set(asked) == {"api.example.net"}


@pytest.mark.haproxy
@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "10.0.0.1", "192.168.7.1"])
def test_a_name_that_leads_to_a_denied_address_is_answered_with_503(cluster: Cluster, address: str) -> None:
    with serving("outside") as running, name_server({"api.example.net": address}) as (dns, asked):
        serve(cluster, *site(running["outside"], upstream_vhost="x"), dns=dns)

        assert [ask(cluster.http_port, host).status for host in (HOST, OWN)] == [503, 503]
        assert asked


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "169.254.169.254", "100.100.100.200", "168.63.129.16", "192.0.0.192", "0.0.0.0", "10.1.2.3"),
        *("::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:0:127.0.0.1", "2002:7f00:1::", "2001:0:7f00:1::"),
        *("64:ff9b::10.0.0.1", "64:ff9b:1::10.0.0.1", "64:ff9b:0:a00:0:100::"),
        *("fe80::1", "fec0::1", "ff02::1", "fd00:ec2::254", "fd20:ce::254"),
    ],
)
def test_every_spelling_of_an_address_that_is_not_public_is_denied_by_default(address: str) -> None:
    denied = library_config("base", "ingress").templating.extra_context["externalNameDeniedNetworks"]

    assert any(ip_address(address) in ip_network(entry) for entry in denied)
    assert not any(ip_address(public) in ip_network(entry) for public in PUBLIC for entry in denied)


@pytest.mark.haproxy
def test_a_name_without_an_address_is_answered_with_503(cluster: Cluster) -> None:
    with serving("outside") as running, name_server({}) as (dns, _):
        serve(cluster, *site(running["outside"], upstream_vhost="x"), dns=dns, externalNameDeniedNetworks=[])

        assert [ask(cluster.http_port, host).status for host in (HOST, OWN)] == [503, 503]


@pytest.mark.haproxy
@pytest.mark.parametrize("names", [[], ["example.net", "*.api.example.net", "other.example.net"]])
def test_a_name_that_is_not_listed_is_never_resolved(cluster: Cluster, names: list[str]) -> None:
    with serving("outside") as running, name_server({"api.example.net": "127.0.0.1"}) as (dns, asked):
        rendered = serve(
            cluster,
            *site(running["outside"], upstream_vhost="x"),
            dns=dns,
            externalNames=names,
            externalNameDeniedNetworks=[],
        )

        assert set(rendered.rejected) == {"Service default/outside"}
        assert [ask(cluster.http_port, host).status for host in (HOST, OWN)] == [503, 503]
        assert asked == []
        assert "do-resolve" not in rendered.text


@pytest.mark.haproxy
@pytest.mark.parametrize(
    "annotations",
    [
        {"health-check-uri": "/"},
        {"backend-check-interval": "2s"},
        {"agent-check-port": "8080"},
    ],
)
def test_an_ingress_with_checks_of_an_external_name_is_rejected(cluster: Cluster, annotations: dict[str, str]) -> None:
    given = {f"haproxy-ingress.github.io/{name}": value for name, value in annotations.items()}
    rendered = cluster.render(
        ingress("own", rule(OWN, path("/", "outside")), annotations=given),
        outside("outside", 80),
        libraries=LIBRARIES,
        externalNames=["api.example.net"],
    )

    assert "checks are not possible" in rendered.rejected["Ingress default/own"]


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("api.example.net", ["api.example.net"]),
        ("API.Example.net.", ["api.example.net."]),
        ("a.b.example.net", ["*.Example.net"]),
    ],
)
def test_a_name_is_compared_without_case_and_final_dot(name: str, allowed: list[str]) -> None:
    assert external_name(name, allowed) == name.lower().removesuffix(".")


@pytest.mark.parametrize(
    "name",
    [
        "example.net",
        "badexample.net",
        "example.net.evil.test",
        "*.example.net",
        "10.0.0.1",
        "a.example.net\n    server x 10.0.0.1:80",
        "a.example.net,b",
        "a b.example.net",
        "",
        None,
        7,
    ],
)
def test_no_other_name_is_taken(name: object) -> None:
    assert external_name(name, ["*.example.net", "*.1", "10.0.0.1"]) == ""
