"""Ten thousand Ingresses at the start: served all at once, and none lost when controllers restart."""

import random
import signal
from pathlib import Path

import pytest
import trio

from tests.cluster.control_plane.etcd import remove_all, write_objects
from tests.cluster.workloads.client import Cluster, until
from tests.cluster.workloads.controllers import Site, installed
from tests.cluster.workloads.interruption import Interruptions
from tests.cluster.workloads.traffic import flowing

pytestmark = pytest.mark.cluster
LIMIT = 240.0
MANY = 10_000
SAMPLE = 40
CUTTING = 4.0
"""Seconds in which connections to the API server are cut, while controllers list everything."""


def host_of(number: int) -> str:
    return f"many-{number}.test"


async def first_answers(site: Site, hosts: list[str]) -> list[int]:
    """Return what the first instance that serves anything answers to *hosts* at that moment."""

    async def address() -> str:
        found = await site.cluster.pods(site.namespace, "app=haproxy")
        return str((found[0].get("status") or {}).get("podIP", "")) if found else ""

    instance = await until(address)

    async def answers() -> bool:
        return await site.ask_instance(instance, hosts[0]) != 0

    await until(answers)
    return [await site.ask_instance(instance, host) for host in hosts]


async def test_ten_thousand_ingresses_are_in_the_first_deployment_and_stay_while_controllers_restart(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    way = Interruptions(cluster)
    hosts = [host_of(number) for number in random.Random(7).sample(range(MANY), SAMPLE)]
    first_in, first_out = trio.open_memory_channel[list[int]](1)

    async def prepare(site: Site) -> None:
        site.controller_environment = way.environment
        every = [site.ingress(f"many-{number:05d}", host_of(number)) for number in range(MANY)]
        await write_objects(cluster, namespace, every)
        nursery.start_soon(look, site)

    async def look(site: Site) -> None:
        with first_in:
            await first_in.send(await first_answers(site, hosts))

    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            await nursery.start(way.run)
            async with installed(cluster, namespace, tmp_path, prepare=prepare, limit=LIMIT) as site:
                assert await first_out.receive() == [200] * SAMPLE
                began = trio.current_time()
                async with flowing(site.traffic(*hosts)):
                    pods = await site.pods_of_controllers()
                    for pod in pods:
                        await cluster.signal_container(namespace, pod, signal.SIGKILL)
                    # Lists that are cut off in the middle, too, are no reason to deploy less.
                    with trio.move_on_after(CUTTING):
                        await way.cut_every(0.25)
                    for pod in pods:
                        await site.until_restarted(pod)
                    await cluster.wait_pods(namespace, "app=controller", 2)
                    await site.apply(site.ingress("more", "more.test"))
                    await site.until_served("more.test")
                print(f"restarted in {trio.current_time() - began:.1f} s, {way.cuts} cuts")  # noqa: T201
            nursery.cancel_scope.cancel(reason="the test is over")
        await remove_all(cluster, namespace)
