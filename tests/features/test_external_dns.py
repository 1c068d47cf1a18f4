"""DNS records that external-dns makes from objects and the status that the controller writes."""

from pathlib import Path
from typing import Any

import pytest

from haptic_trio.cli.serving.publishing import Publishing
from haptic_trio.k8s.resource import Resource, ResourceType
from tests.features.cert_manager import HOST, Edge, certificate
from tests.features.harness import controller
from tests.support.external_dns import Records, records_of
from tests.support.processes.haproxy import backend

pytestmark = pytest.mark.haproxy
ADDRESSES = ("192.0.2.10", "2001:db8::10", "lb.example.com")
GATEWAY_API = "gateway.networking.k8s.io/v1"


def stored(edge: Edge, api_version: str, plural: str, name: str) -> Resource:
    return edge.site.server.stored(ResourceType(api_version, plural), "default", name)


def ingress_records(edge: Edge) -> Records:
    return records_of(ingresses=[stored(edge, "networking.k8s.io/v1", "ingresses", "shop")])


def route_records(edge: Edge, route: str) -> Records:
    gateways = [stored(edge, GATEWAY_API, "gateways", "edge")]
    return records_of(routes=[stored(edge, GATEWAY_API, "httproutes", route)], gateways=gateways)


def records(host: str) -> Records:
    """Return the records that lead *host* to all addresses."""
    v4, v6, name = ADDRESSES
    return {(host, "A"): {v4}, (host, "AAAA"): {v6}, (host, "CNAME"): {name}}


async def test_external_dns_finds_each_host_with_the_published_addresses(edge: Edge, haproxy_binary: Path) -> None:
    async with backend("one") as web:
        edge.write(web)
        edge.site.write("gateway-secret", certificate("gateway-tls"))
        async with controller(edge.site, haproxy_binary, publishing=Publishing(addresses=ADDRESSES)):
            server = edge.site.server

            def all_records() -> list[Records]:
                return [ingress_records(edge), *(route_records(edge, route) for route in ("shop-http", "shop"))]

            await server.until(lambda: all(all_records()))
            assert all_records() == [records(HOST)] * 3
            parents = stored(edge, GATEWAY_API, "httproutes", "shop")["status"]["parents"]
            assert [parent["controllerName"] for parent in parents] == ["haptic-trio/gateway-controller"]
            addresses = stored(edge, GATEWAY_API, "gateways", "edge")["status"]["addresses"]
            assert [entry["type"] for entry in addresses] == ["IPAddress", "IPAddress", "Hostname"]

            # Another host: the old name has no record any more, and the new one has them all.
            changed = stored(edge, GATEWAY_API, "httproutes", "shop-http")
            server.put(with_spec(changed, hostnames=["new.localhost"]))
            await server.until(lambda: route_records(edge, "shop-http") == records("new.localhost"))
            # A listener that does not exist accepts no route, so no name leads there.
            parents = [{"name": "edge", "sectionName": "absent"}]
            server.put(with_spec(changed, parentRefs=parents))
            await server.until(lambda: is_rejected(stored(edge, GATEWAY_API, "httproutes", "shop-http")))
            assert route_records(edge, "shop-http") == {}
            # An Ingress that leaves the class loses its addresses.
            ingress = stored(edge, "networking.k8s.io/v1", "ingresses", "shop")
            server.put(with_spec(ingress, ingressClassName="another"))
            await server.until(lambda: not ingress_records(edge))
            assert route_records(edge, "shop") == records(HOST)


def with_spec(resource: Resource, **fields: Any) -> Resource:
    return {**resource, "spec": {**resource["spec"], **fields}}


def is_rejected(route: Resource) -> bool:
    """Whether the status says that the present generation of *route* is not accepted."""
    conditions = [one for parent in route["status"]["parents"] for one in parent["conditions"]]
    generation = route["metadata"]["generation"]
    return any(
        (one["type"], one["status"], one["observedGeneration"]) == ("Accepted", "False", generation)
        for one in conditions
    )
