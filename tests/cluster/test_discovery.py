"""HAProxy pods come, go, crash and hang while traffic runs, and nobody notices but the controller."""

import signal
from pathlib import Path

import pytest
import trio

from tests.cluster.client import Cluster, until
from tests.cluster.controllers import Traffic, installed

pytestmark = pytest.mark.cluster
LIMIT = 120.0


async def test_instances_are_added_and_removed_under_traffic(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with installed(cluster, namespace, tmp_path, controllers=1) as site, trio.open_nursery() as nursery:
            traffic = Traffic(site, "web.test")
            nursery.start_soon(traffic.run)
            for replicas in (3, 1, 2):
                began = trio.current_time()
                await site.apply(site.haproxy(replicas))
                await cluster.wait_pods(namespace, "app=haproxy", replicas)
                print(f"{replicas} instances after {trio.current_time() - began:.1f} s")  # noqa: T201
            await site.apply(site.ingress("more", "more.test"))
            for pod in await cluster.wait_pods(namespace, "app=haproxy", 2):
                await _served_by(cluster, pod["status"]["podIP"], "more.test")

            assert traffic.failures == []
            assert traffic.answered > 100
            nursery.cancel_scope.cancel()


async def test_pod_is_not_ready_before_it_has_a_configuration(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with installed(cluster, namespace, tmp_path, controllers=1) as site:
            await site.apply(site.controllers(0))
            await cluster.wait_pods(namespace, "app=controller", 0)
            await site.apply(site.haproxy(2))

            async def unready() -> bool:
                pods = await cluster.pods(namespace, "app=haproxy")
                states = [pod["status"].get("containerStatuses") or [{}] for pod in pods]
                return sorted(bool(state[0].get("ready")) for state in states) == [False, True] and all(
                    state[0].get("state", {}).get("running") for state in states
                )

            await until(unready)
            await site.apply(site.controllers(1))
            await cluster.wait_pods(namespace, "app=haproxy", 2)


async def test_crashed_instance_gets_its_configuration_back(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with installed(cluster, namespace, tmp_path, controllers=1) as site:
            (pod,) = await cluster.wait_pods(namespace, "app=haproxy", 1)

            await cluster.signal_container(namespace, pod["metadata"]["name"], signal.SIGKILL)
            await cluster.wait(
                site.path("pods", pod["metadata"]["name"]),
                lambda found: found and found["status"]["containerStatuses"][0]["restartCount"] == 1,
            )
            await cluster.wait_pods(namespace, "app=haproxy", 1)
            await site.apply(site.ingress("more", "more.test"))
            await site.until_served("more.test")


async def test_other_selector_moves_deployments_to_the_pods_it_chooses(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    with trio.fail_after(LIMIT):
        async with installed(cluster, namespace, tmp_path, controllers=1) as site:
            (old,) = await cluster.wait_pods(namespace, "app=haproxy", 1)
            other = site.haproxy(1)
            other["metadata"] = {"name": "other"}
            other["spec"]["selector"] = {"matchLabels": {"app": "other"}}
            other["spec"]["template"]["metadata"] = {"labels": {"app": "other"}}
            await site.apply(other, site.config_map(podSelector={"matchLabels": {"app": "other"}}))
            (new,) = await cluster.wait_pods(namespace, "app=other", 1)

            await site.apply(site.ingress("more", "more.test"))
            await _served_by(cluster, new["status"]["podIP"], "more.test")

            assert await _ask(cluster, old["status"]["podIP"], "more.test") == 404


async def _served_by(cluster: Cluster, address: str, host: str) -> None:
    async def is_served() -> bool:
        return await _ask(cluster, address, host) == 200

    await until(is_served)


async def _ask(cluster: Cluster, address: str, host: str) -> int:
    async with cluster.http(timeout=5) as client:
        answer = await client.get(f"http://{address}:8080/", headers={"Host": host})
    return answer.status_code
