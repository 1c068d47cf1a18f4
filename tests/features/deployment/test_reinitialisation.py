"""Iterations and controllers come and go; HAProxy serves on."""

from pathlib import Path

import pytest
import trio

from haptic_trio.messages import ConfigInvalid, InstanceDeployed, StageReached
from tests.features.harness import Running, Site, Traffic, controller, serving_web
from tests.support.processes.haproxy import backend, live_haproxies

pytestmark = pytest.mark.haproxy


async def next_iteration(running: Running, number: int, *, since: int) -> None:
    """Return once iteration *number* is up and its first reconciliation has ended."""
    await running.wait(StageReached, lambda event: (event.stage, event.iteration) == (5, number), since=since)
    await running.settled(since=since, iteration=number)


async def test_haproxy_stays_the_same_process_across_reinitialisations(site: Site, haproxy_binary: Path) -> None:
    async with serving_web(site, haproxy_binary) as running:
        [before] = await running.describe()
        for number in range(2, 7):
            since = len(running.events)
            site.write_config(templateSnippets={"global-number": {"template": f"    maxconn {2000 + number}\n"}})
            await next_iteration(running, number, since=since)
        [after] = await running.describe()

        assert after.pid == before.pid
        assert after.reloads == before.reloads + 5
        assert await site.get("web.localhost") == (200, "one")


async def test_change_of_intervals_alone_touches_no_instance(site: Site, haproxy_binary: Path) -> None:
    async with serving_web(site, haproxy_binary) as running:
        [before] = await running.describe()
        for number in range(2, 5):
            since = len(running.events)
            site.write_config(reconciler={"debounceInterval": f"{number}ms"})
            await next_iteration(running, number, since=since)
            deployed = await running.wait(InstanceDeployed, since=since)
            assert not deployed.result.changed
        [after] = await running.describe()

        assert (after.pid, after.generation, after.reloads) == (before.pid, before.generation, before.reloads)


async def test_object_that_changes_while_the_iteration_changes_is_not_lost(site: Site, haproxy_binary: Path) -> None:
    async with serving_web(site, haproxy_binary) as running, backend("two") as two, backend("three") as three:
        for number, (port, body) in enumerate([(two, "two"), (three, "three")] * 3, start=2):
            site.write_config(reconciler={"debounceInterval": f"{number}ms"})
            site.write_service("web", port)
            await running.serves(site, "web.localhost", body)


async def test_broken_configmap_can_be_corrected_and_takes_effect_then(site: Site, haproxy_binary: Path) -> None:
    async with serving_web(site, haproxy_binary) as running:
        site.write_raw_config("templating: {libraries: [nothing]}\n")
        await running.wait(ConfigInvalid)
        since = len(running.events)
        site.write_config(templateSnippets={"global-number": {"template": "    maxconn 2345\n"}})
        await next_iteration(running, 2, since=since)
        await running.wait(InstanceDeployed, lambda event: event.result.changed, since=since)

        assert await site.get("web.localhost") == (200, "one")


async def test_next_controller_adopts_the_haproxy_and_no_connection_is_rejected(
    site: Site, haproxy_binary: Path
) -> None:
    traffic = Traffic()
    async with backend("one") as one:
        site.write_service("web", one)
        site.write_ingress("web", "web.localhost", "web")
        pids: list[list[int]] = []
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                async with controller(site, haproxy_binary, on_exit="leave") as running:
                    await running.serves(site, "web.localhost", "one")
                    if not pids:
                        nursery.start_soon(traffic.run, site, "web.localhost")
                    await running.settled()
                    await traffic.wait_for(20)
                    pids.append([info.pid for info in await running.describe()])
                await traffic.wait_for(20)
            nursery.cancel_scope.cancel()

        async with controller(site, haproxy_binary) as running:
            await running.settled()
            pids.append([info.pid for info in await running.describe()])
            deployed = running.events.all(InstanceDeployed)

    assert traffic.failures == []
    assert pids == [pids[0]] * 4
    # What runs is known to be what is wanted: not even a reload.
    assert [event.result.changed for event in deployed] == [False]
    assert live_haproxies(site.state) == []
