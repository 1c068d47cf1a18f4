"""The whole controller with agents elsewhere: processes of their own, killed and started again."""

import os
import signal
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import trio

from haptic_trio.cli.serving.endpoints import AgentList
from haptic_trio.dataplane.agent.client import AgentAddress
from haptic_trio.dataplane.endpoint import EndpointInfo
from haptic_trio.messages import DeploymentCompleted, DeploymentScheduled, InstanceDeployed
from tests.features.harness import Running, Site, controller
from tests.support.components.agents import AgentProcess, Authority, agent_process, until
from tests.support.processes.haproxy import backend, fetch, live_haproxies
from tests.support.processes.ports import free_port

pytestmark = pytest.mark.haproxy


def controlling(site: Site, binary: Path, authority: Authority, **urls: str) -> AbstractAsyncContextManager[Running]:
    """Run the controller over *site* with the agents at *urls*, by name."""
    addresses = tuple(AgentAddress(name=name, url=url) for name, url in urls.items())
    return controller(site, binary, agents=AgentList(addresses=addresses, tls=authority.issue("controller")))


async def described(running: Running, name: str) -> EndpointInfo:
    """Return what the agent *name* says, once it answers."""
    found: list[EndpointInfo] = []

    async def ask() -> bool:
        endpoints = {one.name: one for one in running.serving.process.endpoints.value or ()}
        found.append(await endpoints[name].describe())
        return True

    await until(ask)
    return found[0]


async def test_traffic_follows_the_manifests_and_a_killed_agent_is_healed_when_it_is_back(
    site: Site, haproxy_binary: Path, instance_root: Path
) -> None:
    authority = Authority(instance_root / "tls")
    # Nothing but the agents' events may lead to a deployment here.
    site.write_config(dataplane={"kind": "agent", "driftPreventionInterval": "1h"})
    with trio.fail_after(120):
        async with (
            agent_process(instance_root, haproxy_binary, authority, free_port()) as one,
            agent_process(instance_root, haproxy_binary, authority, free_port()) as two,
            backend("a") as first,
            backend("b") as second,
            controlling(site, haproxy_binary, authority, one=one.url, two=two.url) as running,
        ):
            site.write_service("web", first)
            site.write_ingress("web", "web.localhost", "web")
            await running.serves(site, "web.localhost", "a")
            deployed = await settled_on_both(running)

            # A changed endpoint reaches both, without a reload.
            reloads = [(await described(running, name)).reloads for name in ("one", "two")]
            site.write_service("web", second)
            await running.serves(site, "web.localhost", "b")
            changed = await settled_on_both(running, other_than=deployed)
            assert [(await described(running, name)).reloads for name in ("one", "two")] == reloads

            # The agent dies and HAProxy continues. A change meanwhile is deployed as soon as the agent is back.
            await one.kill()
            site.write_service("web", first)
            await until_generation(running, "two", other_than=changed)
            assert await fetch(site.port, host="web.localhost") in {(200, "a"), (200, "b")}
            one.start()
            await settled_on_both(running, other_than=changed)

            # One HAProxy dies; the agent restarts it, and its event makes the controller check the instance again.
            reported = len(running.events.all(DeploymentScheduled))
            killed = (await described(running, "one")).pid
            os.kill(killed, signal.SIGKILL)

            async def is_looked_at() -> bool:
                scheduled = running.events.all(DeploymentScheduled)
                is_asked = any(
                    [endpoint.name for endpoint in event.endpoints] == ["one"] for event in scheduled[reported:]
                )
                is_settled = len(running.events.all(DeploymentCompleted)) == len(scheduled)
                return is_asked and is_settled and (await described(running, "one")).pid not in {0, killed}

            await until(is_looked_at)

            # A user edits its configuration: the event brings the right one back.
            wanted = (await described(running, "two")).generation
            config = one.state / "current/haproxy.cfg"
            config.chmod(0o600)
            config.write_text(config.read_text() + "# by hand\n")

            async def is_right() -> bool:
                return "# by hand" not in config.read_text()

            await until(is_right)
            await until_generation(running, "one", wanted)
            await running.serves(site, "web.localhost", "a")


async def settled_on_both(running: Running, *, other_than: str = "") -> str:
    """Return the generation that both agents run, once that is the same and another one than before."""
    found: list[str] = []

    async def agree() -> bool:
        found[:] = {(await described(running, name)).generation for name in ("one", "two")}
        return len(found) == 1 and found[0] not in {"", other_than}

    await until(agree)
    return found[0]


async def until_generation(running: Running, name: str, wanted: str = "", *, other_than: str = "") -> None:
    """Return once the agent *name* runs the generation *wanted*, or without that another one."""

    async def is_there() -> bool:
        generation = (await described(running, name)).generation
        return generation == wanted if wanted else generation != other_than

    await until(is_there)


async def test_agents_that_come_late_are_deployed_to_when_they_come(
    site: Site, haproxy_binary: Path, instance_root: Path
) -> None:
    authority = Authority(instance_root / "tls")
    site.write_config(dataplane={"driftPreventionInterval": "1h"})
    late = AgentProcess(instance_root, haproxy_binary, authority, free_port(), "--on-exit", "stop")
    with trio.fail_after(60):
        async with (
            backend("a") as port,
            controlling(site, haproxy_binary, authority, late=late.url) as running,
        ):
            site.write_service("web", port)
            site.write_ingress("web", "web.localhost", "web")
            await running.settled()
            late.start()
            try:
                await running.serves(site, "web.localhost", "a")
                deployed = await running.wait(InstanceDeployed)
                assert deployed.result.endpoint == "late"
            finally:
                with trio.CancelScope(shield=True):
                    await late.end(signal.SIGTERM)
        assert not live_haproxies(instance_root)
