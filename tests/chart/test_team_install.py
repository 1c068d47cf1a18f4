"""The chart for one team: Roles in its namespaces, a Service inside the cluster, and a console with a given token."""

from functools import partial

import pytest
import trio

from haptic_trio.k8s.resource import Resource
from tests.chart.support.rendering import RELEASE, Helm
from tests.chart.test_install import (
    CONTROLLERS,
    FORBIDDEN,
    HAPROXIES,
    LIMIT,
    NAME,
    complaints_of,
    fresh,
    ingress,
    installed,
    is_served,
    logs_of,
    settings_of,
)
from tests.cluster.control_plane.audit import read_requests
from tests.cluster.workloads.client import Cluster, until
from tests.cluster.workloads.manifests import deployment, service

pytestmark = [pytest.mark.cluster, pytest.mark.haproxy]
TOKEN = "token-of-the-team-0123456789"


def secret_with_token() -> Resource:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "console"}, "stringData": {"token": TOKEN}}


async def test_roles_in_its_namespaces_are_enough_and_the_further_service_reaches_haproxy(
    cluster: Cluster, helm: Helm, namespace: str
) -> None:
    host = fresh(namespace)
    other = f"{namespace}-other"
    settings = {
        **settings_of(namespace),
        "watchNamespaces": [namespace, other],
        "resourcesPreset": "small",
        "controller__console": {"enabled": True, "tokenSecret": "console"},
        "haproxy__extraServices": {"inside": {"type": "ClusterIP", "ports": {"http": 8000, "https": 0}}},
    }
    inside = f"/api/v1/namespaces/{namespace}/services/{NAME}-haproxy-inside"
    with trio.fail_after(LIMIT):
        await cluster.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}}])
        await cluster.apply([secret_with_token()], namespace)
        await cluster.apply(
            [deployment("echo", 1), service("echo"), ingress(namespace, "shop", host["host"], "echo")], other
        )
        async with installed(cluster, helm, namespace, settings), cluster.http() as client:
            controllers = await cluster.wait_pods(namespace, CONTROLLERS, 2)
            await cluster.wait_pods(namespace, HAPROXIES, 2)
            address = (await cluster.api.get(inside))["spec"]["clusterIP"]
            await until(partial(is_served, client, f"http://{address}:8000", host))
            pages = [await client.get(f"http://{one['status']['podIP']}:9090/console") for one in controllers]
            said = await logs_of(cluster, namespace, CONTROLLERS)
            complaints = await complaints_of(cluster, namespace)
            asked = read_requests(cluster.state, namespace, f"{RELEASE}-haptic-trio-controller")

    assert [one.status_code for one in pages] == [200, 200]
    assert said.count("/etc/haptic-trio/console/token") == 2
    assert TOKEN not in said
    assert complaints == []
    assert asked
    assert [one for one in asked if one.status == FORBIDDEN] == []
