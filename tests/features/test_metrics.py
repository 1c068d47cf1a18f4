"""/metrics and the probes report the state of a running controller with real HAProxy processes."""

import json
import re
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trio
import trustme

from haptic_trio.k8s.resource import Resource
from haptic_trio.messages import ConfigInvalid, EndpointsDiscovered, InstanceDeployed, ReconcileCompleted
from tests.chart.support.promql import parse
from tests.features.harness import LIMIT, Running, Site, controller, serving_web
from tests.features.harness import ingress as make_ingress
from tests.support.processes.haproxy import backend
from tests.support.processes.ports import free_port
from tests.support.traffic.scrape import Scrape
from tests.support.traffic.scrape import scrape as ask_for_metrics
from tools.docgen.metrics import all_families

pytestmark = pytest.mark.haproxy
DASHBOARD = Path(__file__).parents[2] / "chart" / "files" / "dashboard.json"


def tls_secret(name: str, leaf: trustme.LeafCert) -> Resource:
    """Return a Secret with a certificate."""
    chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
    data = {"tls.crt": chain, "tls.key": leaf.private_key_pem.bytes()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": "default"},
        "data": {key: b64encode(value).decode() for key, value in data.items()},
    }


async def scrape(running: Running) -> Scrape:
    """Ask the controller."""
    return await ask_for_metrics(running.serving.addresses[0])


async def scraped(running: Running, wanted: Callable[[Scrape], bool]) -> Scrape:
    """Ask the controller until it says what is *wanted*."""
    with trio.fail_after(LIMIT):
        while True:
            found = await scrape(running)
            if wanted(found):
                return found
            await trio.sleep(0.02)


async def test_exported_metrics_agree_with_the_reference(site: Site, haproxy_binary: Path) -> None:
    async with serving_web(site, haproxy_binary) as running:
        found = await scrape(running)

    known = {sample: family for family in all_families() for sample in family.samples}
    for name, labels in found.names.items():
        if not name.endswith("_created"):
            assert labels - {"le"} == set(known[name].labels), name
    exported = {family.name for family in found.families.values()}
    absent = {family.name for family in all_families() if family.name.removesuffix("_total") not in exported}
    # Those of an API server: a directory has no watches, and no admission reviews.
    elsewhere = ("haptic_watch_", "haptic_api_", "haptic_webhook_")
    assert {name for name in absent if not name.startswith(elsewhere)} == set()


async def test_change_is_followed_to_every_instance(site: Site, haproxy_binary: Path) -> None:
    async with backend("one") as one, backend("two") as two, controller(site, haproxy_binary, instances=2) as running:
        site.write_service("web", one)
        site.write_ingress("web", "web.localhost", "web")
        await running.serves(site, "web.localhost", "one")
        await running.all_deployed(("local-1", "local-2"))
        before, mark = await scrape(running), len(running.events)
        site.write_service("web", two)
        counted = before("haptic_propagation_duration_seconds_count") or 0
        after = await scraped(
            running,
            lambda found: (
                (found("haptic_propagation_duration_seconds_count") or 0) > counted
                and found("haptic_unpropagated_changes") == 0
            ),
        )
        deployed = {event.result.endpoint for event in running.events.all(InstanceDeployed, since=mark)}

        assert after.labels("haptic_instance_deployments_total", "haproxy") == deployed
        assert len(deployed) == 2
        for name in deployed:
            assert (after("haptic_instance_deployments_total", haproxy=name, kind="runtime") or 0) >= 1
            assert after("haptic_instance_failing", haproxy=name) == 0
            assert (after("haptic_instance_last_success_timestamp_seconds", haproxy=name) or 0) > 1e9
        assert after("haptic_resource_count", type="ingresses") == 1
        assert after("haptic_channel_size", channel="events") == 500
        assert after("haptic_iteration_stage") == 5
        assert after("haptic_ready") == 1
        assert after("haptic_config_is_outdated") == 0
        assert (after("haptic_config_size_bytes") or 0) > 1000


async def test_series_of_an_instance_go_with_it_and_an_invalid_configuration_is_seen(
    site: Site, haproxy_binary: Path
) -> None:
    site.write_config(instances={"size": 2})
    async with controller(site, haproxy_binary) as running:
        await running.instances(2)
        await running.wait(EndpointsDiscovered, lambda event: len(event.endpoints) == 2)
        await running.quiet()
        both = (await scrape(running)).labels("haptic_instance_failing", "haproxy")
        mark = len(running.events)
        site.write_config(instances={"size": 1})
        await running.wait(EndpointsDiscovered, lambda event: len(event.endpoints) == 1, since=mark)

        assert len(both) == 2
        per_instance = ("haptic_instance_failing", "haptic_instance_deployments_total")
        await scraped(running, lambda found: all(len(found.labels(name, "haproxy")) == 1 for name in per_instance))
        site.write_raw_config("nonsense: true")
        await running.wait(ConfigInvalid)
        # The iteration of the configuration before may not have deployed yet.
        outdated = await scraped(
            running, lambda found: found("haptic_config_is_outdated") == 1 and found("haptic_ready") == 1
        )
        assert outdated("haptic_config_invalid_total") == 1


async def test_certificates_are_counted_by_how_long_they_live(site: Site, haproxy_binary: Path) -> None:
    authority = trustme.CA()
    in_two_days = datetime.now(UTC) + timedelta(days=2)
    leaf = authority.issue_cert("web.localhost", not_after=in_two_days)
    site.write("tls", tls_secret("web", leaf))
    ingress = make_ingress("web", "web.localhost", "web")
    ingress["spec"]["tls"] = [{"hosts": ["web.localhost"], "secretName": "web"}]
    site.write_config(
        templating={
            "libraries": ["base", "ssl", "ingress"],
            "extraContext": {"httpPort": site.port, "httpsPort": free_port(), "bindAddress": "127.0.0.1"},
        }
    )
    async with serving_web(site, haproxy_binary) as running:
        mark = len(running.events)
        site.write("ingress-web", ingress)
        await running.wait(ReconcileCompleted, since=mark)
        found = await scraped(running, lambda found: found("haptic_certificates_expiring", within="7d") == 1)

        assert found("haptic_certificates_expiring", within="1d") == 0
        (file,) = [
            name
            for name in found.labels("haptic_certificate_expiry_timestamp_seconds", "file")
            if found("haptic_certificate_expiry_timestamp_seconds", file=name) == int(in_two_days.timestamp())
        ]
        assert "web" in file
        assert found("haptic_host_certificate_expiry_timestamp_seconds", host="web.localhost") == int(
            in_two_days.timestamp()
        )


async def test_metrics_of_haproxy_on_the_dashboard_are_those_that_it_exports(site: Site, haproxy_binary: Path) -> None:
    port = free_port()
    extra = {"httpPort": site.port, "bindAddress": "127.0.0.1", "metricsPort": port, "metricsAddress": "127.0.0.1"}
    site.write_config(templating={"extraContext": extra})
    async with serving_web(site, haproxy_binary):
        found = (await ask_for_metrics(f"http://127.0.0.1:{port}")).names

    dashboard = json.loads(DASHBOARD.read_text())
    assert set(re.findall(r"haproxy_\w+", json.dumps(dashboard["templating"]))) <= set(found)
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            for selector in parse(target["expr"].replace("$__rate_interval", "5m")).selectors:
                if selector.metric.startswith("haproxy_"):
                    assert selector.labels - {"namespace", "job"} <= found[selector.metric], selector.metric
