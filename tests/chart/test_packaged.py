"""The packaged chart: installed from its file with HAProxy 3.4, it serves all new Ingresses without a reload."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from haptic_trio.demo.certificate import make_certificate
from haptic_trio.k8s.resource import Resource
from tests.chart.support.rendering import Helm
from tests.chart.test_install import (
    CONTROLLERS,
    HAPROXIES,
    LIMIT,
    balancer_of,
    ingress,
    installed,
    settings_of,
)
from tests.cluster.node.images import CHECKOUT, SYSTEM_PATH
from tests.cluster.workloads.client import Cluster, until
from tests.cluster.workloads.manifests import deployment, service
from tests.cluster.workloads.traffic import BadAnswerError, send_request
from tests.support.kubernetes import tls_secret
from tests.support.processes.haproxy_versions import VersionUnavailableError, is_required, provide
from tests.support.traffic.servers import dns_names

pytestmark = [pytest.mark.cluster, pytest.mark.haproxy]
VERSION = "3.4"
IMAGE = "haptic-trio-newest"
RELOADS = "haptic_haproxy_reloads_total"
HOLDING_BACK = "haptic_instance_holding_back"
STARTED = "haproxy_process_start_time_seconds"
"""Of a worker: another one after a reload."""


@pytest.fixture(scope="module")
def haproxy() -> Path:
    """The folder of an HAProxy as in the image."""
    try:
        return provide(VERSION)
    except VersionUnavailableError as exc:
        if is_required():
            pytest.fail(str(exc))
        pytest.skip(str(exc))


@pytest.fixture
def packaged(helm: Helm, tmp_path: Path) -> Path:
    """The package of the chart."""
    command = [str(helm.binary), "package", str(CHECKOUT / "chart"), "--destination", str(tmp_path)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (found,) = tmp_path.glob("*.tgz")
    return found


async def add_image(cluster: Cluster, haproxy: Path) -> None:
    """Let images of the name IMAGE be this checkout beside *haproxy*."""
    path = ":".join([str(haproxy), str(Path(sys.executable).parent), *SYSTEM_PATH])
    environment = {"PATH": path, "PYTHONPATH": str(CHECKOUT), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    await cluster.add_image(IMAGE, sys.executable, "-P", "-m", "haptic_trio", environment=environment)


def secure_host(namespace: str, name: str, host: str) -> list[Resource]:
    """Return a host with a backend, a Service and a certificate of its own."""
    certificate = make_certificate(host)
    secret = {**tls_secret(name, certificate.chain, certificate.key), "metadata": {"name": name}}
    found = ingress(namespace, name, host, name)
    found["spec"]["tls"] = [{"hosts": [host], "secretName": name}]
    return [secret, deployment(name, 1), service(name), found]


def values_of(text: str, name: str) -> list[float]:
    """Return the values of the samples called *name* in an answer with metrics."""
    families = text_string_to_metric_families(text)
    return [sample.value for family in families for sample in family.samples if sample.name == name]


async def test_new_ingresses_with_services_and_certificates_are_served_without_a_reload(
    cluster: Cluster, helm: Helm, namespace: str, haproxy: Path, packaged: Path
) -> None:
    settings = {**settings_of(namespace), "image__repository": f"registry.test/{IMAGE}", "image__tag": "1"}

    async def read(selector: str, port: int) -> list[str]:
        pods = await cluster.wait_pods(namespace, selector, 2)
        return [(await client.get(f"http://{pod['status']['podIP']}:{port}/metrics")).text for pod in pods]

    async def sum_of_reloads() -> float:
        return sum(value for text in await read(CONTROLLERS, 9090) for value in values_of(text, RELOADS))

    async def is_settled() -> bool:
        # Both controllers know both instances; each instance has every change, and waits for no reload.
        held = [value for text in await read(CONTROLLERS, 9090) for value in values_of(text, HOLDING_BACK)]
        return held == [0, 0, 0, 0]

    async def is_served(host: str) -> bool:
        """Return whether the load balancer and each pod answer for *host* with its certificate."""
        pods = [(pod["status"]["podIP"], 8443) for pod in await cluster.wait_pods(namespace, HAPROXIES, 2)]
        try:
            answers = [
                await send_request(partial(cluster.connect, *address), host, tls=True)
                for address in [(balancer, 443), *pods]
            ]
        except BadAnswerError:
            return False
        return all(one.status == 200 and host in dns_names(one.certificate) for one in answers)

    with trio.fail_after(LIMIT):
        await add_image(cluster, haproxy)
        async with installed(cluster, helm, namespace, settings, chart=packaged), cluster.http() as client:
            balancer = await balancer_of(cluster, namespace)
            await until(is_settled)
            pages, reloads = await read(HAPROXIES, 8404), await sum_of_reloads()
            # The very first certificate needs no HTTPS frontend: the chart has it from the start.
            for name in ("first", "second"):
                await cluster.apply(secure_host(namespace, name, f"{name}.test"), namespace)
                await until(partial(is_served, f"{name}.test"))
            await until(is_settled)
            pages_after, reloads_after = await read(HAPROXIES, 8404), await sum_of_reloads()

    assert all(f'version="{VERSION}.' in page for page in pages)
    assert reloads_after == reloads
    started = [values_of(page, STARTED) for page in pages]
    assert [len(each) for each in started] == [1, 1]
    assert [values_of(page, STARTED) for page in pages_after] == started
