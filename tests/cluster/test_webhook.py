"""The real API server asks the controllers before it accepts an Ingress."""

import base64
import os
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import trio
import trustme

from haptic_trio.k8s.resource import Resource
from tests.cluster.client import Cluster, until
from tests.cluster.controllers import Site, installing
from tests.cluster.etcd import write_objects
from tests.cluster.test_status import events_about

pytestmark = pytest.mark.cluster
LIMIT = 180.0
MANY = 1_000
SHARED = 10
"""Ingresses with one Service behind them."""
SAMPLES = 220
SLOWEST = 0.25
"""Seconds that 99 of 100 requests take at most, from the client to the API server and back."""
BUSY = 0.75
"""Load of a processor from which on others have it, too."""
REFUSED = 422
PORT = 9443


def certificate_of(namespace: str) -> tuple[trustme.CA, Resource]:
    """Return an authority, and the Secret with a certificate of it for the webhook's Service."""
    authority = trustme.CA()
    issued = authority.issue_cert(f"webhook.{namespace}.svc")
    content = {"tls.crt": issued.cert_chain_pems[0].bytes(), "tls.key": issued.private_key_pem.bytes()}
    data = {key: base64.b64encode(value).decode() for key, value in content.items()}
    return authority, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "webhook-tls"}, "data": data}


def webhook_of(namespace: str, authority: trustme.CA) -> Resource:
    """Return what has the API server ask about the Ingresses of *namespace*."""
    service = {"namespace": namespace, "name": "webhook", "path": "/validate", "port": 443}
    rule = {
        "apiGroups": ["networking.k8s.io"],
        "apiVersions": ["v1"],
        "resources": ["ingresses"],
        "operations": ["CREATE", "UPDATE", "DELETE"],
    }
    one = {
        "name": "ingresses.networking.k8s.io",
        "rules": [rule],
        "clientConfig": {
            "service": service,
            "caBundle": base64.b64encode(authority.cert_pem.bytes()).decode(),
        },
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "timeoutSeconds": 5,
        "admissionReviewVersions": ["v1"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": namespace},
        "webhooks": [one],
    }


def service_of(label: str) -> Resource:
    ports = [{"name": "webhook", "port": 443, "targetPort": PORT}]
    spec = {"selector": {"app": label}, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "webhook"}, "spec": spec}


def headless(name: str) -> list[Resource]:
    """Return a Service and its endpoint, which nobody will ask."""
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
    """One whose Ingresses are told no address: a thousand of them would be a thousand changes to begin with."""

    def controllers(self, replicas: int) -> Resource:
        """See `Site.controllers`."""
        made = super().controllers(replicas)
        arguments = made["spec"]["template"]["spec"]["containers"][0]["args"]
        at = arguments.index("--publish-service")
        del arguments[at : at + 2]
        return made


