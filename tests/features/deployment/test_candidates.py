"""A ConfigMap that HAProxy rejects, and a good one, while endpoints change and HAProxy serves."""

from pathlib import Path

import msgspec
import pytest
import trio

from haptic_trio.messages import (
    ConfigInvalid,
    DeploymentScheduled,
    InstanceDeployed,
    IterationEnded,
    Quarantined,
    ReconcileCompleted,
    ValidationFailed,
)
from tests.features.harness import Running, Site, Traffic, serving_web
from tests.support.processes.haproxy import backend

pytestmark = pytest.mark.haproxy


async def is_ready(running: Running) -> bool:
    await trio.lowlevel.checkpoint()
    return running.iteration is not None and running.iteration.is_ready


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ fail('never') }}", "never"),
        ("    nonsense here\n", "nonsense"),
        ("    lua-load /nonexistent.lua\n", "nonexistent.lua"),
    ],
    ids=["render", "parse", "check"],
)
async def test_endpoints_follow_while_the_configmap_is_rejected(
    site: Site, haproxy_binary: Path, text: str, message: str
) -> None:
    traffic = Traffic()
    async with (
        serving_web(site, haproxy_binary) as running,
        backend("two") as two,
        backend("three") as three,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(traffic.run, site, "web.localhost")
        site.write_config(templateSnippets={"global-number": {"template": text}})
        invalid = await running.wait(ConfigInvalid)
        for port, body in ((two, "two"), (three, "three")):
            site.write_service("web", port)
            await running.serves(site, "web.localhost", body)
        since = len(running.events)
        # Drift checks deploy again.
        await running.quiet()
        await traffic.wait_for(20)
        assert await site.get("web.localhost") == (200, "three")
        assert await is_ready(running)
        assert running.events.all(IterationEnded) == []
        assert running.events.all(ValidationFailed) == []

        site.write_config(templateSnippets={"global-number": {"template": "    maxconn 2345\n"}})
        await running.wait(IterationEnded)
        await running.wait(InstanceDeployed, lambda event: event.result.changed, since=since)
        assert await site.get("web.localhost") == (200, "three")
        nursery.cancel_scope.cancel()

    assert message in str(invalid.problems[0])
    assert traffic.failures == []


async def test_endpoints_of_the_time_of_the_change_are_served_with_the_new_configuration(
    site: Site, haproxy_binary: Path
) -> None:
    traffic = Traffic()
    async with (
        serving_web(site, haproxy_binary) as running,
        backend("two") as two,
        backend("three") as three,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(traffic.run, site, "web.localhost")
        for number in range(2, 6):
            since = len(running.events)
            site.write_config(templateSnippets={"global-number": {"template": f"    maxconn {2000 + number}\n"}})
            for port, body in ((two, "two"), (three, "three")):
                site.write_service("web", port)
                await running.serves(site, "web.localhost", body)
            await running.wait(ReconcileCompleted, lambda event, n=number: event.correlation == f"{n}-1", since=since)  # type: ignore[misc]
            # The worker that was serving got the last change during the reload; the new worker gets it right after.
            await running.serves(site, "web.localhost", "three")
        nursery.cancel_scope.cancel()

    assert traffic.failures == []


async def test_endpoints_follow_while_haproxy_rejects_the_structure_of_no_object(
    site: Site, haproxy_binary: Path
) -> None:
    snippet = "{% if resources.services.get('default', 'bad') %}    lua-load /nonexistent.lua\n{% endif %}"
    async with serving_web(site, haproxy_binary) as running, backend("two") as two, backend("three") as three:
        site.write_config(templateSnippets={"global-bad": {"template": snippet}})
        await running.wait(ReconcileCompleted, lambda event: event.correlation == "2-1")
        site.write_service("bad")
        await running.wait(ValidationFailed)
        for port, body in ((two, "two"), (three, "three")):
            since = len(running.events)
            site.write_service("web", port)
            await running.serves(site, "web.localhost", body)
            # The check of the whole configuration has failed, and the servers stay.
            await running.wait(ValidationFailed, since=since)
            await running.quiet()
            assert await site.get("web.localhost") == (200, body)
        assert "rollback" not in {event.why.value for event in running.events.all(DeploymentScheduled)}

        site.remove("service-bad")
        await running.settled(since=len(running.events))
        assert await site.get("web.localhost") == (200, "three")


async def test_object_that_stays_quarantined_is_reported_for_the_next_iteration(
    site: Site, haproxy_binary: Path
) -> None:
    async with serving_web(site, haproxy_binary) as running:
        site.write_ingress("evil", "evil.localhost", "web", "/a\n    http-request deny")
        await running.wait(Quarantined)
        since = len(running.events)
        site.write_config(templateSnippets={"global-number": {"template": "    maxconn 2345\n"}})
        await running.wait(ReconcileCompleted, lambda event: event.correlation == "2-1", since=since)

    events = [type(event) for event in running.events.all(msgspec.Struct, since=since)]
    # At the end of an iteration no object counts as quarantined, in metrics and in the console.
    assert events.index(Quarantined) > events.index(IterationEnded)
