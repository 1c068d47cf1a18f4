"""Headers that applications trust: what of them clients can send, and what servers get in their place."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from haptic_trio.config.libraries import load_library
from tests.gateway.objects import gateway, route
from tests.gateway.objects import rule as route_rule
from tests.gateway.serving import served
from tests.gateway.test_filters import leading_to
from tests.libraries.conftest import Cluster
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service
from tests.support.processes.ports import free_port
from tests.support.traffic.http2 import connect_http2
from tests.support.traffic.raw import exchange
from tests.support.traffic.servers import Answer, ask, serving

pytestmark = pytest.mark.haproxy

HERE, HOST = "127.0.0.1", "a.example.com"
UNTRUSTED = load_library("base").templating.extra_context["untrustedHeaders"]
NAMES = [name.replace("*", "Any") for name in UNTRUSTED]
NAMES += [f"X-Forwarded-{name}" for name in ("For", "Host", "Port", "Proto", "Scheme", "Server", "Prefix")]
NAMES += [f"X-Original-{name}" for name in ("URI", "URL", "Method", "Host")]
NAMES += [
    "X-Auth-Request-User",
    "CF-Connecting-IP",
    "SSL-Client-Verify",
    "X-SSL-Client-CN",
    "Proxy",
    "Proxy-Connection",
]
"""Each of them with the value `forged`, and once more with `_` for `-`."""
SENT = {
    "x-forwarded-for": HERE,
    "x-forwarded-host": HOST,
    "x-forwarded-proto": "http",
    "x-real-ip": HERE,
}


def received(answer: Answer) -> list[tuple[str, str]]:
    """Return the headers that the server got, in order."""
    assert answer.status == 200
    lines = (line.partition(": ") for line in answer.body.split("\n")[2:])
    return [(name, value) for name, _, value in lines]


def forged(*separators: str) -> list[str]:
    return [f"{name.replace('-', separator)}: forged" for separator in separators for name in NAMES]


@contextmanager
def edge(cluster: Cluster, **settings: Any) -> Iterator[str]:
    """Serve one Ingress whose server says what arrives, and yield the configuration."""
    with serving("web") as ports:
        rendered = cluster.serve(
            ingress("web", rule(HOST, path("/", "web"))),
            service("web"),
            endpoint_slice("web", endpoint(HERE), ports=ports["web"]),
            **settings,
        )
        yield rendered.text


def test_servers_get_what_the_edge_says_and_nothing_that_a_client_does(cluster: Cluster) -> None:
    with edge(cluster):
        found = [
            received(
                exchange(cluster.http_port, "GET / HTTP/1.1", f"Host: {HOST}", *forged(separator)[start : start + 40])
            )
            for separator in "-_"
            for start in range(0, len(NAMES), 40)
        ]

    for headers in found:
        assert "forged" not in dict(headers).values()
        assert dict(headers) == {**SENT, "host": HOST, "x-forwarded-port": str(cluster.http_port)}
        assert len(headers) == len(SENT) + 2


def test_a_gateway_does_the_same_over_http2(tmp_path: Path) -> None:
    port = free_port()
    fields = [(":method", "GET"), (":scheme", "http"), (":authority", HOST), (":path", "/")]
    fields += [(line.partition(":")[0].lower(), "forged") for line in forged("-", "_") if "onnection" not in line]
    with serving("web") as ports:
        listener = {"name": "web", "port": port, "protocol": "HTTP"}
        objects = [gateway("gw", listener), *leading_to("web", ports["web"]), route("web", route_rule("/", to="web"))]
        with served(tmp_path, port, *objects), connect_http2(port) as client:
            client.send(fields[:60])
            first = received(client.answer())
            client.send([*fields[:4], *fields[60:]])
            second = received(client.answer())

    for headers in (first, second):
        assert "forged" not in dict(headers).values()
        assert SENT.items() <= dict(headers).items()


def test_other_headers_arrive(cluster: Cluster) -> None:
    others = ["X-Requested-With", "X-Auth-Token", "X-Api-Key", "X_Api_Key", "X-CSRF-Token", "X-Request-ID", "Via"]
    with edge(cluster):
        lines = [f"{name}: kept" for name in others]
        found = dict(received(exchange(cluster.http_port, "GET / HTTP/1.1", f"Host: {HOST}", *lines)))

    assert {name for name, value in found.items() if value == "kept"} == {name.lower() for name in others}


@pytest.mark.parametrize("names", ["X-Forwarded-For, X-Real-IP, ssl-client-verify", "x-real-ip,  TE ,close", "Host"])
def test_names_in_connection_have_no_server_drop_headers(cluster: Cluster, names: str) -> None:
    with edge(cluster):
        found = dict(received(exchange(cluster.http_port, "GET / HTTP/1.1", f"Host: {HOST}", f"Connection: {names}")))

    assert found.get("connection", "") == ""
    assert SENT.items() <= found.items()


def test_a_trusted_proxy_is_believed_but_for_the_address(cluster: Cluster) -> None:
    sent = {"X-Scheme": "https", "X-Original-URI": "/before", "X-Forwarded-For": "203.0.113.5", "X-Real-IP": "9.9.9.9"}
    with edge(cluster, trustedProxies=[HERE]):
        found = dict(received(ask(cluster.http_port, HOST, headers={**sent, "Proxy": "forged"})))

    assert (found["x-scheme"], found["x-original-uri"]) == ("https", "/before")
    assert found["x-real-ip"] == "203.0.113.5"
    assert "proxy" not in found


def test_a_stranger_beside_trusted_proxies_is_not_believed(cluster: Cluster) -> None:
    with edge(cluster, trustedProxies=["192.0.2.1"], clientAddressHeader="X-Client"):
        headers = {"X-Scheme": "forged", "X_Client": "forged", "X-Client": "forged", "X-Forwarded-For": "forged"}
        found = dict(received(ask(cluster.http_port, HOST, headers=headers)))

    assert "forged" not in found.values()
    assert (found["x-real-ip"], found["x-forwarded-for"]) == (HERE, HERE)


def test_the_list_is_a_setting(cluster: Cluster) -> None:
    with edge(cluster, untrustedHeaders=["X-Mine-*", "*_*"], realIpHeader="X-Client-Address"):
        headers = {"X-Mine-A": "forged", "Any_Name": "forged", "X-Scheme": "kept", "X-Client-Address": "forged"}
        found = dict(received(ask(cluster.http_port, HOST, headers={**headers, "X_Forwarded_For": "forged"})))

    assert "forged" not in found.values()
    assert (found["x-scheme"], found["x-client-address"]) == ("kept", HERE)
    assert "x-real-ip" not in found
