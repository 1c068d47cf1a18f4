"""A controller that ends while it deploys leaves one HAProxy, or none where it is to stop it."""

from pathlib import Path

import pytest

from haptic_trio.messages import DeploymentStarted
from tests.features.harness import Site, controller
from tests.support.processes.haproxy import backend, live_haproxies
from tests.support.processes.scripts import script

pytestmark = pytest.mark.haproxy


@pytest.mark.parametrize(("on_exit", "left"), [("leave", 2), ("stop", 0)])
async def test_controller_that_ends_during_a_deployment_starts_no_second_haproxy(
    site: Site, haproxy_binary: Path, tmp_path: Path, on_exit: str, left: int
) -> None:
    # The check before the load takes long enough for the end to fall into it.
    slow = script(tmp_path / "slow", f'[ "$1" = -c ] && sleep 0.3\nexec {haproxy_binary} "$@"')
    async with backend("one") as one:
        site.write_service("web", one)
        site.write_ingress("web", "web.localhost", "web")
        async with controller(site, slow, on_exit=on_exit) as running:
            await running.serves(site, "web.localhost", "one")
            await running.quiet()
            before = live_haproxies(site.state, within=0)
            since = len(running.events)
            site.write_service("api", one)
            site.write_ingress("api", "api.localhost", "api")
            await running.wait(DeploymentStarted, since=since)
        after = live_haproxies(site.state, within=0)

    assert len(before) == 2
    assert len(after) == left
    if on_exit == "leave":
        # Another binary would be another instance.
        async with controller(site, slow) as running:
            await running.settled()
            [info] = await running.describe()
            assert info.pid in before
