"""The chart at work: installed by helm into a real cluster, with real HAProxies, and with one right less."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from haptic_trio.k8s.resource import Resource
from tests.chart.support.rendering import CHART, RELEASE, Helm, Settings, set_options
from tests.chart.test_roles import RULES, each_rule
from tests.cluster.control_plane.api import APPLY, ApiError
from tests.cluster.control_plane.audit import Asked, read_requests
from tests.cluster.control_plane.certificates import WEBHOOK_CLIENT
from tests.cluster.workloads.client import Cluster, until
from tests.cluster.workloads.manifests import deployment, service

pytestmark = [pytest.mark.cluster, pytest.mark.haproxy]
LIMIT = 180.0
FORBIDDEN = 403
ROUND = 20
"""Requests between two looks at what becomes of a pod."""
NAME = f"{RELEASE}-haptic-trio"
CONTROLLERS = "app.kubernetes.io/component=controller"
HAPROXIES = "app.kubernetes.io/component=haproxy"
OUTSIDE: Resource = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "outside"},
    "spec": {"type": "ExternalName", "externalName": "elsewhere.test"},
}
"""A Service that is rejected, so that there is an Event about it."""


def settings_of(namespace: str) -> dict[str, Any]:
    """Return what tests want to be otherwise: classes of their own, and no waiting."""
    own_class = {"ingressClass__name": namespace, "ingressClass__controller": f"haptic-trio/{namespace}"}
    # Pods of the test cluster share the processes: an agent takes the HAProxy of its directory, by name, for its own.
    own_directory = {"haproxy__extraArgs": ["--state-dir=/var/lib/haptic-trio/$(HAPTIC_AGENT_NAME)"]}
    return {**own_class, **own_directory, "haproxy__drainSeconds": 0}


def webhook_settings(namespace: str) -> dict[str, Any]:
    """Return what has the API server of the tests ask, by its certificate, about what is in *namespace*."""
    return {
        "webhook__enabled": True,
        "webhook__clients": {"caSecret": "api-server-clients", "names": [WEBHOOK_CLIENT]},
        "webhook__namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
    }


def who_may_ask(cluster: Cluster) -> Resource:
    """Return the Secret that says who has signed the API server's certificate."""
    authority = cluster.state.certificates.authority.read_text()
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "api-server-clients"},
        "stringData": {"ca.crt": authority},
    }


async def rejection_of(cluster: Cluster, resource: Resource, namespace: str) -> str:
    """Return why the API server would not take *resource*; empty if it would."""
    options = {"dryRun": "All", "fieldManager": "test", "force": "true"}
    try:
        await cluster.api.patch(await cluster.path_of(resource, namespace), resource, APPLY, **options)
    except ApiError as exc:
        return str(exc)
    return ""


def ingress(namespace: str, name: str, host: str, backend: str) -> Resource:
    path = {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": backend, "port": {"number": 80}}}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": name},
        "spec": {"ingressClassName": namespace, "rules": [{"host": host, "http": {"paths": [path]}}]},
    }


def unservable(namespace: str) -> Resource:
    """Return an Ingress that cannot be served."""
    found = ingress(namespace, "broken", "broken.test", "echo")
    (path,) = found["spec"]["rules"][0]["http"]["paths"]
    path.update(path="/a b", pathType="Exact")
    return found


@asynccontextmanager
async def installed(
    cluster: Cluster, helm: Helm, namespace: str, settings: Settings, *, chart: Path = CHART
) -> AsyncIterator[None]:
    """Install the chart, a directory or a package, with helm; what is in no namespace goes with it."""
    place = ["--namespace", namespace]
    done = await cluster.run([str(helm.binary), "install", RELEASE, str(chart), *place, *set_options(settings)])
    assert done.status == 0, done.errors
    try:
        yield
    finally:
        with trio.move_on_after(10, shield=True):
            await cluster.run([str(helm.binary), "uninstall", RELEASE, *place])


@asynccontextmanager
async def applied(cluster: Cluster, objects: list[Resource], namespace: str) -> AsyncIterator[None]:
    """Apply *objects*; what is in no namespace goes with it."""
    await cluster.apply(objects, namespace)
    try:
        yield
    finally:
        with trio.move_on_after(10, shield=True):
            for each in objects:
                if each["kind"] in {"ClusterRole", "ClusterRoleBinding", "IngressClass"}:
                    await cluster.delete(each)


