"""Several instances: each is deployed to at its own pace."""

import os
import signal
from pathlib import Path

import pytest

from haptic_trio.messages import InstanceDeployed, InstanceFailed, ReconcileCompleted
from tests.features.harness import Running, Site, controller
from tests.support.processes.haproxy import backend, live_haproxies

pytestmark = pytest.mark.haproxy


def deployed_to(running: Running, endpoint: str, *, since: int) -> list[str]:
    """Return the correlations of what the endpoint took, in order."""
    return [
        event.correlation
        for event in running.events.all(InstanceDeployed, since=since)
        if event.result.endpoint == endpoint
    ]


async def test_hanging_instance_delays_no_other_and_then_gets_only_the_newest(site: Site, haproxy_binary: Path) -> None:
    site.write_config(dataplane={"deploymentTimeout": "1s"})
    async with backend("one") as one, controller(site, haproxy_binary, instances=2) as running:
        site.write_service("web", one)
        site.write_ingress("web", "web.localhost", "web")
        await running.serves(site, "web.localhost", "one")
        await running.all_deployed(["local-1", "local-2"])
        hanging = live_haproxies(site.state / "instances" / "local-2", within=0)
        start = len(running.events)
        for pid in hanging:
            os.kill(pid, signal.SIGSTOP)
        try:
            correlations = []
            for number in range(5):
                since = len(running.events)
                site.write_service("web", one + number + 1)
                taken = await running.wait(
                    InstanceDeployed,
                    lambda event: event.result.endpoint == "local-1" and event.result.changed,
                    since=since,
                )
                # At once: not after the time limit of the other.
                assert taken.result.seconds < 1
                correlations.append(taken.correlation)
            # The attempt after this failure is one with the newest.
            since = len(running.events)
            await running.wait(InstanceFailed, lambda event: event.endpoint == "local-2", since=since)
        finally:
            for pid in hanging:
                os.kill(pid, signal.SIGCONT)
        newest = correlations[-1]
        await running.wait(
            InstanceDeployed,
            lambda event: event.result.endpoint == "local-2" and event.correlation == newest,
            since=start,
        )

        assert len(set(correlations)) == 5
        assert deployed_to(running, "local-2", since=start) == [newest]
        one_info, two_info = await running.describe()
        assert one_info.generation == two_info.generation


async def test_killed_instance_comes_back_with_the_newest_configuration(site: Site, haproxy_binary: Path) -> None:
    async with backend("one") as one, backend("two") as two, controller(site, haproxy_binary) as running:
        site.write_service("web", one)
        site.write_ingress("web", "web.localhost", "web")
        await running.serves(site, "web.localhost", "one")
        (before,) = await running.describe()

        os.kill(before.pid, signal.SIGKILL)
        since = len(running.events)
        site.write_service("web", two)
        await running.wait(ReconcileCompleted, since=since)
        await running.serves(site, "web.localhost", "two")

        (after,) = await running.describe()
        assert after.pid not in {0, before.pid}
