"""DNS names and targets that external-dns reads from objects and their status, by the rules of its sources."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from haptic_trio.cli.serving.publishing import Publishing
from haptic_trio.k8s.resource import Resource, ResourceType
from tests.features.cert_manager import HOST, Edge, certificate
from tests.features.harness import controller
from tests.support.processes.haproxy import backend

pytestmark = pytest.mark.haproxy
ADDRESSES = ("192.0.2.10", "2001:db8::10", "lb.example.com")
GATEWAY_API = "gateway.networking.k8s.io/v1"


def names_of_ingress(ingress: Resource) -> dict[str, list[str]]:
    """Return the targets of each host, as the source `ingress` reads them: of rules and of `tls`, by the status."""
    status = ingress.get("status", {}).get("loadBalancer", {}).get("ingress", [])
    targets = [entry.get("ip") or entry["hostname"] for entry in status]
    hosts = [rule["host"] for rule in ingress["spec"].get("rules", []) if rule.get("host")]
    hosts += [host for tls in ingress["spec"].get("tls", []) for host in tls.get("hosts", [])]
    return dict.fromkeys(hosts, targets) if targets else {}


def names_of_route(route: Resource, gateways: dict[str, Resource]) -> dict[str, list[str]]:
    """Return the targets of each host, as the source `gateway-httproute` reads them."""
    found: dict[str, list[str]] = {}
    for parent in route.get("status", {}).get("parents", []):
        reference = parent["parentRef"]
        if reference not in route["spec"]["parentRefs"] or not is_accepted(route, parent["conditions"]):
            continue
        gateway = gateways[reference["name"]]
        for listener in gateway["spec"]["listeners"]:
            is_meant = reference.get("sectionName") in (None, listener["name"])
            if is_meant and listener.get("hostname", HOST) == HOST:
                for host in route["spec"]["hostnames"]:
                    found[host] = [entry["value"] for entry in gateway.get("status", {}).get("addresses", [])]
    return {host: targets for host, targets in found.items() if targets}


def is_accepted(route: Resource, conditions: list[dict[str, Any]]) -> bool:
    """Whether the current generation of *route* is accepted."""
    return any(
        (one["type"], one["status"], one["observedGeneration"]) == ("Accepted", "True", route["metadata"]["generation"])
        for one in conditions
    )


def stored(edge: Edge, api_version: str, plural: str, name: str) -> Resource:
    return edge.site.server.stored(ResourceType(api_version, plural), "default", name)


def names(edge: Edge) -> Iterator[dict[str, list[str]]]:
    """Yield what external-dns reads from the Ingress, and from each HTTPRoute."""
    yield names_of_ingress(stored(edge, "networking.k8s.io/v1", "ingresses", "shop"))
    gateways = {"edge": stored(edge, GATEWAY_API, "gateways", "edge")}
    for route in ("shop-http", "shop"):
        yield names_of_route(stored(edge, GATEWAY_API, "httproutes", route), gateways)


async def test_external_dns_finds_each_host_with_the_published_addresses(edge: Edge, haproxy_binary: Path) -> None:
    async with backend("one") as web:
        edge.write(web)
        edge.site.write("gateway-secret", certificate("gateway-tls"))
        async with controller(edge.site, haproxy_binary, publishing=Publishing(addresses=ADDRESSES)):
            await edge.site.server.until(lambda: all(names(edge)))

            assert list(names(edge)) == [{HOST: list(ADDRESSES)}] * 3
            parents = stored(edge, GATEWAY_API, "httproutes", "shop")["status"]["parents"]
            assert [parent["controllerName"] for parent in parents] == ["haptic-trio/gateway-controller"]
            addresses = stored(edge, GATEWAY_API, "gateways", "edge")["status"]["addresses"]
            assert [entry["type"] for entry in addresses] == ["IPAddress", "IPAddress", "Hostname"]
