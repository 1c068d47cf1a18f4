"""Two controllers in a cluster: one leads; when it goes, however it goes, the other deploys soon."""

import signal
from pathlib import Path

import pytest
import trio

from tests.cluster.client import Cluster
from tests.cluster.controllers import LEASE_DURATION, Traffic, installed

pytestmark = pytest.mark.cluster
LIMIT = 90.0


async def test_killed_leader_is_replaced_within_the_lease_duration_and_two_seconds(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    with trio.fail_after(LIMIT):
        async with installed(cluster, namespace, tmp_path) as site, trio.open_nursery() as nursery:
            traffic = Traffic(site, "web.test")
            nursery.start_soon(traffic.run)
            leader = await site.leader()
            pod = leader.partition("_")[0]

            began = trio.current_time()
            await cluster.signal_container(namespace, pod, signal.SIGKILL)
            await site.apply(site.ingress("more", "more.test"))
            served = await site.until_served("more.test")

            assert await site.leader() != leader
            print(f"failover after kill: {served - began:.2f} s")  # noqa: T201
            assert served - began <= LEASE_DURATION + 2
            assert traffic.failures == []
            nursery.cancel_scope.cancel()


async def test_leader_that_is_stopped_is_replaced_within_two_seconds(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    with trio.fail_after(LIMIT):
        async with installed(cluster, namespace, tmp_path) as site, trio.open_nursery() as nursery:
            traffic = Traffic(site, "web.test")
            nursery.start_soon(traffic.run)
            leader = await site.leader()
            pod = leader.partition("_")[0]

            began = trio.current_time()
            path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
            nursery.start_soon(cluster.api.delete, path)
            await site.leader(other_than=leader)
            won = trio.current_time()
            await site.apply(site.ingress("more", "more.test"))
            served = await site.until_served("more.test")

            print(f"failover after stop: lease {won - began:.2f} s, traffic {served - began:.2f} s")  # noqa: T201
            assert served - began <= 2
            assert traffic.failures == []
            nursery.cancel_scope.cancel()


async def test_frozen_leader_that_wakes_up_deploys_nothing(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with installed(cluster, namespace, tmp_path) as site:
            leader = await site.leader()
            pod = leader.partition("_")[0]

            await cluster.signal_container(namespace, pod, signal.SIGSTOP)
            await site.leader(other_than=leader)
            await site.apply(site.ingress("more", "more.test"))
            await site.until_served("more.test")
            await cluster.signal_container(namespace, pod, signal.SIGCONT)
            await site.apply(site.ingress("later", "later.test"))
            await site.until_served("later.test")

            assert await site.ask("more.test") == 200
            assert await site.leader() != leader
