"""An HAProxy that another process runs: it is reloaded, but neither started nor ended."""

import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from haptic_trio.dataplane.endpoint import DeploymentRejectedError, EndpointTimeoutError
from haptic_trio.dataplane.local.attached import AttachedAgent
from haptic_trio.dataplane.sync import sync_endpoint
from tests.support.components.agents import until
from tests.support.processes.haproxy import (
    answering,
    backend,
    build_generation,
    fetch,
    forwarding,
    mapping,
    wait_for_body,
)
from tests.support.processes.ports import free_port

pytestmark = pytest.mark.haproxy


class OtherProcess:
    """Runs HAProxy as soon as it has something to load, and again whenever it has ended, as a container would."""

    def __init__(self, root: Path, binary: Path) -> None:
        self.state = root / "agent"
        self.socket = root / "master.sock"
        self.pids: list[int] = []
        self._binary = binary

    async def run(self) -> None:
        files = [self.state / "process.cfg", self.state / "current/haproxy.cfg"]
        while True:
            await until(partial(trio.to_thread.run_sync, lambda: all(path.exists() for path in files)))
            arguments = [word for path in files for word in ("-f", str(path))]
            command = [str(self._binary), "-W", "-db", "-S", str(self.socket), *arguments]
            process = await trio.lowlevel.open_process(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.pids.append(process.pid)
            try:
                await process.wait()
            finally:
                with trio.CancelScope(shield=True):
                    process.kill()
                    await process.wait()


@asynccontextmanager
async def attached(root: Path, binary: Path) -> AsyncIterator[tuple[AttachedAgent, OtherProcess]]:
    other = OtherProcess(root, binary)
    agent = AttachedAgent("edge", other.state, binary, other.socket)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other.run)
            await nursery.start(partial(agent.run, on_exit="stop", grace=0.1))
            yield agent, other
            nursery.cancel_scope.cancel()


async def test_the_first_generation_is_loaded_by_a_start_and_the_next_by_a_reload(
    instance_root: Path, haproxy_binary: Path
) -> None:
    port = free_port()
    async with attached(instance_root, haproxy_binary) as (agent, other):
        assert (await agent.describe()).pid == 0
        await sync_endpoint(agent, answering(port, "one"))
        assert await fetch(port) == (200, "one")
        assert (await sync_endpoint(agent, answering(port, "two"))).reloaded
        await wait_for_body(port, "two")
        info = await agent.describe()
        assert ([info.pid], info.reloads) == (other.pids, 1)


async def test_servers_are_patched_and_haproxy_that_was_started_again_has_them(
    instance_root: Path, haproxy_binary: Path
) -> None:
    port = free_port()
    async with (
        attached(instance_root, haproxy_binary) as (agent, other),
        backend("a") as first,
        backend("b") as second,
    ):
        await sync_endpoint(agent, forwarding(port, first))
        assert not (await sync_endpoint(agent, forwarding(port, second))).reloaded
        assert await fetch(port) == (200, "b")
        os.kill(other.pids[0], signal.SIGKILL)
        await wait_for_body(port, "b")

        async def is_found() -> bool:
            return (await agent.describe()).pid == other.pids[-1] != other.pids[0]

        await until(is_found)


async def test_what_haproxy_rejects_changes_nothing(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with attached(instance_root, haproxy_binary) as (agent, _other_process):
        first = answering(port, "one")
        await sync_endpoint(agent, first)
        broken = build_generation(first.text + "    errorfile 503 general/missing.http\n")
        with pytest.raises(DeploymentRejectedError, match=r"haproxy\.cfg:\d+: "):
            await agent.activate(broken)
        assert await agent.fetch_running() == first
        assert await fetch(port) == (200, "one")


async def test_haproxy_outlives_the_agent_and_is_found_again(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    other = OtherProcess(instance_root, haproxy_binary)
    with trio.fail_after(30):
        async with trio.open_nursery() as outer:
            outer.start_soon(other.run)
            for number in range(2):
                agent = AttachedAgent("edge", other.state, haproxy_binary, other.socket)
                async with trio.open_nursery() as nursery:
                    await nursery.start(partial(agent.run, on_exit="stop", grace=0.1))
                    result = await sync_endpoint(agent, answering(port, "one"))
                    assert result.changed is (number == 0)
                    assert (await agent.describe()).pid == other.pids[0]
                    nursery.cancel_scope.cancel()
                assert await fetch(port) == (200, "one")
            assert len(other.pids) == 1
            outer.cancel_scope.cancel()


async def test_haproxy_that_is_not_started_is_a_timeout(
    instance_root: Path, haproxy_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("haptic_trio.dataplane.local.attached.START_LIMIT", 0.2)
    agent = AttachedAgent("edge", instance_root / "agent", haproxy_binary, instance_root / "master.sock")
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(agent.run, on_exit="stop", grace=0.1))
        with pytest.raises(EndpointTimeoutError, match="was not started within"):
            await agent.activate(answering(free_port(), "one"))
        assert await agent.fetch_running() is None
        assert not (instance_root / "agent/current").exists()
        nursery.cancel_scope.cancel()


async def test_a_reload_that_was_not_awaited_does_not_pass_for_the_next_one(
    instance_root: Path, haproxy_binary: Path
) -> None:
    port = free_port()
    async with attached(instance_root, haproxy_binary) as (agent, _other_process):
        await sync_endpoint(agent, answering(port, "one"))
        slow = mapping(port, {f"host-{number}.example": str(number) for number in range(200_000)})
        for limit in (0.0, 0.05, 0.1, 0.2, 0.3):
            with trio.move_on_after(limit):
                await agent.activate(slow)
            await agent.activate(answering(port, f"after {limit}"))
            await wait_for_body(port, f"after {limit}")