class Reviewed:
    """A site whose Ingresses are reviewed."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._path = f"/apis/networking.k8s.io/v1/namespaces/{site.namespace}/ingresses"

    async def create(self, resource: Resource, *, keep: bool = False) -> httpx.Response:
        """Have the API server create *resource*, or only say what would come of it."""
        parameters = {} if keep else {"dryRun": "All"}
        return await self.site.cluster.client.post(self._path, json=resource, params=parameters)

    async def is_refused(self, resource: Resource) -> bool:
        return (await self.create(resource)).status_code == REFUSED

    async def passes(self, resource: Resource) -> bool:
        return (await self.create(resource)).is_success

    def broken(self, name: str, path: str = '/a"b c') -> Resource:
        found = self.site.ingress(name, f"{name}.test", path=path)
        found["spec"]["rules"][0]["http"]["paths"][0]["pathType"] = "Exact"
        return found


@asynccontextmanager
async def reviewed(cluster: Cluster, namespace: str, root: Path, *, many: int = 0) -> AsyncIterator[Reviewed]:
    """Install a site with so *many* Ingresses, and have the API server ask its controller."""
    authority, secret = certificate_of(namespace)

    async def prepare(site: Site) -> None:
        site.controller_environment = {
            "HAPTIC_WEBHOOK_LISTEN": f"0.0.0.0:{PORT}",
            "HAPTIC_WEBHOOK_CERT": "/webhook/tls.crt",
            "HAPTIC_WEBHOOK_KEY": "/webhook/tls.key",
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

    unpublished = UnpublishedSite(cluster, namespace, root)
    async with installing(unpublished, prepare=prepare, controllers=1, limit=60) as site:
        found = Reviewed(site)
        try:
            await site.apply(service_of("controller"))
            await cluster.apply([webhook_of(namespace, authority)])
            # It takes the API server a moment to know of it.
            await until(lambda: found.is_refused(found.broken("probe")))
            yield found
        finally:
            with trio.move_on_after(5, shield=True):
                await cluster.delete(webhook_of(namespace, authority))


async def measure(name: str, reviewed: Reviewed, resources: list[Resource], status: int) -> tuple[float, float]:
    """Return the median of how long each takes, and the 99th percentile; see to it that it is answered so."""
    times = []
    for resource in resources:
        began = time.perf_counter()
        answer = await reviewed.create(resource)
        times.append(time.perf_counter() - began)
        assert answer.status_code == status, answer.text
    median, slowest = statistics.median(times), sorted(times)[int(0.99 * len(times))]
    print(f"{name}: median {median * 1e3:.1f} ms, p99 {slowest * 1e3:.1f} ms of {len(times)}")  # noqa: T201
    return median, slowest


def told(answer: httpx.Response) -> str:
    """Return what the API server says of a refusal."""
    return str(answer.json()["message"])


async def test_api_server_refuses_what_could_not_be_served_in_time_and_everything_passes_while_nobody_answers(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    with trio.fail_after(LIMIT):
        async with reviewed(cluster, namespace, tmp_path, many=MANY) as found:
            await see_refusals(found)
            await see_times(found)
            await see_absence(found)
            await see_another_certificate(found)


async def see_refusals(found: Reviewed) -> None:
    """What could not be served is refused in words, and everything else passes."""
    site = found.site
    answer = await found.create(found.broken("broken"), keep=True)
    assert answer.status_code == REFUSED
    assert f"Ingress {site.namespace}/broken cannot be served by HAProxy as it is" in told(answer)
    assert await site.cluster.find(site.path("ingresses", "broken")) is None

    answer = await found.create(site.ingress("good", "good.test"), keep=True)
    assert answer.status_code == 201
    assert answer.headers.get("warning") is None
    await site.until_served("good.test")

    answer = await found.create(site.ingress("second", "good.test", backend="other"))
    assert answer.status_code == 201
    assert "good.test" in answer.headers["warning"]
    assert await events_about(site, "Ingress", "broken") == []


async def see_times(found: Reviewed) -> None:
    """Nobody waits long for a review."""
    site = found.site
    samples = [site.ingress(f"n{n}", f"n{n}.test") for n in range(SAMPLES)]
    good = await measure("good", found, samples, 201)
    bad = await measure("bad", found, [found.broken(f"b{n}") for n in range(SAMPLES // 4)], REFUSED)

    assert max(good[0], bad[0]) <= SLOWEST
    # One in a hundred tells of the machine where others work on it, too.
    if os.getloadavg()[0] <= BUSY * (os.cpu_count() or 1):
        assert max(good[1], bad[1]) <= SLOWEST


async def see_absence(found: Reviewed) -> None:
    """Nobody waits for a webhook that is down; what passes is quarantined, concerns nobody else, and can be mended."""
    site = found.site
    # Nobody stands behind the Service any more.
    await site.apply(service_of("nobody"))
    await until(lambda: found.passes(found.broken("probe")))
    answer = await found.create(found.broken("broken"), keep=True)
    assert answer.status_code == 201
    (event,) = await until(lambda: events_about(site, "Ingress", "broken"))
    assert event["reason"] == "Quarantined"

    await site.apply(service_of("controller"))
    await until(lambda: found.is_refused(found.broken("probe")))
    assert (await found.create(site.ingress("other", "other.test"))).status_code == 201
    labelled = await site.cluster.client.patch(
        site.path("ingresses", "broken"),
        json={"metadata": {"labels": {"a": "b"}}},
        headers={"content-type": "application/merge-patch+json"},
    )
    assert labelled.status_code == 200, labelled.text
    assert "as before" in labelled.headers["warning"]
    await site.apply(site.ingress("broken", "broken.test"))
    await site.until_served("broken.test")
    assert (await site.cluster.client.delete(site.path("ingresses", "broken"))).status_code == 200


async def see_another_certificate(found: Reviewed) -> None:
    """A certificate by another authority is in use while everything runs."""
    site = found.site
    authority, secret = certificate_of(site.namespace)
    await site.apply(secret)
    await site.cluster.apply([webhook_of(site.namespace, authority)])
    # The former authority knows nothing of it: as long as it counts, everything passes.
    await until(lambda: found.is_refused(found.broken("probe")))
