"""HTTP/3 for a release that runs: helm must not make the Service's port for HTTPS one for UDP."""

import json
import re

import pytest
import trio

from tests.chart.support.rendering import CHART, RELEASE, Helm, Settings, set_options
from tests.chart.test_install import LIMIT, NAME, installed, settings_of
from tests.cluster.control_plane.orders import Executed
from tests.cluster.workloads.client import Cluster

pytestmark = pytest.mark.cluster
JSON_PATCH = "application/json-patch+json"


async def upgrade(cluster: Cluster, helm: Helm, namespace: str, settings: Settings) -> Executed:
    place = ["--namespace", namespace, *set_options(settings)]
    return await cluster.run([str(helm.binary), "upgrade", RELEASE, str(CHART), *place])


async def ports_of(cluster: Cluster, path: str) -> set[tuple[str, str, int, object]]:
    service = await cluster.api.get(path)
    return {(each["name"], each["protocol"], each["port"], each["targetPort"]) for each in service["spec"]["ports"]}


async def test_the_port_comes_first(cluster: Cluster, helm: Helm, namespace: str) -> None:
    tcp = {("http", "TCP", 80, "http"), ("https", "TCP", 443, "https")}
    path = f"/api/v1/namespaces/{namespace}/services/{NAME}-haproxy"
    without = {**settings_of(namespace), "haproxy__replicas": 1, "controller__replicas": 1}
    settings = {**without, "config__templating__extraContext": {"http3": True}}
    with trio.fail_after(LIMIT):
        async with installed(cluster, helm, namespace, without):
            rejected = await upgrade(cluster, helm, namespace, settings)
            ports = await ports_of(cluster, path)
            advice = re.search(r"--patch '(.*)'", rejected.errors.decode())
            assert advice, rejected.errors
            await cluster.api.patch(path, json.loads(advice[1]), JSON_PATCH)
            done = await upgrade(cluster, helm, namespace, settings)
            more = await ports_of(cluster, path)

    assert (rejected.status != 0, ports) == (True, tcp)
    assert (done.status, done.errors, more) == (0, b"", tcp | {("http3", "UDP", 443, 8443)})
