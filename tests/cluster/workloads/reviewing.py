"""A site whose Ingresses and configuration the API server asks about, and how long that takes.

python -m tests.cluster.workloads.reviewing [--size 1000] [--samples 300]
"""

import argparse
import base64
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import httpx
import msgspec
import trio
import trustme

from haptic_trio.k8s.resource import Resource
from tests.cluster.control_plane.certificates import WEBHOOK_CLIENT
from tests.cluster.control_plane.etcd import write_objects
from tests.cluster.rig import open_cluster
from tests.cluster.workloads.client import Cluster, until
from tests.cluster.workloads.controllers import Site, installing

SHARED: Final = 10
"""Ingresses with one Service behind them."""
CONFIGURATIONS: Final = 20
REJECTED: Final = 422
PORT: Final = 9443
_CPU: Final = re.compile(r"^process_cpu_seconds_total (\S+)$", re.MULTILINE)


def certificate_of(site: Site) -> tuple[trustme.CA, Resource]:
    """Return an authority, and the Secret with a certificate of it for the webhook's Service, and who may ask."""
    authority = trustme.CA()
    issued = authority.issue_cert(f"webhook.{site.namespace}.svc")
    content = {
        "tls.crt": issued.cert_chain_pems[0].bytes(),
        "tls.key": issued.private_key_pem.bytes(),
        "ca.crt": site.cluster.state.certificates.authority.read_bytes(),
    }
    data = {key: base64.b64encode(value).decode() for key, value in content.items()}
    return authority, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "webhook-tls"}, "data": data}


def webhook_of(namespace: str, authority: trustme.CA, service: str = "webhook") -> Resource:
    """Return what has the API server ask *service* about the Ingresses of *namespace*, and about the configuration."""
    call = {
        "clientConfig": {
            "service": {"namespace": namespace, "name": service, "path": "/validate", "port": 443},
            "caBundle": base64.b64encode(authority.cert_pem.bytes()).decode(),
        },
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    rule = {"apiVersions": ["v1"], "operations": ["CREATE", "UPDATE", "DELETE"]}
    own = [{"name": "own-configuration", "expression": "request.name == 'haptic-trio'"}]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": namespace},
        "webhooks": [
            {
                "name": "ingresses.networking.k8s.io",
                "rules": [{**rule, "apiGroups": ["networking.k8s.io"], "resources": ["ingresses"]}],
                "timeoutSeconds": 5,
                **call,
            },
            {
                "name": "configuration.core.haptic-trio",
                "rules": [{**rule, "apiGroups": [""], "resources": ["configmaps"]}],
                "timeoutSeconds": 10,
                "matchConditions": own,
                **call,
            },
        ],
    }


def service_of(label: str, name: str = "webhook") -> Resource:
    """Return the webhook's Service, before the Pods with `app` *label*."""
    ports = [{"name": "webhook", "port": 443, "targetPort": PORT}]
    spec = {"selector": {"app": label}, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def headless(name: str) -> list[Resource]:
    """Return a Service and its endpoint, which gets no request."""
    spec = {"clusterIP": "None", "clusterIPs": ["None"], "ports": [{"name": "http", "port": 80}]}
    endpoints = {
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": True}}],
    }
    labels = {"kubernetes.io/service-name": name}
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": f"{name}-1", "labels": labels},
            **endpoints,
        },
    ]


class UnpublishedSite(Site):
    """One whose Ingresses receive no address: a thousand of them would be a thousand changes to begin with."""

    def controllers(self, replicas: int) -> Resource:
        """See `Site.controllers`."""
        made = super().controllers(replicas)
        arguments = made["spec"]["template"]["spec"]["containers"][0]["args"]
        at = arguments.index("--publish-service")
        del arguments[at : at + 2]
        return made


class Reviewed:
    """A site whose Ingresses and configuration are reviewed."""

    def __init__(self, site: Site, authority: trustme.CA) -> None:
        self.site = site
        self._authority = authority
        self._path = f"/apis/networking.k8s.io/v1/namespaces/{site.namespace}/ingresses"

    async def renew_certificate(self) -> None:
        """Have the API server trust another authority alone, and give the webhook a certificate of that one."""
        self._authority, secret = certificate_of(self.site)
        await self.ask_at("webhook")
        # The server has a certificate of another authority.
        await until(lambda: self.passes(self.broken("probe")))
        await self.site.apply(secret)

    async def ask_at(self, service: str) -> None:
        """Have the API server ask at *service* from now on, on a new connection."""
        await self.site.cluster.apply([webhook_of(self.site.namespace, self._authority, service)])

    async def create(self, resource: Resource, *, keep: bool = False) -> httpx.Response:
        """Have the API server create *resource*, or only say what would come of it."""
        parameters = {} if keep else {"dryRun": "All"}
        return await self.site.cluster.client.post(self._path, json=resource, params=parameters)

    async def configure(self, text: str) -> httpx.Response:
        """Have the API server say what would come of *text* as the configuration."""
        return await self.site.cluster.client.patch(
            self.site.path("configmaps", "haptic-trio"),
            json={"data": {"config": text}},
            params={"dryRun": "All"},
            headers={"content-type": "application/merge-patch+json"},
        )

    async def is_rejected(self, resource: Resource) -> bool:
        """Whether it would not be created."""
        return (await self.create(resource)).status_code == REJECTED

    async def passes(self, resource: Resource) -> bool:
        """Whether it would be created."""
        return (await self.create(resource)).is_success

    def broken(self, name: str, path: str = '/a"b c') -> Resource:
        """Return an Ingress that cannot be served."""
        found = self.site.ingress(name, f"{name}.test", path=path)
        found["spec"]["rules"][0]["http"]["paths"][0]["pathType"] = "Exact"
        return found


