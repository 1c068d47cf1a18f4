"""Manual changes on an instance are found and repaired, even while deployments go on or templates fail."""

from pathlib import Path

import pytest
import trio

from haptic_trio.dataplane.local.process import read_record
from haptic_trio.dataplane.local.runtime import RuntimeClient
from haptic_trio.haproxy.runtime.replies import parse_servers_state
from haptic_trio.messages import (
    ConfigInvalid,
    DeploymentScheduled,
    DriftRepaired,
    DriftSuspected,
    InstanceDeployed,
    Outcome,
    ReconcileCompleted,
    ValidationFailed,
)
from tests.features.harness import Running, Site, request, serving_web

pytestmark = pytest.mark.haproxy

EVERY_SECOND = {"driftPreventionInterval": "1s"}
BREAKS_WITH_A_SECOND = {
    "global-broken": {
        "template": "{% if resources.ingresses.list() | length > 1 %}    maxconn 10 20 30\n{% endif %}",
    }
}


def deployed_file(site: Site, name: str) -> Path:
    """Return the file *name* of the generation that the instance runs."""
    current = site.state / "instances" / "local-1" / "current"
    return next(path for path in (current / name, current / "maps" / name) if path.exists())


async def repaired(running: Running, *, since: int) -> InstanceDeployed:
    """Return the next deployment that changed something."""
    return await running.wait(InstanceDeployed, lambda event: event.result.changed, since=since)


@pytest.mark.parametrize("name", ["haproxy.cfg", "path-prefix.map"])
async def test_file_that_was_edited_by_hand_is_repaired(site: Site, haproxy_binary: Path, name: str) -> None:
    site.write_config(dataplane=EVERY_SECOND)
    async with serving_web(site, haproxy_binary) as running:
        path = deployed_file(site, name)
        before = path.read_bytes()
        path.chmod(0o600)
        path.write_bytes(before + b"# by hand\n")
        since = len(running.events)

        fixed = await repaired(running, since=since)

        assert deployed_file(site, name).read_bytes() == before
        assert fixed.result.reloaded
        assert fixed.result.drift == {"files": 1}
        assert await site.get("web.localhost") == (200, "one")


async def test_file_that_was_deleted_is_put_back(site: Site, haproxy_binary: Path) -> None:
    site.write_config(dataplane=EVERY_SECOND)
    async with serving_web(site, haproxy_binary) as running:
        path = deployed_file(site, "path-prefix.map")
        before = path.read_bytes()
        since = len(running.events)
        path.unlink()

        await repaired(running, since=since)

        assert deployed_file(site, "path-prefix.map").read_bytes() == before


def socket_of(site: Site) -> RuntimeClient:
    """Return a client of the instance's runtime socket, as anybody may have one."""
    record = read_record(site.state / "instances/local-1/process.json")
    assert record is not None
    return RuntimeClient(Path(record.sockets) / "admin.sock", endpoint="somebody")


async def test_what_was_said_on_the_runtime_socket_is_put_right_without_a_reload(
    site: Site, haproxy_binary: Path
) -> None:
    site.write_config(dataplane=EVERY_SECOND)
    async with serving_web(site, haproxy_binary) as running:
        client = socket_of(site)
        servers = parse_servers_state(await client.ask("show servers state\n"))
        [server] = [one for one in servers if one.port and one.state == "ready"]
        since = len(running.events)
        await client.ask(f"set server {server.backend}/{server.server} state maint;clear map maps/path-prefix.map\n")
        await running.answers(site, "web.localhost", 404)

        fixed = await running.wait(DriftRepaired, since=since)

        assert (dict(fixed.found), fixed.reloaded) == ({"server": 1, "map": 1}, False)
        assert await site.get("web.localhost") == (200, "one")
        port = int(running.serving.addresses[0].rpartition(":")[2])
        _, metrics = await request(port, "localhost", "/metrics")
        assert 'haptic_haproxy_drift_total{kind="server"} 1.0' in metrics
        assert 'haptic_haproxy_drift_total{kind="map"} 1.0' in metrics
        assert await running.reloads() == 0


async def test_runtime_drift_is_put_right_while_deployments_leave_no_quiet_interval(
    site: Site, haproxy_binary: Path
) -> None:
    site.write_config(dataplane={"driftPreventionInterval": "2s"})
    async with serving_web(site, haproxy_binary) as running:
        client = socket_of(site)
        since = len(running.events)
        await client.ask("clear map maps/path-prefix.map\n")
        for number in range(40):
            site.write_ingress("more", "more.localhost", "web", path=f"/{number}")
            with trio.move_on_after(0.2):
                await running.events.wait_for(DriftRepaired, lambda _event: True, since=since)
                break

        assert dict(running.events.all(DriftRepaired, since=since)[0].found)["map"] >= 1
        assert not running.events.all(DriftSuspected, since=since)
        await running.serves(site, "web.localhost", "one")


async def test_instance_as_it_should_be_is_compared_and_left_alone(site: Site, haproxy_binary: Path) -> None:
    site.write_config(dataplane=EVERY_SECOND)
    async with serving_web(site, haproxy_binary) as running:
        [before] = await running.describe()
        since = len(running.events)

        suspected = await running.wait(DriftSuspected, since=since)
        # One that takes longer than the interval is followed by another, and may be taken together with it.
        completed = await running.wait(
            ReconcileCompleted, lambda event: event.outcome is not Outcome.SUPERSEDED, since=since
        )
        [after] = await running.describe()

        assert suspected.idle == 1
        assert completed.outcome is Outcome.UNCHANGED
        assert after == before
        assert not running.events.all(DriftRepaired)


async def test_last_valid_configuration_is_deployed_against_drift_while_the_templates_fail(
    site: Site, haproxy_binary: Path
) -> None:
    site.write_config(dataplane=EVERY_SECOND, templateSnippets=BREAKS_WITH_A_SECOND)
    async with serving_web(site, haproxy_binary) as running:
        path = deployed_file(site, "haproxy.cfg")
        before = path.read_bytes()
        site.write_ingress("more", "more.localhost", "web")
        await running.wait(ValidationFailed)
        path.chmod(0o600)
        path.write_bytes(before + b"# by hand\n")
        since = len(running.events)

        scheduled = await running.wait(DeploymentScheduled, since=since)
        await repaired(running, since=since)

        assert scheduled.why == "drift"
        assert deployed_file(site, "haproxy.cfg").read_bytes() == before
        assert await site.get("web.localhost") == (200, "one")
        assert not [
            event for event in running.events.all(ReconcileCompleted, since=since) if event.outcome is Outcome.DEPLOYED
        ]


async def test_configuration_of_before_is_deployed_against_drift_while_a_changed_configmap_renders_nothing_valid(
    site: Site, haproxy_binary: Path
) -> None:
    site.write_config(dataplane=EVERY_SECOND)
    async with serving_web(site, haproxy_binary) as running:
        path = deployed_file(site, "haproxy.cfg")
        before = path.read_bytes()
        site.write_config(
            dataplane=EVERY_SECOND, templateSnippets={"global-broken": {"template": "    {{ nothing.here }}\n"}}
        )
        await running.wait(ConfigInvalid)
        path.chmod(0o600)
        path.write_bytes(before + b"# by hand\n")
        since = len(running.events)

        await repaired(running, since=since)

        assert deployed_file(site, "haproxy.cfg").read_bytes() == before
        assert await site.get("web.localhost") == (200, "one")
