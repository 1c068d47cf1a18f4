"""The clock of a controller is set while it runs: no lease ends by that, and changes go on arriving."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trio

from tests.cluster.node.clock import Clock, NoCompilerError, build_library
from tests.cluster.workloads.client import Cluster, until
from tests.cluster.workloads.controllers import LEASE_DURATION, Site, installed
from tests.cluster.workloads.traffic import flowing

pytestmark = pytest.mark.cluster
LIMIT = 180.0
SHARED_FOLDER = Path("/dev/shm")
"""The one folder that containers share with the machine as it is."""
HOUR = 3600


@pytest.fixture
def clock() -> Iterator[Clock]:
    """A clock for the controllers."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="haptic-clock-", dir=SHARED_FOLDER)))
        try:
            library = build_library(folder)
        except NoCompilerError as exc:
            if os.environ.get("HAPTIC_REQUIRE_CLUSTER") == "1":
                pytest.fail(str(exc))
            pytest.skip(str(exc))
        yield Clock(library, folder)


@pytest.mark.parametrize("hours", [5, -5], ids=["forward", "backward"])
async def test_clock_that_jumps_moves_no_lease_and_delays_no_change(
    cluster: Cluster, namespace: str, tmp_path: Path, clock: Clock, hours: int
) -> None:
    async def have_clock(site: Site) -> None:
        site.controller_environment = clock.environment

    with trio.fail_after(LIMIT):
        async with (
            installed(cluster, namespace, tmp_path, prepare=have_clock, instances=2) as site,
            flowing(site.traffic("web.test")),
        ):
            leader = await site.leader()
            clock.jump(hours * HOUR)
            await site.apply(site.ingress("more", "more.test"))
            await site.until_served("more.test")
            assert await site.leader() == leader, "and no other leader has served it"
            await until(lambda: lives_hours_away(site, hours))
            # real time: longer than anything that is timed by the lease
            await trio.sleep(LEASE_DURATION + 1)
            clock.jump(0)
            await site.apply(site.ingress("back", "back.test"))
            await site.until_served("back.test")
            lease = await cluster.api.get(site.path("leases", "leader"))

    assert lease["spec"]["holderIdentity"] == leader
    assert lease["spec"]["leaseTransitions"] == 0


async def lives_hours_away(site: Site, hours: int) -> bool:
    """Return whether some line of the leader's log has a time that differs by *hours* from the local one."""
    lines = (await site.cluster.logs(site.namespace, await site.pod_of_leader())).splitlines()
    stamps = [datetime.fromisoformat(json.loads(line)["timestamp"]) for line in lines]
    return any(abs((stamp - datetime.now(UTC)).total_seconds() / HOUR - hours) < 0.5 for stamp in stamps)
