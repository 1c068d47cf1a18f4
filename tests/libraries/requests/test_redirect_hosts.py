"""Redirects to the host of a request: none leads to the beginning of a path, which browsers take for the host."""

from pathlib import Path

import pytest

from tests.gateway.filters.test_filters import leading_to
from tests.gateway.objects import gateway, route
from tests.gateway.objects import rule as route_rule
from tests.gateway.serving import served
from tests.libraries.conftest import Cluster
from tests.libraries.requests.test_external_auth import URL, deciding, servers
from tests.libraries.tenants.tenants import ALL, HI, NGINX
from tests.support.kubernetes import ingress, path, rule
from tests.support.processes.ports import free_port
from tests.support.traffic.raw import exchange
from tests.support.traffic.servers import serving

pytestmark = pytest.mark.haproxy

HOST, EVIL = "a.example.com", "evil.example.com"
WITHOUT = [(), ("Host: ",), ("Host: .",), ("Host: :80",)]
"""The headers of requests that name no host."""
REDIRECTS = {
    "nginx": ({f"{NGINX}force-ssl-redirect": "true"}, f"https://{HOST}:8443//{EVIL}/?x"),
    "haproxy-ingress": ({f"{HI}ssl-redirect": "true"}, f"https://{HOST}:8443//{EVIL}/?x"),
    "haproxy.org": (
        {"haproxy.org/ssl-redirect": "true", "haproxy.org/ssl-redirect-port": "443"},
        f"https://{HOST}//{EVIL}/?x",
    ),
    "permanent": ({f"{NGINX}permanent-redirect": "https://$host$request_uri"}, f"https://{HOST}//{EVIL}/?x"),
    "temporal": ({f"{NGINX}temporal-redirect": "$scheme://$host/b"}, f"http://{HOST}/b"),
    "redirect-to": ({f"{HI}redirect-to": "https://$host/b"}, f"https://{HOST}/b"),
    "sign-in": (
        {f"{NGINX}auth-url": URL, f"{NGINX}auth-signin": "https://$host/in"},
        f"https://{HOST}/in?rd=http://{HOST}%2F%2F{EVIL}%2F%3Fx",
    ),
}


def locations(port: int) -> list[tuple[int, str]]:
    """Return statuses and Locations of answers to requests without a host, and to one with the host HOST."""
    # The path is what a redirect without a host would lead to.
    target = f"GET //{EVIL}/?x HTTP/1.0"
    answers = [exchange(port, target, *lines) for lines in (*WITHOUT, (f"Host: {HOST}",))]
    return [(answer.status, answer.headers.get("location", "")) for answer in answers]


@pytest.mark.parametrize("name", REDIRECTS)
def test_a_request_without_a_host_is_not_redirected_to_one(cluster: Cluster, name: str) -> None:
    annotations, location = REDIRECTS[name]
    with serving("web") as running, deciding() as decider:
        cluster.serve(
            ingress("web", rule(None, path("/", "web")), annotations=annotations, tls=[{"hosts": [HOST]}]),
            *servers(running["web"], decider),
            libraries=ALL,
            sslRedirectPort=8443,
            normalizePaths=False,
        )
        *without, (status, found) = locations(cluster.http_port)

    assert without == [(400, "")] * len(WITHOUT)
    assert 300 < status < 400
    assert found == location


def test_nor_is_one_to_a_gateway(tmp_path: Path) -> None:
    port = free_port()
    redirect = {"type": "RequestRedirect", "requestRedirect": {"scheme": "https", "statusCode": 302}}
    rule_of_route = route_rule(filters=[redirect])
    del rule_of_route["backendRefs"]
    objects = [gateway("gw", {"name": "web", "port": port, "protocol": "HTTP"}), *leading_to("web", port)]
    with served(tmp_path, port, *objects, route("web", rule_of_route), normalizePaths=False):
        *without, found = locations(port)

    assert without == [(400, "")] * len(WITHOUT)
    assert found == (302, f"https://{HOST}//{EVIL}/?x")
