"""HAProxy pods as the controller finds them: new, crashed, or other ones. test_story.py has more and fewer of them."""

import signal
from pathlib import Path

import pytest
import trio

from tests.cluster.workloads.client import Cluster, until
from tests.cluster.workloads.controllers import Site, installed

pytestmark = pytest.mark.cluster
LIMIT = 180.0


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
            await _served_by(site, new["status"]["podIP"], "more.test")

            assert await site.ask_instance(old["status"]["podIP"], "more.test") == 404


async def _served_by(site: Site, address: str, host: str) -> None:
    async def is_served() -> bool:
        return await site.ask_instance(address, host) == 200

    await until(is_served)
