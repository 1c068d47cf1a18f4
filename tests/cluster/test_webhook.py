"""The real API server asks the controllers before it accepts an Ingress."""

import json
import os
import ssl
from pathlib import Path

import httpx
import pytest
import trio

from tests.cluster.test_status import events_about
from tests.cluster.workloads.client import Cluster, until
from tests.cluster.workloads.reviewing import (
    PORT,
    REJECTED,
    Reviewed,
    measure,
    reviewed,
    samples_of,
)

pytestmark = pytest.mark.cluster
LIMIT = 180.0
FORBIDDEN = 403
MANY = 1_000
SAMPLES = 220
SLOWEST = 0.25
"""Seconds that 99 of 100 requests take at most, from the client to the API server and back."""
BUSY = 0.75
"""Load of a processor from which on others have it, too."""


def reported(answer: httpx.Response) -> str:
    """Return what the API server says of a rejection."""
    return str(answer.json()["message"])


async def test_api_server_rejects_invalid_objects_in_time_and_accepts_all_without_a_webhook_server(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    with trio.fail_after(LIMIT):
        async with reviewed(cluster, namespace, tmp_path, many=MANY) as found:
            await see_rejections(found)
            await see_configurations(found)
            await see_strangers(found)
            await see_times(found)
            await see_absence(found)
            await see_another_certificate(found)


async def see_rejections(found: Reviewed) -> None:
    """What could not be served is rejected in words, and everything else passes."""
    site = found.site
    answer = await found.create(found.broken("broken"), keep=True)
    assert answer.status_code == REJECTED
    assert f"Ingress {site.namespace}/broken cannot be served" in reported(answer)
    assert 'spec.rules[0].http.paths[0].path: "' in reported(answer)
    assert await site.cluster.find(site.path("ingresses", "broken")) is None

    answer = await found.create(site.ingress("good", "good.test"), keep=True)
    assert answer.status_code == 201
    assert answer.headers.get("warning") is None
    await site.until_served("good.test")

    answer = await found.create(site.ingress("second", "good.test", backend="other"))
    assert answer.status_code == 201
    assert "good.test" in answer.headers["warning"]
    assert await events_about(site, "Ingress", "broken") == []


async def see_configurations(found: Reviewed) -> None:
    """What would not become the configuration is rejected, with the place, and what would passes."""
    site = found.site
    config = json.loads(site.config_map()["data"]["config"])
    broken = await found.configure(json.dumps({**config, "reconcilers": {}}, indent=1))
    good = await found.configure(json.dumps({**config, "reconciler": {"debounceInterval": "150ms"}}))

    assert broken.status_code == REJECTED, broken.text
    assert f"ConfigMap {site.namespace}/haptic-trio is not a valid configuration" in reported(broken)
    assert "of `config`: " in reported(broken)
    assert "reconcilers" in reported(broken)
    assert good.status_code == 200, good.text
    assert good.headers.get("warning") is None


async def see_strangers(found: Reviewed) -> None:
    """Only the API server is admitted, and has shown its certificate for all rejected objects."""
    site = found.site
    (pod,) = await site.cluster.pods(site.namespace, "app=controller")
    url = f"https://{pod['status']['podIP']}:{PORT}/validate"
    nothing, administrator = anonymous(), anonymous()
    administrator.load_cert_chain(site.cluster.state.certificates.admin)
    async with site.cluster.http(nothing) as client:
        with pytest.raises(httpx.TransportError):
            await client.post(url, json={})
    async with site.cluster.http(administrator) as client:
        assert (await client.post(url, json={})).status_code == FORBIDDEN


def anonymous() -> ssl.SSLContext:
    """Return the context of a client that takes everybody for the webhook, and shows no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def see_times(found: Reviewed) -> None:
    """No client waits long for a review."""
    good, bad = samples_of(found, SAMPLES)
    accepted = await measure(found, good, 201)
    rejected = await measure(found, bad, REJECTED)
    print(f"accepted: {accepted}\nrejected: {rejected}")  # noqa: T201

    assert max(accepted.median, rejected.median) <= SLOWEST
    # One in a hundred measures the load of the machine, not the webhook.
    if os.getloadavg()[0] <= BUSY * (os.cpu_count() or 1):
        assert max(accepted.slowest, rejected.slowest) <= SLOWEST


async def see_absence(found: Reviewed) -> None:
    """No client waits for a webhook that is down; bad objects are then quarantined alone, and can be fixed."""
    site = found.site
    # Over the connection that it has, it would go on asking for as long as that lasts.
    await found.ask_at("nobody")
    await until(lambda: found.passes(found.broken("probe")))
    answer = await found.create(found.broken("broken"), keep=True)
    assert answer.status_code == 201
    (event,) = await until(lambda: events_about(site, "Ingress", "broken"))
    assert event["reason"] == "Quarantined"

    await found.ask_at("webhook")
    await until(lambda: found.is_rejected(found.broken("probe")))
    assert (await found.create(site.ingress("other", "other.test"))).status_code == 201
    labelled = await site.cluster.client.patch(
        site.path("ingresses", "broken"),
        json={"metadata": {"labels": {"a": "b"}}},
        headers={"content-type": "application/merge-patch+json"},
    )
    assert labelled.status_code == 200, labelled.text
    assert "already before" in labelled.headers["warning"]
    await site.apply(site.ingress("broken", "broken.test"))
    await site.until_served("broken.test")
    assert (await site.cluster.client.delete(site.path("ingresses", "broken"))).status_code == 200


async def see_another_certificate(found: Reviewed) -> None:
    """A certificate by another authority is in use while everything runs."""
    await found.renew_certificate()
    await until(lambda: found.is_rejected(found.broken("probe")))
