"""Routes with a filter of the administrator; HAProxy 3.4 needs no reload for one that is the same for all routes."""

from pathlib import Path

import pytest

from haptic_trio.dataplane.binary import probe_version
from tests.features.cert_manager import Edge, gateway_object
from tests.features.harness import controller
from tests.features.test_acme_challenges import answers
from tests.support.processes.haproxy import backend

pytestmark = pytest.mark.haproxy
BACKENDS_AT_RUNTIME = (3, 4)


async def test_a_route_with_error_pages_comes_and_goes(edge: Edge, haproxy_binary: Path) -> None:
    pages = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "pages", "namespace": "default"}}
    extension = {"group": "haptic-trio.io", "kind": "Filter", "name": "error-pages"}
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": "/empty"}}],
        "filters": [{"type": "ExtensionRef", "extensionRef": extension}],
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