@asynccontextmanager
async def reviewed(cluster: Cluster, namespace: str, root: Path, *, many: int = 0) -> AsyncIterator[Reviewed]:
    """Install a site with so *many* Ingresses, and have the API server ask its controller, which knows it."""
    unpublished = UnpublishedSite(cluster, namespace, root)
    authority, secret = certificate_of(unpublished)

    async def prepare(site: Site) -> None:
        site.controller_environment = {
            "HAPTIC_WEBHOOK_LISTEN": f"0.0.0.0:{PORT}",
            "HAPTIC_WEBHOOK_CERT": "/webhook/tls.crt",
            "HAPTIC_WEBHOOK_KEY": "/webhook/tls.key",
            "HAPTIC_WEBHOOK_CLIENT_CA": "/webhook/ca.crt",
            "HAPTIC_WEBHOOK_CLIENTS": WEBHOOK_CLIENT,
        }
        source = {"secretName": "webhook-tls"}
        site.controller_volumes = [{"name": "webhook", "mountPath": "/webhook", "secret": source}]
        await site.apply(secret)
        shops = [one for n in range(many // SHARED) for one in headless(f"shop-{n}")]
        await write_objects(cluster, namespace, shops)
        ingresses = [
            site.ingress(f"many-{n:04d}", f"many-{n}.test", backend=f"shop-{n // SHARED}") for n in range(many)
        ]
        await write_objects(cluster, namespace, ingresses)

    async with installing(unpublished, prepare=prepare, controllers=1, limit=60) as site:
        found = Reviewed(site, authority)
        try:
            await site.apply(service_of("controller"), service_of("nobody", "nobody"))
            await found.ask_at("webhook")
            # It takes the API server a moment to know of it.
            await until(lambda: found.is_rejected(found.broken("probe")))
            yield found
        finally:
            with trio.move_on_after(5, shield=True):
                await cluster.delete(webhook_of(namespace, authority))


class Times(msgspec.Struct, frozen=True):
    """How long reviews took, in seconds, from a client of the API server and back."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        """Half of them took longer."""
        return statistics.median(self.samples)

    @property
    def slowest(self) -> float:
        """One in a hundred took longer."""
        return sorted(self.samples)[int(0.99 * len(self.samples))]

    def __str__(self) -> str:
        return f"median {self.median * 1e3:.1f} ms, p99 {self.slowest * 1e3:.1f} ms of {len(self.samples)}"


async def measure(found: Reviewed, resources: Sequence[Resource], status: int) -> Times:
    """Return how long the reviews of *resources* take; see to it that each is answered with *status*."""
    times = []
    for resource in resources:
        began = time.perf_counter()
        answer = await found.create(resource)
        times.append(time.perf_counter() - began)
        assert answer.status_code == status, answer.text
    return Times(tuple(times))


def samples_of(found: Reviewed, count: int) -> tuple[list[Resource], list[Resource]]:
    """Return *count* Ingresses that can be served, and a quarter as many that cannot."""
    site = found.site
    good = [site.ingress(f"n{n}", f"n{n}.test") for n in range(count)]
    return good, [found.broken(f"b{n}") for n in range(count // 4)]


async def measure_configurations(found: Reviewed, count: int) -> Times:
    """Return how long the reviews of so many configurations take, each of which could be had."""
    config = json.loads(found.site.config_map()["data"]["config"])
    times = []
    for number in range(count):
        text = json.dumps({**config, "reconciler": {"debounceInterval": f"{100 + number}ms"}}, indent=1)
        began = time.perf_counter()
        answer = await found.configure(text)
        times.append(time.perf_counter() - began)
        assert answer.is_success, answer.text
        assert answer.headers.get("warning") is None, answer.headers
    return Times(tuple(times))


async def _processor_time(found: Reviewed) -> float:
    """Return the seconds that the controller has had a processor for, without its children."""
    site = found.site
    (pod,) = await site.cluster.pods(site.namespace, "app=controller")
    async with site.cluster.http() as client:
        answer = await client.get(f"http://{pod['status']['podIP']}:9090/metrics")
    match = _CPU.search(answer.text)
    return float(match[1]) if match is not None else 0.0


async def _report(size: int, count: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        async with (
            open_cluster() as cluster,
            cluster.open_namespace() as namespace,
            reviewed(cluster, namespace, Path(root), many=size) as found,
        ):
            for name, resources, status in zip(
                ("accepted", "rejected"), samples_of(found, count), (201, REJECTED), strict=True
            ):
                before = await _processor_time(found)
                times = await measure(found, resources, status)
                each = (await _processor_time(found) - before) / len(resources)
                load, processors = os.getloadavg()[0], os.cpu_count()
                sys.stdout.write(
                    f"{name}: {times}; {each * 1e3:.1f} ms of a processor each; load {load:.1f} of {processors}\n"
                )
            sys.stdout.write(f"configurations: {await measure_configurations(found, CONFIGURATIONS)}\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1_000)
    parser.add_argument("--samples", type=int, default=300)
    options = parser.parse_args(arguments)
    trio.run(partial(_report, options.size, options.samples))


if __name__ == "__main__":
    main()
