"""The project's own programs in the cluster: HAProxy, haptic-trio and helm."""

import httpx
import pytest
import trio

from tests.cluster.control_plane.binaries import BinaryUnavailableError, find_helm
from tests.cluster.node.images import default_images
from tests.cluster.workloads.client import Cluster
from tests.cluster.workloads.manifests import deployment, pod, service

pytestmark = pytest.mark.cluster
LIMIT = 90.0
CONFIG = """\
defaults
    mode http
    timeout client 5s
    timeout server 5s
    timeout connect 5s
frontend main
    bind :8080
    http-request return status 200 content-type text/plain lf-string "%[hostname]"
"""


async def test_haproxy_pods_are_reached_at_the_address_of_their_service(cluster: Cluster, namespace: str) -> None:
    if default_images().find("haproxy") is None:
        pytest.skip("there is no haproxy here")
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "haproxy"},
        "data": {"haproxy.cfg": CONFIG},
    }
    container = {
        "name": "haproxy",
        "image": "docker.io/library/haproxy:2.8",
        "args": ["-W", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg"],
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": {"tcpSocket": {"port": "http"}, "periodSeconds": 1},
        "volumeMounts": [{"name": "config", "mountPath": "/usr/local/etc/haproxy"}],
    }
    volumes = [{"name": "config", "configMap": {"name": "haproxy"}}]
    with trio.fail_after(LIMIT):
        objects = [config_map, deployment("haproxy", 2, container, volumes=volumes), service("haproxy")]
        address = (await cluster.apply(objects, namespace))[-1]["spec"]["clusterIP"]
        pods = await cluster.wait_pods(namespace, "app=haproxy", 2)
        seen = set[str]()
        async with cluster.http() as client:
            while len(seen) < 2:
                try:
                    seen.add((await client.get(f"http://{address}/", headers={"connection": "close"})).text)
                except httpx.TransportError:
                    await trio.sleep(0.02)

    assert seen == {one["metadata"]["name"] for one in pods}


async def test_haptic_trio_runs_as_a_container(cluster: Cluster, namespace: str) -> None:
    container = {"name": "version", "image": "ghcr.io/example/haptic-trio:latest", "args": ["--version"]}
    path = f"/api/v1/namespaces/{namespace}/pods/version"
    with trio.fail_after(LIMIT):
        await cluster.apply([pod("version", container, restartPolicy="Never")], namespace)
        await cluster.wait(path, lambda found: found and found["status"]["phase"] == "Succeeded")

        assert (await cluster.logs(namespace, "version")).startswith("haptic-trio, version ")


async def test_helm_reaches_the_api_server(cluster: Cluster, namespace: str) -> None:
    try:
        helm = find_helm()
    except BinaryUnavailableError as exc:
        pytest.skip(str(exc))
    done = await cluster.run([str(helm), "list", "--namespace", namespace, "--output", "json"])

    assert (done.status, done.output.strip()) == (0, b"[]"), done.errors
