"""DNS records that external-dns makes from a real API server, with its defaults, validation and generations."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml

from haptic_trio.cli.inputs.options import make_input
from haptic_trio.cli.serve import ServeOptions, run_serve
from haptic_trio.cli.serving.publishing import Publishing
from haptic_trio.k8s.resource import Resource
from tests.cluster.control_plane.binaries import BinaryUnavailableError
from tests.cluster.workloads.client import Cluster, until
from tests.conformance.programs import Programs, find_programs, provide_programs
from tests.conformance.site import is_established
from tests.support.external_dns import Records, records_of
from tests.support.kubernetes import ingress, ingress_class, path, rule, service
from tests.support.processes.haproxy import haproxy_binary, instance_root
from tests.support.processes.ports import free_port

__all__ = ["haproxy_binary", "instance_root"]
pytestmark = [pytest.mark.cluster, pytest.mark.haproxy]
LIMIT = 180.0
GROUP = "gateway.networking.k8s.io"
CHALLENGE = "/.well-known/acme-challenge/LoqXcYV8q5ONbJQxbmR7SCTNo3tiAXDfowyjxAjEuX0"


@pytest.fixture
def programs() -> Programs:
    """The definitions of the kinds of the Gateway API."""
    try:
        return provide_programs() if os.environ.get("HAPTIC_REQUIRE_CLUSTER") == "1" else find_programs()
    except BinaryUnavailableError as exc:
        pytest.skip(str(exc))


class Installation:
    """Objects in a namespace of a real API server."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace

    async def define_kinds(self, programs: Programs) -> None:
        """Define the kinds of the Gateway API."""
        for one in await self.cluster.apply(definitions(programs)):
            place = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{one['metadata']['name']}"
            await self.cluster.wait(place, is_established)

    async def apply(self, *objects: Resource) -> None:
        """Apply objects of this namespace."""
        for one in objects:
            # What the API server sets itself.
            for field in ("creationTimestamp", "resourceVersion", "uid"):
                one["metadata"].pop(field, None)
            one["metadata"]["namespace"] = self.namespace
        await self.cluster.apply(objects, self.namespace)

    def ingress(self, name: str, host: str, *, class_name: str = "", kind: str = "Prefix", at: str = "/") -> Resource:
        rules = [rule(host, path(at, "web", kind=kind))]
        return ingress(name, *rules, namespace=self.namespace, ingress_class=class_name or self.namespace)

    def gateway(self) -> Resource:
        listener = {"name": "http", "port": free_port(), "protocol": "HTTP", "hostname": "*.example.com"}
        return made("Gateway", "edge", {"gatewayClassName": self.namespace, "listeners": [listener]})

    async def of_kind(self, group: str, plural: str) -> list[Resource]:
        found, _ = await self.cluster.api.list(f"/{group}/namespaces/{self.namespace}/{plural}")
        return found

    async def records(self) -> Records:
        """Return the records of all objects of the namespace."""
        return records_of(
            ingresses=await self.of_kind("apis/networking.k8s.io/v1", "ingresses"),
            routes=await self.of_kind(f"apis/{GROUP}/v1", "httproutes"),
            gateways=await self.of_kind(f"apis/{GROUP}/v1", "gateways"),
            services=await self.of_kind("api/v1", "services"),
        )

    async def until_records(self, target: str, *hosts: str) -> None:
        """Return once external-dns would lead *hosts* to *target*, and no other name anywhere."""
        wanted = {(host, "A"): {target} for host in hosts}

        async def is_reached() -> bool:
            return await self.records() == wanted

        with trio.move_on_after(LIMIT / 3):
            await until(is_reached)
        assert await self.records() == wanted

    async def load_balancer(self, address: str) -> None:
        """Replace the Service of HAProxy by one with *address*."""
        annotations = {"external-dns.alpha.kubernetes.io/hostname": "lb.example.com"}
        found = service("haproxy", {"port": 80}, type="LoadBalancer", loadBalancerIP=address)
        found["metadata"] = {"name": "haproxy", "annotations": annotations}
        await self.cluster.delete({**found, "metadata": {**found["metadata"], "namespace": self.namespace}})
        await self.apply(found)


def definitions(programs: Programs) -> list[Resource]:
    """Return the definitions of the kinds of the Gateway API."""
    found = [one for file in programs.definitions for one in yaml.safe_load_all(file.read_text()) if one]
    return [one for one in found if one["kind"] == "CustomResourceDefinition"]


