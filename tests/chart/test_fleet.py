"""The chart with pods that the controller makes itself: installed by helm, evicted from, and removed again."""

from functools import partial

import pytest
import trio

from tests.chart.support.rendering import Helm
from tests.chart.test_install import (
    FORBIDDEN,
    HAPROXIES,
    LIMIT,
    NAME,
    OUTSIDE,
    balancer_of,
    events_of,
    fresh,
    ingress,
    installed,
    is_served,
    settings_of,
    unused_rules,
)
from tests.cluster.control_plane.audit import read_requests
from tests.cluster.workloads.client import Cluster, until
from tests.cluster.workloads.manifests import deployment, service

pytestmark = [pytest.mark.cluster, pytest.mark.haproxy]
TOO_MANY = 429
"""What an eviction is answered with that a PodDisruptionBudget does not allow."""


async def evict(cluster: Cluster, namespace: str, pod: str) -> int:
    """Ask for the eviction of a pod, as who empties a node does; return the status of the answer."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    answer = await cluster.client.post(f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", json=eviction)
    return answer.status_code


async def test_an_installed_fleet_serves_is_evicted_from_one_by_one_and_goes_with_the_release(
    cluster: Cluster, helm: Helm, namespace: str
) -> None:
    host = fresh(namespace)
    objects = [deployment("echo", 1), service("echo"), ingress(namespace, "shop", host["host"], "echo")]
    objects += [OUTSIDE, ingress(namespace, "rejected", "rejected.test", "outside")]
    settings = {
        **settings_of(namespace),
        "haproxy__kind": "fleet",
        "config__instances": {"healthInterval": "500ms", "drainTimeout": "1s"},
    }
    budget = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{NAME}-haproxy"
    with trio.fail_after(LIMIT):
        async with installed(cluster, helm, namespace, settings), cluster.http() as client:
            await cluster.apply(objects, namespace)
            pods = await cluster.wait_pods(namespace, HAPROXIES, 2)
            await until(partial(is_served, client, f"http://{await balancer_of(cluster, namespace)}", host))
            await until(lambda: events_of(cluster, namespace, "Service", "outside"))
            await cluster.wait(budget, lambda found: found and found["status"].get("disruptionsAllowed") == 1)
            answers = [await evict(cluster, namespace, pod["metadata"]["name"]) for pod in pods]
            after = await cluster.wait_pods(namespace, HAPROXIES, 2)
            asked = read_requests(cluster.state, namespace, f"{NAME}-controller")
        await until(partial(has_no_pods, cluster, namespace))

    assert answers == [201, TOO_MANY]
    before = [pod["metadata"]["name"] for pod in pods]
    assert [name for name in before if name not in {pod["metadata"]["name"] for pod in after}] == before[:1]
    assert [one for one in asked if one.status == FORBIDDEN] == []
    assert unused_rules(helm.render(namespace=namespace, **settings), asked) == []


async def has_no_pods(cluster: Cluster, namespace: str) -> bool:
    """Return whether no HAProxy pod is left."""
    return not await cluster.pods(namespace, HAPROXIES)
