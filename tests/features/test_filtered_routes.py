"""Routes with a filter of the administrator; HAProxy 3.4 needs no reload for one that is the same for all routes."""

from pathlib import Path

import pytest

from haptic_trio.dataplane.binary import probe_version
from haptic_trio.messages import Quarantined
from tests.features.cert_manager import HOST, Edge, gateway_object
from tests.features.harness import Site, controller, request
from tests.features.test_acme_challenges import answers
from tests.gateway.filters.test_extension_filters import CLIENTS, extension
from tests.support.processes.haproxy import backend
from tests.support.processes.ports import free_port

pytestmark = pytest.mark.haproxy
BACKENDS_AT_RUNTIME = (3, 4)


async def test_a_route_with_error_pages_comes_and_goes(edge: Edge, haproxy_binary: Path) -> None:
    pages = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "pages", "namespace": "default"}}
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": "/empty"}}],
        "filters": [extension("error-pages")],
        "backendRefs": [{"name": "empty", "port": 80}],
    }
    parents = [{"name": "edge", "sectionName": "http"}]
    async with backend("one") as web:
        edge.write(web, gatewayFilters={"error-pages": ["default"]}, gatewayErrorPages="default/pages")
        edge.site.write("pages", {**pages, "data": {"503": "back soon"}})
        edge.site.write_service("empty")
        async with controller(edge.site, haproxy_binary) as running:
            await answers(edge.gateway_http, "/empty", 301)
            await running.quiet()
            before = await running.reloads()
            route = gateway_object("HTTPRoute", "empty", {"parentRefs": parents, "rules": [rule]})
            route["spec"]["hostnames"] = ["shop.localhost"]
            edge.site.write("empty", route)
            await answers(edge.gateway_http, "/empty", "back soon")
            edge.site.remove("empty")
            await answers(edge.gateway_http, "/empty", 301)
            await running.quiet()
            reloads = await running.reloads() - before

    assert reloads == 0 or probe_version(haproxy_binary).number[:2] < BACKENDS_AT_RUNTIME


async def test_a_former_version_without_the_filter_is_not_served_instead(site: Site, haproxy_binary: Path) -> None:
    port = free_port()
    context = {"bindAddress": "127.0.0.1", "httpPort": site.port, "gatewayFilters": {"clients": ["*"]}}
    site.write_config(
        templating={"libraries": ["base", "ssl", "gateway"], "extraContext": context},
        templateSnippets={"gateway-filter-clients": {"template": CLIENTS}},
    )
    gateway_class = gateway_object("GatewayClass", "haptic", {"controllerName": "haptic-trio/gateway-controller"})
    listener = {"name": "http", "port": port, "protocol": "HTTP"}
    site.write(
        "gateway",
        gateway_class,
        gateway_object("Gateway", "edge", {"gatewayClassName": "haptic", "listeners": [listener]}),
    )

    def write(clients: str) -> None:
        rule = {"filters": [extension("clients")] if clients else [], "backendRefs": [{"name": "web", "port": 80}]}
        spec = {"parentRefs": [{"name": "edge"}], "hostnames": [HOST], "rules": [rule]}
        route = gateway_object("HTTPRoute", "shop", spec)
        route["metadata"]["annotations"] = {"example.com/clients": clients}
        site.write("route", route)

    async with backend("one") as web:
        site.write_service("web", web)
        write("")
        async with controller(site, haproxy_binary) as running:
            await answers(port, "/", 200)
            write("192.0.2.0/33")
            found = await running.wait(Quarantined, lambda event: event.ref.name == "shop")
            await running.quiet()
            closed = await request(port, HOST, "/")
            write("192.0.2.0/24")
            await answers(port, "/", 403)
            since = len(running.events)
            write("192.0.2.0/33")
            again = await running.wait(Quarantined, lambda event: event.ref.name == "shop", since=since)
            await running.quiet()
            denied = await request(port, HOST, "/")

    assert (closed[0], found.has_fallback) == (500, False)
    assert (denied[0], again.has_fallback) == (403, True)
