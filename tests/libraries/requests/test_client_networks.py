"""Limits of a client on a real HAProxy: an IPv6 client does not get another limit with each address of its network."""

import socket
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import pytest

from tests.libraries.conftest import Cluster
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service
from tests.support.traffic.raw import exchange
from tests.support.traffic.servers import PATIENCE, serving

pytestmark = pytest.mark.haproxy

HERE = "127.0.0.1"
LIMIT = 2
LIMITS: Mapping[str, Mapping[str, str]] = {
    "nginx.test": {
        "nginx.ingress.kubernetes.io/limit-rpm": str(LIMIT),
        "nginx.ingress.kubernetes.io/limit-burst-multiplier": "1",
    },
    "org.test": {"haproxy.org/rate-limit-requests": str(LIMIT), "haproxy.org/rate-limit-period": "1h"},
    "haptic.test": {"haptic-trio/rate-limit": str(LIMIT), "haptic-trio/rate-limit-period": "1h"},
}
"""Annotations that limit requests, by host."""
LIBRARIES = ("base", "ssl", "ingress", "nginx-annotations", "haproxy-org-annotations", "haptic-annotations")


def serve(cluster: Cluster, port: int, **settings: Any) -> None:
    cluster.serve(
        *(ingress(host[:3], rule(host, path("/", "web")), annotations=dict(own)) for host, own in LIMITS.items()),
        ingress("none", rule("none.test", path("/", "web"))),
        service("web"),
        endpoint_slice("web", endpoint(HERE), ports=port),
        libraries=LIBRARIES,
        trustedProxies=[HERE],
        **settings,
    )


def served(cluster: Cluster, host: str, *clients: str) -> list[bool]:
    """Return for a request of each of *clients* whether it is served."""
    statuses = [
        exchange(cluster.http_port, "GET / HTTP/1.1", f"Host: {host}", f"X-Forwarded-For: {client}").status
        for client in clients
    ]
    return [status == 200 for status in statuses]


def test_all_addresses_of_a_network_share_a_limit_of_requests(cluster: Cluster) -> None:
    with serving("web") as running:
        serve(cluster, running["web"], rateLimit=len(LIMITS) * (LIMIT + 1), rateLimitPeriod="1h")

        for host in LIMITS:
            assert served(cluster, host, "2001:db8::1", "2001:db8::2", "2001:db8::3") == [True, True, False]
            assert served(cluster, host, f"2001:db8:0:{host[:1].encode().hex()}::1") == [True]
            # IPv4 clients are counted one by one, whatever they have in common.
            assert served(cluster, host, "192.0.2.1", "::ffff:192.0.2.1", "192.0.2.1") == [True, True, False]
            assert served(cluster, host, "192.0.2.2") == [True]
        # The limit of the administrator: as many requests of this network were counted before.
        assert served(cluster, "none.test", "2001:db8::4", "2001:db8:0:1::1") == [False, True]


def test_the_length_of_a_network_is_a_setting(cluster: Cluster) -> None:
    with serving("web") as running:
        serve(cluster, running["web"], clientPrefixLength=128)

        for host in LIMITS:
            assert served(cluster, host, "2001:db8::1", "2001:db8::2", "2001:db8::3") == [True, True, True]


def test_all_addresses_of_a_network_share_a_limit_of_connections(cluster: Cluster) -> None:
    with serving("web") as running, ExitStack() as stack:
        serve(cluster, running["web"], connectionsPerClient=LIMIT, proxyProtocolFrom=[HERE])

        def answers(client: str) -> bool:
            connection = stack.enter_context(socket.create_connection((HERE, cluster.http_port), PATIENCE))
            family, own = ("TCP6", "2001:db8:ffff::1") if ":" in client else ("TCP4", "203.0.113.1")
            connection.sendall(f"PROXY {family} {client} {own} 1000 80\r\n".encode())
            try:
                connection.sendall(b"GET / HTTP/1.1\r\nHost: none.test\r\n\r\n")
                return connection.recv(12) == b"HTTP/1.1 200"
            except ConnectionError:
                return False

        clients = ["2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:0:1::1", "192.0.2.1", "192.0.2.2"]
        assert [answers(client) for client in clients] == [True, True, False, True, True, True]
