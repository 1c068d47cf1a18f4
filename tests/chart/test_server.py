"""A real API server accepts every object of the chart, and an upgrade keeps the certificates."""

from pathlib import Path

import httpx
import pytest
import trio
import yaml

from haptic_trio.k8s.resource import Resource
from tests.chart.support.rendering import CHART, RELEASE, VALUE_SETS, Helm, find, pod_of, set_options, workloads_of
from tests.cluster.control_plane.api import APPLY
from tests.cluster.workloads.client import Cluster, until

pytestmark = pytest.mark.cluster
LIMIT = 90.0
ON_THE_NODE = ("host-network", "host-ports")
"""Values with pods that only a namespace with the standard *privileged* accepts."""
OTHERS_RUNTIME = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "gvisor"},
    "handler": "runsc",
}
DEFINITIONS = Path(__file__).with_name("definitions.yaml")


async def have_kinds_of_others(cluster: Cluster) -> None:
    """Define the kinds of others; return when they are served."""
    definitions = list(yaml.safe_load_all(DEFINITIONS.read_text()))
    await cluster.apply(definitions)
    for each in definitions:
        spec = each["spec"]
        path = f"/apis/{spec['group']}/v1/{spec['names']['plural']}"

        async def is_served(path: str = path) -> bool:
            return (await cluster.client.get(path)).is_success

        await until(is_served)


@pytest.mark.parametrize("values", VALUE_SETS)
async def test_the_api_server_accepts_every_object_and_knows_each_of_its_fields(
    cluster: Cluster, helm: Helm, namespace: str, values: str
) -> None:
    teams = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in ("team-a", "team-b")]
    with trio.fail_after(LIMIT):
        await have_kinds_of_others(cluster)
        await cluster.apply(teams)
        for each in helm.render(values, namespace=namespace):
            options = {"dryRun": "All", "fieldValidation": "Strict", "fieldManager": "test", "force": "true"}
            await cluster.api.patch(await cluster.path_of(each, namespace), each, APPLY, **options)


async def create_under(cluster: Cluster, namespace: str, standard: str, workload: Resource) -> httpx.Response:
    """Return what the API server says to a pod of *workload* in a namespace with *standard*."""
    levels = {"pod-security.kubernetes.io/enforce": standard}
    await cluster.apply(
        [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": levels}},
            OTHERS_RUNTIME,
        ]
    )
    pod = pod_of(workload)
    pod["metadata"]["name"] = "probe"
    pod["spec"]["serviceAccountName"] = "default"
    return await cluster.client.post(f"/api/v1/namespaces/{namespace}/pods", json=pod, params={"dryRun": "All"})


@pytest.mark.parametrize("values", [one for one in VALUE_SETS if one not in ON_THE_NODE])
async def test_its_pods_keep_to_the_restricted_pod_security_standard(
    cluster: Cluster, helm: Helm, namespace: str, values: str
) -> None:
    workloads = workloads_of(helm.render(values))
    with trio.fail_after(LIMIT):
        for workload in workloads:
            created = await create_under(cluster, namespace, "restricted", workload)

            assert created.status_code == 201, created.text
    assert len(workloads) == 2


@pytest.mark.parametrize(("values", "reason"), list(zip(ON_THE_NODE, ("host namespaces", "hostPort"), strict=True)))
async def test_only_privileged_namespaces_accept_ports_of_nodes_and_only_haproxy_asks_for_them(
    cluster: Cluster, helm: Helm, namespace: str, values: str, reason: str
) -> None:
    objects = helm.render(values)
    haproxy = find(objects, "DaemonSet")
    with trio.fail_after(LIMIT):
        for standard in ("restricted", "baseline"):
            rejected = await create_under(cluster, namespace, standard, haproxy)
            assert rejected.status_code == 403
            assert reason in rejected.text
        assert (await create_under(cluster, namespace, "privileged", haproxy)).status_code == 201
        controller = await create_under(cluster, namespace, "restricted", find(objects, "Deployment"))
        assert controller.status_code == 201, controller.text


async def test_an_upgrade_keeps_certificates_and_creates_deleted_ones_together(
    cluster: Cluster, helm: Helm, namespace: str
) -> None:
    idle = {"controller__replicas": 0, "haproxy__replicas": 0, "ingressClass__name": namespace}
    command = [str(helm.binary), "upgrade", "--install", RELEASE, str(CHART), "--namespace", namespace]
    secrets = f"/api/v1/namespaces/{namespace}/secrets"

    async def upgrade(**settings: str) -> dict[str, dict[str, str]]:
        done = await cluster.run([*command, *set_options({**idle, **settings})])
        assert done.status == 0, done.errors
        objects = (await cluster.api.list(secrets, labelSelector=f"app.kubernetes.io/instance={RELEASE}"))[0]
        objects = [{**one, "kind": "Secret"} for one in objects]
        return {name: find(objects, "Secret", f"-{name}-tls")["data"] for name in ("agent", "controller")}

    with trio.fail_after(LIMIT):
        installed = await upgrade()
        upgraded = await upgrade(controller__logFormat="console")
        await cluster.api.delete(f"{secrets}/{RELEASE}-haptic-trio-agent-tls")
        renewed = await upgrade()
        removed = await cluster.run([str(helm.binary), "uninstall", RELEASE, "--namespace", namespace])

    assert removed.status == 0, removed.errors
    assert upgraded == installed
    assert all(renewed[name]["ca.crt"] != installed[name]["ca.crt"] for name in installed)
    assert renewed["agent"]["ca.crt"] == renewed["controller"]["ca.crt"]