def made(kind: str, name: str, spec: Resource) -> Resource:
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def route(name: str, *hostnames: str, matches: str = "/", section: str = "http") -> Resource:
    rules = [
        {
            "matches": [{"path": {"type": "PathPrefix", "value": matches}}],
            "backendRefs": [{"name": "web", "port": 80}],
        }
    ]
    parents = [{"name": "edge", "sectionName": section}]
    return made("HTTPRoute", name, {"parentRefs": parents, "hostnames": list(hostnames), "rules": rules})


@asynccontextmanager
async def serving(found: Installation, binary: Path, root: Path) -> AsyncIterator[None]:
    """Run the controller over the objects, with a local HAProxy, and publish the Service `haproxy`."""
    context: dict[str, Any] = {
        "httpPort": free_port(),
        "bindAddress": "127.0.0.1",
        "ingressClass": found.namespace,
        "ingressController": f"test/{found.namespace}",
        "gatewayController": f"test/{found.namespace}",
    }
    config = {
        "templating": {"libraries": ["base", "ssl", "ingress", "gateway"], "extraContext": context},
        "controller": {"leaderElection": {"leaseName": "leader"}},
    }
    await found.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "haptic-trio"},
            "data": {"config": yaml.safe_dump(config)},
        }
    )
    source = make_input(
        None, found.namespace, "haptic-trio", "haptic-trio", os.fspath(binary), kubeconfig=found.cluster.kubeconfig
    )
    options = ServeOptions(
        input=source,
        state_dir=root / "state",
        on_exit="stop",
        listen="127.0.0.1:0",
        publishing=Publishing(service=(found.namespace, "haproxy")),
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(run_serve, options))
        yield
        nursery.cancel_scope.cancel()


async def test_records_follow_hosts_addresses_classes_and_deletions(
    programs: Programs, cluster: Cluster, namespace: str, haproxy_binary: Path, instance_root: Path
) -> None:
    first, second = "10.245.0.201", "10.245.0.202"
    found = Installation(cluster, namespace)
    of_cluster = [
        ingress_class(namespace, f"test/{namespace}"),
        made("GatewayClass", namespace, {"controllerName": f"test/{namespace}"}),
    ]
    try:
        with trio.fail_after(LIMIT):
            await found.define_kinds(programs)
            await cluster.apply(of_cluster)
            await found.load_balancer(first)
            await found.apply(
                service("web", {"port": 80}),
                found.ingress("shop", "shop.example.com"),
                found.ingress("foreign", "foreign.example.com", class_name="another"),
                found.gateway(),
                route("app", "app.example.com", "app.example.org"),
            )
            async with serving(found, haproxy_binary, instance_root):
                # The route's other host is none of its listener's, and `foreign` has no address of ours.
                await found.until_records(first, "lb.example.com", "shop.example.com", "app.example.com")

                # Objects of a challenge of cert-manager come and go without a record beyond that of their host.
                await found.apply(
                    found.ingress("solver", "shop.example.com", kind="ImplementationSpecific", at=CHALLENGE),
                    route("solver", "app.example.com", matches=CHALLENGE),
                )
                await cluster.wait(
                    f"/apis/networking.k8s.io/v1/namespaces/{namespace}/ingresses/solver",
                    lambda one: one and one["status"]["loadBalancer"].get("ingress"),
                )
                await found.until_records(first, "lb.example.com", "shop.example.com", "app.example.com")

                await found.apply(found.ingress("shop", "store.example.com"), route("app", "web.example.com"))
                await found.until_records(
                    first,
                    *("lb.example.com", "shop.example.com", "store.example.com"),
                    *("app.example.com", "web.example.com"),
                )
                for one in (found.ingress("solver", ""), route("solver")):
                    await cluster.delete(one, namespace)
                await found.until_records(first, "lb.example.com", "store.example.com", "web.example.com")

                await found.load_balancer(second)
                await found.until_records(second, "lb.example.com", "store.example.com", "web.example.com")

                await found.apply(
                    found.ingress("shop", "store.example.com", class_name="another"),
                    route("app", "web.example.com", section="absent"),
                )
                await found.until_records(second, "lb.example.com")
                await found.apply(found.ingress("shop", "store.example.com"), route("app", "web.example.com"))
                await found.until_records(second, "lb.example.com", "store.example.com", "web.example.com")
                for one in (found.ingress("shop", ""), route("app")):
                    await cluster.delete(one, namespace)
                await found.until_records(second, "lb.example.com")
    finally:
        with trio.move_on_after(10, shield=True):
            # Other tests of the session share the cluster.
            for one in [*of_cluster, *definitions(programs)]:
                await cluster.delete(one)
