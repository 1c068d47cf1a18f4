"""Headers that applications trust: what of them clients can send, and what servers get in their place."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from haptic_trio.config.libraries import load_library
from tests.gateway.filters.test_filters import leading_to
from tests.gateway.objects import gateway, route
from tests.gateway.objects import rule as route_rule
from tests.gateway.serving import served
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
    "Keep-Alive",
    "Proxy-Connection",
]
NAMES += ["X-WebAuth-User", "X-Authentik-Username", "X-Authenticated-Userid", "X-Consumer-Username", "X-Vouch-User"]
NAMES += ["X-MS-Client-Principal", "X-Amzn-OIDC-Identity", "X-Goog-Authenticated-User-Email", "Tailscale-User-Login"]
NAMES += ["Client-Cert", "Client-Cert-Chain", "X-Client-Cert", "X-ARR-ClientCert", "WL-Proxy-SSL", "X-TLS-Client-Cert"]
NAMES += ["$WSSN", "$WSRA", "$WSRU", "$wsis"]
NAMES += ["Script-Name", "Path-Info", "X-Script-Name", "X-Envoy-Internal", "X-Envoy-Max-Retries", "X-Sendfile-Type"]
"""Each of them with the value `forged`, and again with `_` for `-`, and other characters."""
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
            for separator in "-_.~"
            for start in range(0, len(NAMES), 40)
        ]

    for headers in found:
        assert "forged" not in dict(headers).values()
        assert dict(headers) == {**SENT, "host": HOST, "x-forwarded-port": str(cluster.http_port)}
        assert len(headers) == len(SENT) + 2


def test_a_gateway_does_the_same_over_http2(tmp_path: Path) -> None:
    port = free_port()
    fields = [(":method", "GET"), (":scheme", "http"), (":authority", HOST), (":path", "/")]
    names = [line.partition(":")[0].lower() for line in forged("-", "_", ".")]
    # With such a field, a request over HTTP/2 is malformed.
    fields += [(name, "forged") for name in names if name not in {"keep-alive", "proxy-connection"}]
    with serving("web") as ports:
        listener = {"name": "web", "port": port, "protocol": "HTTP"}
        objects = [gateway("gw", listener), *leading_to("web", ports["web"]), route("web", route_rule("/", to="web"))]
        found = []
        with served(tmp_path, port, *objects), connect_http2(port) as client:
            for start in range(4, len(fields), 60):
                client.send([*fields[:4], *fields[start : start + 60]])
                found.append(received(client.answer()))

    assert found
    for headers in found:
        assert "forged" not in dict(headers).values()
        assert SENT.items() <= dict(headers).items()


def test_other_headers_arrive(cluster: Cluster) -> None:
    others = ["X-Requested-With", "X-Auth-Token", "X-Api-Key", "X_Api_Key", "X-CSRF-Token", "X-Request-ID", "Via"]
    others += ["X-Auth-User", "X-Auth-Key", "X-Client-Info", "X-User-Agent", "X-HTTP-Method-Override", "X-Proxy-Cache"]
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


@pytest.mark.parametrize(
    "settings",
    [{}, {"trustedProxies": [HERE]}, {"trustedProxies": ["192.0.2.1"]}, {"forwardedHeaders": "append"}],
    ids=["alone", "trusted", "not trusted", "append"],
)
def test_no_other_spelling_of_a_header_of_the_edge_arrives(cluster: Cluster, settings: dict[str, Any]) -> None:
    names = ["X_Client_Address", "X-Client_Address", "X_Forwarded_For", "X-Forwarded_Proto", "X_Forwarded_Host"]
    names += ["X.Client.Address", "X-Forwarded.For", "X-Forwarded~Proto"]
    names += [name.replace("-", one) for one in "_.~+" for name in ("Content-Length", "Transfer-Encoding")]
    names += ["Proxy_Connection", "X_Request_ID"]
    with edge(cluster, realIpHeader="X-Client-Address", requestIdHeader="X-Request-ID", **settings):
        found = received(
            exchange(cluster.http_port, "GET / HTTP/1.1", f"Host: {HOST}", *(f"{name}: 6.6.6.6" for name in names))
        )

    assert not [name for name, value in found if "6.6.6.6" in value]
    assert dict(found)["x-client-address"] == HERE


@pytest.mark.parametrize("protocol", ["HTTP/1.1", "HTTP/2"])
def test_every_character_of_a_token_can_be_listed(cluster: Cluster, protocol: str) -> None:
    """To HAProxy none of them is special, neither in its configuration nor in a request."""
    listed = [f"x{one}a" for one in "!#$%&'+.^`|~"] + ["$W*", "#begin", "'begin'", "%srcx"]
    others = [f"x{one}b" for one in "!#$%&'+.^`|~"] + ["x$ab", "v$W", "begin"]
    with edge(cluster, untrustedHeaders=listed):
        sent = [(name.replace("*", "ssn"), "forged") for name in listed] + [(name, "kept") for name in others]
        if protocol == "HTTP/2":
            fields = [(":method", "GET"), (":scheme", "http"), (":authority", HOST), (":path", "/")]
            with connect_http2(cluster.http_port) as client:
                client.send([*fields, *((name.lower(), value) for name, value in sent)])
                answer = client.answer()
        else:
            lines = [f"{name}: {value}" for name, value in sent]
            answer = exchange(cluster.http_port, "GET / HTTP/1.1", f"Host: {HOST}", *lines)

    found = received(answer)
    assert "forged" not in dict(found).values()
    assert {name for name, value in found if value == "kept"} == {name.lower() for name in others}


def test_the_list_is_a_setting(cluster: Cluster) -> None:
    with edge(cluster, untrustedHeaders=["X-Mine-*", "*_*"], realIpHeader="X-Client-Address"):
        headers = {"X-Mine-A": "forged", "Any_Name": "forged", "X-Scheme": "kept", "X-Client-Address": "forged"}
        found = dict(received(ask(cluster.http_port, HOST, headers={**headers, "X_Forwarded_For": "forged"})))

    assert "forged" not in found.values()
    assert (found["x-scheme"], found["x-client-address"]) == ("kept", HERE)
    assert "x-real-ip" not in found
