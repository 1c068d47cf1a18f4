"""The leader writes addresses to managed Ingresses, and Kubernetes Events about objects that are not served."""

from pathlib import Path
from typing import Any

import pytest
import trio

from haptic_trio.k8s.resource import Resource
from tests.cluster.workloads.client import Cluster, until
from tests.cluster.workloads.controllers import Site, installed

pytestmark = pytest.mark.cluster
LIMIT = 180.0


def addresses(found: Resource | None) -> list[Any]:
    """Return what the status of an Ingress says."""
    return list((((found or {}).get("status") or {}).get("loadBalancer") or {}).get("ingress") or [])


def managers(found: Resource) -> set[str]:
    """Return who owns something of its status."""
    return {one["manager"] for one in found["metadata"]["managedFields"] if one.get("subresource") == "status"}


async def wait_addresses(site: Site, name: str, wanted: list[Any]) -> Resource:
    return await site.cluster.wait(site.path("ingresses", name), lambda found: found and addresses(found) == wanted)


async def events_about(site: Site, kind: str, name: str) -> list[Resource]:
    found, _ = await site.cluster.api.list(f"/apis/events.k8s.io/v1/namespaces/{site.namespace}/events")
    return [
        one
        for one in found
        if (one["regarding"]["kind"], one["regarding"]["name"]) == (kind, name)
        and one.get("reportingController") == "haptic-trio/controller"
    ]


async def test_managed_ingresses_get_the_address_of_the_service_and_lose_it(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    with trio.fail_after(LIMIT):
        async with installed(cluster, namespace, tmp_path) as site:
            await site.apply(site.ingress("foreign", "foreign.test", ingress_class="somebody-else"))
            published = await wait_addresses(site, "web", [{"ip": site.address}])

            assert managers(published) == {"haptic-trio"}
            foreign = await cluster.find(site.path("ingresses", "foreign"))
            assert foreign is not None
            assert addresses(foreign) == []
            assert managers(foreign) == set()

            await site.apply(site.ingress("web", "web.test", ingress_class="somebody-else"))
            left = await wait_addresses(site, "web", [])
            await site.apply(site.ingress("web", "web.test"))
            await wait_addresses(site, "web", [{"ip": site.address}])
            assert managers(left) == set()


async def test_status_is_written_once_and_repaired_when_another_writer_changes_it(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    with trio.fail_after(LIMIT):
        async with installed(cluster, namespace, tmp_path) as site:
            await wait_addresses(site, "web", [{"ip": site.address}])
            path = f"{site.path('ingresses', 'web')}/status"
            await cluster.api.patch(path, {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}})
            corrected = await wait_addresses(site, "web", [{"ip": site.address}])

            # Other changes come and go, and this object stays as it is.
            for number in range(3):
                await site.apply(site.ingress("more", f"more-{number}.test"))
                await site.until_served(f"more-{number}.test")
            found = await cluster.find(site.path("ingresses", "web"))
            assert found is not None
            assert found["metadata"]["resourceVersion"] == corrected["metadata"]["resourceVersion"]


async def test_address_of_others_on_an_ingress_of_others_is_left_alone(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    with trio.fail_after(LIMIT):
        async with installed(cluster, namespace, tmp_path) as site:
            await site.apply(site.ingress("foreign", "foreign.test", ingress_class="somebody-else"))
            path = f"{site.path('ingresses', 'foreign')}/status"
            # The very address that we publish: it still is theirs.
            await cluster.api.patch(path, {"status": {"loadBalancer": {"ingress": [{"ip": site.address}]}}})
            await site.apply(site.ingress("more", "more.test"))
            await wait_addresses(site, "more", [{"ip": site.address}])

            foreign = await cluster.find(site.path("ingresses", "foreign"))
            assert addresses(foreign) == [{"ip": site.address}]


async def test_owner_of_an_object_gets_an_event_when_it_is_quarantined_and_when_it_is_released(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    with trio.fail_after(LIMIT):
        async with installed(cluster, namespace, tmp_path) as site:
            broken = site.ingress("broken", "broken.test")
            broken["spec"]["rules"][0]["http"]["paths"][0]["path"] = '/a"b c'
            broken["spec"]["rules"][0]["http"]["paths"][0]["pathType"] = "Exact"
            await site.apply(broken)

            (reported,) = await until(lambda: events_about(site, "Ingress", "broken"))
            await site.apply(site.ingress("broken", "broken.test"))

            async def both() -> bool:
                return {one["reason"] for one in await events_about(site, "Ingress", "broken")} == {
                    "Quarantined",
                    "Released",
                }

            await until(both)
            assert reported["type"] == "Warning"
            assert reported["reason"] == "Quarantined"
            assert reported["regarding"]["uid"]
            assert "it is not served" in reported["note"]
            assert await events_about(site, "Ingress", "web") == []


async def test_configuration_that_cannot_be_deployed_gets_an_event(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    with trio.fail_after(LIMIT):
        async with installed(cluster, namespace, tmp_path) as site:
            snippet = {"template": "\nglobal\n    no-such-keyword\n"}
            await site.apply(site.config_map(haproxyConfig=snippet))

            (reported, *_) = await until(lambda: events_about(site, "ConfigMap", "haptic-trio"))

            assert reported["reason"] == "ConfigurationRejected"
            assert "no-such-keyword" in reported["note"]
            assert await site.ask("web.test") == 200
