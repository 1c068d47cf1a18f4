"""What hands change on an instance is noticed and put right, whatever the templates do meanwhile."""

from pathlib import Path

import pytest

from haptic_trio.messages import (
    DeploymentScheduled,
    DriftSuspected,
    InstanceDeployed,
    IterationEnded,
    Outcome,
    ReconcileCompleted,
    ValidationFailed,
)
from tests.features.harness import Running, Site, serving_web
from tests.support.haproxy import paths_named

pytestmark = pytest.mark.haproxy

EVERY_SECOND = {"driftPreventionInterval": "1s"}
BREAKS_WITH_A_SECOND = {
    "global-broken": {
        "template": "{% if resources.ingresses.list() | length > 1 %}    maxconn 10 20 30\n{% endif %}",
    }
}


def deployed_file(site: Site, name: str) -> Path:
    """Return the file *name* of the generation that the instance runs."""
    [path] = paths_named(site.state / "instances" / "local-1", f"current/**/{name}")
    return path


async def repaired(running: Running, *, since: int) -> InstanceDeployed:
    """Return the next deployment that changed something."""
    return await running.wait(InstanceDeployed, lambda fact: fact.result.changed, since=since)


@pytest.mark.parametrize("name", ["haproxy.cfg", "path-prefix.map"])
async def test_file_that_was_edited_by_hand_is_repaired(site: Site, haproxy_binary: Path, name: str) -> None:
    site.write_config(dataplane=EVERY_SECOND)
    async with serving_web(site, haproxy_binary) as running:
        await running.quiet()
        path = deployed_file(site, name)
        before = path.read_bytes()
        path.chmod(0o600)
        path.write_bytes(before + b"# by hand\n")
        since = len(running.facts)

        fixed = await repaired(running, since=since)

        assert deployed_file(site, name).read_bytes() == before
        assert running.facts.all(DriftSuspected, since=since)
        assert fixed.result.reloaded
        assert await site.get("web.localhost") == (200, "one")


async def test_file_that_was_deleted_is_put_back(site: Site, haproxy_binary: Path) -> None:
    site.write_config(dataplane=EVERY_SECOND)
    async with serving_web(site, haproxy_binary) as running:
        await running.quiet()
        path = deployed_file(site, "path-prefix.map")
        before = path.read_bytes()
        since = len(running.facts)
        path.unlink()

        await repaired(running, since=since)

        assert deployed_file(site, "path-prefix.map").read_bytes() == before


async def test_instance_as_it_should_be_is_compared_and_left_alone(site: Site, haproxy_binary: Path) -> None:
    site.write_config(dataplane=EVERY_SECOND)
    async with serving_web(site, haproxy_binary) as running:
        await running.quiet()
        [before] = await running.describe()
        since = len(running.facts)

        suspected = await running.wait(DriftSuspected, since=since)
        completed = await running.settled(since=since)
        [after] = await running.describe()

        assert suspected.idle == 1
        assert completed.outcome is Outcome.UNCHANGED
        assert after == before


async def test_last_valid_configuration_is_deployed_against_drift_while_the_templates_fail(
    site: Site, haproxy_binary: Path
) -> None:
    site.write_config(dataplane=EVERY_SECOND, templateSnippets=BREAKS_WITH_A_SECOND)
    async with serving_web(site, haproxy_binary) as running:
        await running.quiet()
        path = deployed_file(site, "haproxy.cfg")
        before = path.read_bytes()
        site.write_ingress("more", "more.localhost", "web")
        await running.wait(ValidationFailed)
        path.chmod(0o600)
        path.write_bytes(before + b"# by hand\n")
        since = len(running.facts)

        scheduled = await running.wait(DeploymentScheduled, since=since)
        await repaired(running, since=since)

        assert scheduled.why == "drift"
        assert deployed_file(site, "haproxy.cfg").read_bytes() == before
        assert await site.get("web.localhost") == (200, "one")
        assert not [
            fact for fact in running.facts.all(ReconcileCompleted, since=since) if fact.outcome is Outcome.DEPLOYED
        ]


async def test_configuration_of_before_is_deployed_against_drift_while_a_changed_configmap_renders_nothing_valid(
    site: Site, haproxy_binary: Path
) -> None:
    site.write_config(dataplane=EVERY_SECOND)
    async with serving_web(site, haproxy_binary) as running:
        await running.quiet()
        path = deployed_file(site, "haproxy.cfg")
        before = path.read_bytes()
        site.write_config(
            dataplane=EVERY_SECOND, templateSnippets={"global-broken": {"template": "    {{ nothing.here }}\n"}}
        )
        await running.wait(IterationEnded)
        await running.wait(ValidationFailed)
        path.chmod(0o600)
        path.write_bytes(before + b"# by hand\n")
        since = len(running.facts)

        await repaired(running, since=since)

        assert deployed_file(site, "haproxy.cfg").read_bytes() == before
        assert await site.get("web.localhost") == (200, "one")