async def logs_of(cluster: Cluster, namespace: str, selector: str) -> str:
    """Return what the Pods have written; nothing of those that have not begun."""
    found = []
    for pod in await cluster.pods(namespace, selector):
        with suppress(ApiError):
            found.append(await cluster.logs(namespace, pod["metadata"]["name"]))
    return "".join(found)


async def complaints_of(cluster: Cluster, namespace: str) -> list[str]:
    """Return the lines of controllers that say that they may not do something."""
    said = await logs_of(cluster, namespace, CONTROLLERS)
    return [line for line in said.splitlines() if "forbidden" in line.lower() or " 403 " in line]


def fresh(namespace: str) -> dict[str, str]:
    """Return the headers of a request on a connection of its own, to the host that tests serve."""
    return {"host": f"{namespace}.test", "connection": "close"}


async def balancer_of(cluster: Cluster, namespace: str) -> str:
    """Return the address that the load balancer has given to HAProxy's Service."""
    service = await cluster.wait(
        f"/api/v1/namespaces/{namespace}/services/{NAME}-haproxy",
        lambda found: found and found["status"]["loadBalancer"].get("ingress"),
    )
    return str(service["status"]["loadBalancer"]["ingress"][0]["ip"])


async def is_served(client: httpx.AsyncClient, url: str, headers: dict[str, str]) -> bool:
    """Return whether a request succeeds."""
    try:
        return (await client.get(url, headers=headers)).is_success
    except httpx.TransportError:
        return False


async def events_of(cluster: Cluster, namespace: str, kind: str, name: str) -> list[Resource]:
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    items, _ = await cluster.api.list(path)
    return [each for each in items if (each["regarding"].get("kind"), each["regarding"].get("name")) == (kind, name)]


async def test_an_installed_chart_serves_an_ingress_with_no_right_missing(
    cluster: Cluster, helm: Helm, namespace: str
) -> None:
    host = fresh(namespace)
    objects = [deployment("echo", 2), service("echo"), ingress(namespace, "shop", host["host"], "echo")]
    path = f"/apis/networking.k8s.io/v1/namespaces/{namespace}/ingresses/shop"
    settings = {**settings_of(namespace), **webhook_settings(namespace)}
    with trio.fail_after(LIMIT):
        # Before there is a webhook that would reject it.
        await cluster.apply([OUTSIDE, ingress(namespace, "rejected", "rejected.test", "outside")], namespace)
        await cluster.apply([who_may_ask(cluster)], namespace)
        async with installed(cluster, helm, namespace, settings):
            await cluster.apply(objects, namespace)
            await cluster.wait_pods(namespace, CONTROLLERS, 2)
            haproxies = await cluster.wait_pods(namespace, HAPROXIES, 2)
            balancer = await balancer_of(cluster, namespace)
            pods = [pod["status"]["podIP"] for pod in haproxies]
            async with cluster.http() as client:
                for url in (balancer, *[f"{pod}:8080" for pod in pods], *[f"{pod}:8404/metrics" for pod in pods]):
                    await until(partial(is_served, client, f"http://{url}", host))
            shop = await cluster.wait(path, lambda found: found and found["status"]["loadBalancer"])
            await until(lambda: events_of(cluster, namespace, "Service", "outside"))
            await until(lambda: rejection_of(cluster, unservable(namespace), namespace))
            broken = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": {"config": "{}}"}}
            rejection = await rejection_of(cluster, broken, namespace)
            complaints = await complaints_of(cluster, namespace)
            asked = read_requests(cluster.state, namespace, f"{NAME}-controller")

    assert shop["status"]["loadBalancer"]["ingress"] == [{"ip": balancer}]
    assert complaints == []
    assert [one for one in asked if one.status == FORBIDDEN] == []
    assert unused_rules(helm.render(namespace=namespace, **settings), asked) == []
    assert f"ConfigMap {namespace}/{NAME} is not a valid configuration" in rejection


