"""Changes of which the process can take a part: that goes ahead of the reload, and is taken back with it."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import trio

from haptic_trio.dataplane.endpoint import DeploymentRejectedError, DriftReport
from haptic_trio.dataplane.local.instance import LocalAgent
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.haproxy.model import Generation
from haptic_trio.haproxy.plan.operations import Plan
from tests.dataplane.test_patches import servers_of, site
from tests.support.processes.haproxy import (
    BASE,
    backend,
    build_generation,
    fetch,
    instances,
    kill_and_wait_for_next,
    wait_for_body,
)
from tests.support.processes.ports import free_port

pytestmark = pytest.mark.haproxy

STRUCTURE = "    timeout queue 2s\n"
REASON = "backend app: directive 'timeout' added"


class Recorder:
    """An agent, and what it received; a test can make it reject the load of a generation."""

    def __init__(self, agent: LocalAgent, *, rejects: Generation | None = None) -> None:
        self._agent = agent
        self._rejects = rejects
        self.reported: list[str] = []
        self.name, self.describe, self.fetch_running = agent.name, agent.describe, agent.fetch_running
        self.repair, self.observe = agent.repair, agent.observe

    async def patch(self, generation: Generation, plan: Plan) -> None:
        self.reported.append("patch")
        await self._agent.patch(generation, plan)

    async def activate(self, generation: Generation) -> None:
        self.reported.append("activate")
        if generation is self._rejects:
            raise DeploymentRejectedError(self.name, "no room")
        await self._agent.activate(generation)


async def test_the_runtime_part_goes_ahead_of_a_single_reload(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,), backend("a") as one, backend("b") as two:
        await sync_endpoint(agent, site(port, [one]))
        recorder = Recorder(agent)
        desired = site(port, [two], more=STRUCTURE, entries="x.example other\n")

        result = await sync_endpoint(recorder, desired)

        assert recorder.reported == ["patch", "activate"]
        assert (result.reloaded, result.operations, result.reasons) == (True, 2, (REASON,))
        assert (await agent.describe()).reloads == 1
        assert await agent.fetch_running() == desired
        await wait_for_body(port, "b")


async def test_without_leave_to_reload_the_rest_is_held_back(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,), backend("a") as one, backend("b") as two:
        await sync_endpoint(agent, site(port, [one]))

        result = await sync_endpoint(agent, site(port, [two], more=STRUCTURE), may_reload=False)

        assert (result.reloaded, result.operations, result.held) == (False, 1, (REASON,))
        assert await fetch(port) == (200, "b")
        running = await agent.fetch_running()
        assert running is not None
        assert "".join(running.text.split()) == "".join(site(port, [two]).text.split())
        # What is on disk is what runs: a process that is started again is like the one before.
        await kill_and_wait_for_next(agent)
        await wait_for_body(port, "b")
        again = await sync_endpoint(agent, site(port, [two], more=STRUCTURE), may_reload=False)
        assert (again.changed, again.held) == (False, (REASON,))
        last = await sync_endpoint(agent, site(port, [two], more=STRUCTURE))
        assert (last.reloaded, last.operations) == (True, 0)


@pytest.mark.parametrize("rejection", ["by the endpoint", "by haproxy"])
async def test_a_reload_that_is_rejected_takes_the_runtime_part_back(
    instance_root: Path, haproxy_binary: Path, rejection: str
) -> None:
    port, taken = free_port(), trio.socket.socket()
    await taken.bind(("127.0.0.1", 0))
    taken.listen()
    with taken:
        async with instances(instance_root, haproxy_binary) as (agent,), backend("a") as one, backend("b") as two:
            former = site(port, [one, one])
            await sync_endpoint(agent, former)
            more = f"{STRUCTURE}listen other\n    bind 127.0.0.1:{taken.getsockname()[1]}\n"
            desired = site(port, [two], more=more, entries="x.example app\n")
            recorder = Recorder(agent, rejects=desired if rejection == "by the endpoint" else None)

            with pytest.raises(DeploymentRejectedError):
                await sync_endpoint(recorder, desired)

            assert recorder.reported == ["patch", "activate", "patch"]
            assert await agent.fetch_running() == former
            assert [(server.port, server.state) for server in await servers_of(instance_root)] == [(one, "ready")] * 2
            assert await fetch(port) == (200, "a")
            assert (await agent.repair()).found == {}
            # And it can be deployed to.
            assert not (await sync_endpoint(agent, site(port, [two, one]))).reloaded


def many_servers(port: int, sizes: Mapping[str, int], network: int) -> Generation:
    """Return a generation with a backend of so many servers for each name of *sizes*."""
    backends = "".join(
        f"backend {name} from http\n"
        + "".join(f"    server s{one} 10.{network}.{one // 100}.{one % 100}:80\n" for one in range(size))
        for name, size in sizes.items()
    )
    frontend = f"frontend f from http\n    bind 127.0.0.1:{port}\n    http-request return status 204\n"
    return build_generation(f"{BASE.replace('defaults', 'defaults http')}{frontend}{backends}")


async def test_after_each_part_of_a_large_change_haproxy_runs_what_is_recorded(
    instance_root: Path, haproxy_binary: Path
) -> None:
    port = free_port()
    before = many_servers(port, {"a_app_80": 400, "a_less_80": 300, "b_web_80": 4}, 1)
    desired = many_servers(port, {"a_app_80": 500, "a_less_80": 20, "b_web_80": 4}, 2)
    async with instances(instance_root, haproxy_binary) as (agent,):
        await sync_endpoint(agent, before)
        results, is_partial = [], True
        while is_partial:
            results.append(await sync_endpoint(agent, desired, may_reload=False))
            assert await agent.repair() == DriftReport()
            is_partial = results[-1].is_partial

        assert len(results) > 2
        assert not any(result.reloaded or result.held for result in results)
        assert await agent.fetch_running() == desired
        assert (await agent.describe()).reloads == 0
        # A process that is started again has all parts.
        await kill_and_wait_for_next(agent)
        assert not (await sync_endpoint(agent, desired, verify=True)).changed
