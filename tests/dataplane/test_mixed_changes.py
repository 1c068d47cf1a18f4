"""Changes of which the process can take a part: that goes ahead of the reload, and is taken back with it."""

from pathlib import Path

import pytest
import trio

from haptic_trio.dataplane.endpoint import DeploymentRejectedError
from haptic_trio.dataplane.local.instance import LocalAgent
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.haproxy.model import Generation
from haptic_trio.haproxy.plan.operations import Plan
from tests.dataplane.test_patches import servers_of, site
from tests.support.processes.haproxy import backend, fetch, instances, kill_and_wait_for_next, wait_for_body
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
        desired = site(port, [two], more=STRUCTURE, entries="x.example app\n")

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