async def test_a_haproxy_pod_that_is_deleted_serves_until_no_load_balancer_sends_it_anything(
    cluster: Cluster, helm: Helm, namespace: str
) -> None:
    host = fresh(namespace)
    objects = [deployment("echo", 1), service("echo"), ingress(namespace, "shop", host["host"], "echo")]
    # The endpoints controller repeats an early update after a second: less than this may be too short.
    settings = {**settings_of(namespace), "haproxy__drainSeconds": 4}
    answers: list[bool] = []
    with trio.fail_after(LIMIT):
        async with installed(cluster, helm, namespace, settings), cluster.http() as client:
            await cluster.apply(objects, namespace)
            url = f"http://{await balancer_of(cluster, namespace)}"
            first, _ = await cluster.wait_pods(namespace, HAPROXIES, 2)
            await until(partial(is_served, client, url, host))
            path = f"/api/v1/namespaces/{namespace}/pods/{first['metadata']['name']}"
            await cluster.api.delete(path)
            while await cluster.find(path):
                answers += [await is_served(client, url, host) for _ in range(ROUND)]
            await cluster.wait_pods(namespace, HAPROXIES, 2)
            answers += [await is_served(client, url, host) for _ in range(ROUND)]

    assert len(answers) >= 2 * ROUND
    assert all(answers)


def unused_rules(objects: list[Resource], asked: Iterable[Asked]) -> list[str]:
    """Return the rules of the chart by which none of the requests was allowed."""
    done = {(one.resource, one.verb) for one in asked}
    unused = []
    for name, role, place in each_rule(objects):
        rule = role["rules"][place]
        resource = f"{rule['apiGroups'][0]}/{rule['resources'][0]}"
        if not any((resource, verb) in done for verb in rule["verbs"]):
            unused.append(name)
    return unused


def with_one_rule_less(helm: Helm, namespace: str, rule: str) -> list[Resource]:
    """Return the objects of the chart, and an Ingress, but for *rule*."""
    objects = helm.render(namespace=namespace, controller__replicas=1, **settings_of(namespace))
    ((_, role, place),) = [found for found in each_rule(objects) if found[0] == rule]
    del role["rules"][place]
    # Last, so that no controller starts before it has what it is to have.
    objects.sort(key=lambda one: one["kind"] in {"Deployment", "DaemonSet"})
    return objects


WATCHES = '"name": "watch_resources"'
HELD_BACK = {
    "Role /configmaps by name": ("list configmaps", '"name": "load_config"'),
    "ClusterRole /secrets": ("list secrets", WATCHES),
    "ClusterRole /services": ("list services", WATCHES),
    "ClusterRole discovery.k8s.io/endpointslices": ("list endpointslices", WATCHES),
    "ClusterRole networking.k8s.io/ingressclasses": ("list ingressclasses", WATCHES),
    "ClusterRole networking.k8s.io/ingresses": ("list ingresses", WATCHES),
    "Role /pods": ("list pods", "agent answers"),
    "Role coordination.k8s.io/leases": ("POST leases", "leadership won"),
    "Role coordination.k8s.io/leases by name": ("leases", "leadership won"),
}
"""What a controller without the rule says, and what it never comes to say."""
SERVES = {
    "ClusterRole networking.k8s.io/ingresses/status": "PATCH ingresses",
    "ClusterRole events.k8s.io/events": "POST events",
}
"""What a controller without the rule says, which serves all the same."""


@pytest.mark.parametrize("rule", HELD_BACK)
async def test_without_a_rule_a_controller_says_what_it_may_not_and_does_not_get_further(
    cluster: Cluster, helm: Helm, namespace: str, rule: str
) -> None:
    complaint, never = HELD_BACK[rule]
    with trio.fail_after(LIMIT):
        async with applied(cluster, with_one_rule_less(helm, namespace, rule), namespace):
            complaints = await until(lambda: complaints_of(cluster, namespace))
            said = await logs_of(cluster, namespace, CONTROLLERS)

    assert all(complaint in line for line in complaints)
    assert never not in said


@pytest.mark.parametrize("rule", SERVES)
async def test_without_the_right_to_write_events_a_controller_serves_and_reports_the_denial(
    cluster: Cluster, helm: Helm, namespace: str, rule: str
) -> None:
    with trio.fail_after(LIMIT):
        async with applied(cluster, with_one_rule_less(helm, namespace, rule), namespace):
            await cluster.apply([OUTSIDE, ingress(namespace, "rejected", "rejected.test", "outside")], namespace)
            complaints = await until(lambda: complaints_of(cluster, namespace))
            await cluster.wait_pods(namespace, HAPROXIES, 2)

    assert all(SERVES[rule] in line for line in complaints)


def test_every_rule_is_taken_from_a_controller() -> None:
    assert {*HELD_BACK, *SERVES} == set(RULES)
