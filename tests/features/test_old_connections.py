"""Connections that were open before a reload: their process has the former rules."""

import time
from pathlib import Path

import pytest
import trio

from tests.features.harness import Site, controller, ingress, service
from tests.gateway.objects import gateway_class, made
from tests.support.processes.haproxy import backend
from tests.support.processes.ports import free_port
from tests.support.traffic.http2 import Http2Client, connect_http2, get

pytestmark = pytest.mark.haproxy

HOST = "web.localhost"
DENY = {"nginx.ingress.kubernetes.io/whitelist-source-range": "10.9.9.9/32"}
MISDIRECTED = 421


def _status(client: Http2Client) -> int:
    client.send(get(HOST))
    return client.answer().status


def _status_in_the_end(client: Http2Client) -> int:
    """Send requests until one is not admitted by the rules of the former process, for 30 s at most."""
    began = time.monotonic()
    while (status := _status(client)) == 200 and time.monotonic() - began < 30:
        pass
    return status


@pytest.mark.parametrize("kind", ["Ingress", "Gateway"])
async def test_an_http2_connection_ends_with_the_rules_that_it_began_with(
    site: Site, haproxy_binary: Path, kind: str
) -> None:
    port = site.port if kind == "Ingress" else free_port()
    libraries = ["base", "ssl", "ingress", "nginx-annotations", "gateway"]
    settings = {"httpPort": site.port, "httpsPort": free_port(), "bindAddress": "127.0.0.1"}
    site.write_config(templating={"libraries": libraries, "extraContext": settings})
    site.write("gateway-class", gateway_class())
    site.write_class()
    listener = {"name": "http", "port": port, "protocol": "HTTP"}
    if kind == "Gateway":
        spec = {"gatewayClassName": "haptic", "listeners": [listener]}
        rules = [{"backendRefs": [{"name": "web", "port": 80}]}]
        route = {"parentRefs": [{"name": "gw"}], "hostnames": [HOST], "rules": rules}
        site.write("gateway", made("Gateway", "gw", namespace="default", spec=spec))
        site.write("route", made("HTTPRoute", "web", namespace="default", spec=route))
    # Of an Ingress, the guard is a new backend; the reload leaves the process of the Gateway behind as well.
    guarded = ingress("web", HOST, "web")
    site.write("ingress", guarded)
    async with backend("hello") as server:
        site.write("web", *service("web", server))
        async with controller(site, haproxy_binary) as running:
            await running.serves(site, HOST, "hello")
            with trio.fail_after(60), connect_http2(port, goes_on=True) as client:
                while await trio.to_thread.run_sync(_status, client) == 404:
                    pass
                guarded["metadata"]["annotations"] = DENY
                site.write("ingress", guarded)
                await running.answers(site, HOST, 403)

                assert await trio.to_thread.run_sync(_status_in_the_end, client) == MISDIRECTED
