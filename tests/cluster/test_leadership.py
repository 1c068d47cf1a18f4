"""Two controllers in a cluster, of which one hangs while it leads; the other ways of its end are in test_story.py."""

import signal
from pathlib import Path

import pytest
import trio

from tests.cluster.workloads.client import Cluster
from tests.cluster.workloads.controllers import installed

pytestmark = pytest.mark.cluster
LIMIT = 180.0


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
