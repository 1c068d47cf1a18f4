"""Servers move while a load replaces their worker: real HAProxy, and a load that waits for the test."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
import trio

from haptic_trio.channels import Latest
from haptic_trio.dataplane.agent.endpoint import RemoteAgent
from haptic_trio.dataplane.endpoint import DeploymentRejectedError, EndpointError, PatchRejectedError, SyncResult
from haptic_trio.dataplane.local import former_worker
from haptic_trio.dataplane.local.instance import LocalAgent
from haptic_trio.dataplane.local.supervisor import LoadRejectedError, Supervisor
from haptic_trio.dataplane.local.worker import WorkerState
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import Generation, make_generation
from haptic_trio.haproxy.plan.operations import Plan
from tests.support.components.agents import serving
from tests.support.processes.haproxy import backend, fetch, forwarding, kill_and_wait_for_next, wait_for_body
from tests.support.processes.ports import free_port

pytestmark = pytest.mark.haproxy

Held = Literal["no", "before", "after", "rejected"]

remote_too = pytest.mark.parametrize("is_remote", [False, True], ids=["local", "agent"])


class HeldSupervisor(Supervisor):
    """Supervisor whose next load waits, before or after the new worker serves, and may be rejected then."""

    held: Held = "no"
    reached: trio.Event
    released: trio.Event

    async def load(self) -> None:
        held, self.held = self.held, "no"
        if held == "after":
            await super().load()
        if held != "no":
            self.reached.set()
            await self.released.wait()
        if held == "rejected":
            raise LoadRejectedError("rejected by the test")
        if held != "after":
            await super().load()


class Rig:
    """An instance, and a deployment to it that reloads while the test goes on."""

    def __init__(self, agent: LocalAgent | RemoteAgent, supervisor: HeldSupervisor) -> None:
        self.agent = agent
        self.supervisor = supervisor
        self.results: list[SyncResult | Exception] = []
        self._newest = Latest[Generation]()

    async def wait_newer(self, known: Generation) -> Generation:
        seen = 0
        while True:
            seen, generation = await self._newest.wait_newer(seen)
            if generation is not known:
                return generation

    @asynccontextmanager
    async def reloading(self, desired: Generation, held: Held) -> AsyncIterator[None]:
        """Deploy *desired*; the block runs while the load is *held*."""
        supervisor = self.supervisor
        supervisor.held, supervisor.reached, supervisor.released = held, trio.Event(), trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._deploy, desired)
            await supervisor.reached.wait()
            yield
            supervisor.released.set()

    async def _deploy(self, desired: Generation) -> None:
        try:
            self.results.append(await sync_endpoint(self.agent, desired, wait_newer=self.wait_newer))
        except DeploymentRejectedError as exc:
            self.results.append(exc)

    def announce(self, newest: Generation) -> None:
        self._newest.put(newest)


@asynccontextmanager
async def rig(root: Path, binary: Path, *, is_remote: bool = False) -> AsyncIterator[Rig]:
    """Run an instance; with *is_remote* it is deployed to through an agent."""
    supervisors: list[HeldSupervisor] = []

    def make(*arguments: object, **options: object) -> Supervisor:
        supervisors.append(HeldSupervisor(*arguments, **options))  # type: ignore[arg-type]
        return supervisors[0]

    agent = LocalAgent("local-1", root / "local-1", binary, supervisor=make)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(agent.run, on_exit="stop", grace=0.2))
            if is_remote:
                async with serving(agent, root) as served, served.remote() as remote:
                    yield Rig(remote, supervisors[0])
            else:
                yield Rig(agent, supervisors[0])
            nursery.cancel_scope.cancel()


@remote_too
async def test_former_worker_follows_and_the_new_one_begins_with_what_has_moved(
    instance_root: Path, haproxy_binary: Path, is_remote: bool
) -> None:
    port = free_port()
    reloads = partial(forwarding, port, balance="leastconn")
    async with (
        backend("one") as one,
        backend("two") as two,
        backend("three") as three,
        rig(instance_root, haproxy_binary, is_remote=is_remote) as local,
    ):
        await sync_endpoint(local.agent, forwarding(port, one))
        former = (await local.agent.describe()).reloads
        async with local.reloading(reloads(one), "before"):
            for target, body in ((two, "two"), (three, "three")):
                local.announce(reloads(target))
                await wait_for_body(port, body)

        # Both moves came after the files were written.
        assert [result.reloaded for result in local.results if isinstance(result, SyncResult)] == [True]
        assert await fetch(port) == (200, "three")
        running = await local.agent.fetch_running()
        assert running is not None
        assert f"server one 127.0.0.1:{three}" in running.text
        assert "balance leastconn" in running.text
        assert not (await sync_endpoint(local.agent, reloads(three))).reloaded
        assert (await local.agent.describe()).reloads == former + 1
        # Recorded: a restart has them as well.
        await kill_and_wait_for_next(local.agent)
        await wait_for_body(port, "three")


@remote_too
async def test_rejected_load_leaves_the_servers_where_they_are(
    instance_root: Path, haproxy_binary: Path, is_remote: bool
) -> None:
    port = free_port()
    async with (
        backend("one") as one,
        backend("two") as two,
        backend("three") as three,
        rig(instance_root, haproxy_binary, is_remote=is_remote) as local,
    ):
        await sync_endpoint(local.agent, forwarding(port, one))
        async with local.reloading(forwarding(port, one, balance="leastconn"), "rejected"):
            local.announce(forwarding(port, two, balance="leastconn"))
            await wait_for_body(port, "two")

        assert isinstance(local.results[0], DeploymentRejectedError)
        running = await local.agent.fetch_running()
        assert running is not None
        assert f"server one 127.0.0.1:{two}" in running.text
        assert "balance roundrobin" in running.text
        assert await fetch(port) == (200, "two")
        # Recorded: a restart has them as well.
        await kill_and_wait_for_next(local.agent)
        await wait_for_body(port, "two")
        assert not (await sync_endpoint(local.agent, forwarding(port, three))).reloaded
        assert await fetch(port) == (200, "three")


async def test_change_for_the_former_worker_reaches_the_new_one_by_its_own_socket_alone(
    instance_root: Path, haproxy_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    reloads = partial(forwarding, port, balance="leastconn")
    async with backend("one") as one, backend("two") as two, rig(instance_root, haproxy_binary) as local:
        await sync_endpoint(local.agent, forwarding(port, one))
        assert isinstance(local.agent, LocalAgent)
        runtime, apply, tried = local.supervisor.runtime, WorkerState.apply, trio.Event()
        former = await runtime.ask_pid()

        async def apply_after_takeover(*arguments: Any, **options: Any) -> None:
            local.supervisor.released.set()
            while True:
                with contextlib.suppress(EndpointError):
                    if await runtime.ask_pid() != former:
                        break
                await trio.sleep(0.01)
            try:
                await apply(*arguments, **options)
            finally:
                tried.set()

        monkeypatch.setattr(WorkerState, "apply", apply_after_takeover)
        async with local.reloading(reloads(one), "before"):
            local.announce(reloads(two))
            await tried.wait()
        monkeypatch.undo()

        # The new worker has it once, and the next deployment needs no reload.
        running = await local.agent.fetch_running()
        assert running is not None
        assert f"server one 127.0.0.1:{two}" in running.text
        assert await fetch(port) == (200, "two")
        assert not (await sync_endpoint(local.agent, reloads(two))).reloaded
        assert await fetch(port) == (200, "two")


async def test_change_that_does_not_end_in_time_costs_one_reload(
    instance_root: Path, haproxy_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    reloads = partial(forwarding, port, balance="leastconn")
    async with backend("one") as one, backend("two") as two, rig(instance_root, haproxy_binary) as local:
        await sync_endpoint(local.agent, forwarding(port, one))
        hanging = trio.Event()

        async def hang(*_arguments: object, **_options: object) -> None:
            hanging.set()
            await trio.sleep_forever()

        monkeypatch.setattr(former_worker, "END_LIMIT", 0.1)
        monkeypatch.setattr(WorkerState, "apply", hang)
        async with local.reloading(reloads(one), "before"):
            local.announce(reloads(two))
            await hanging.wait()
        monkeypatch.undo()

        assert await local.agent.fetch_running() is None
        assert (await sync_endpoint(local.agent, reloads(two))).reloaded
        assert await fetch(port) == (200, "two")


async def test_worker_that_serves_already_gets_moves_before_the_load_ends(
    instance_root: Path, haproxy_binary: Path
) -> None:
    port = free_port()
    reloads = partial(forwarding, port, balance="leastconn")
    async with backend("one") as one, backend("two") as two, rig(instance_root, haproxy_binary) as local:
        await sync_endpoint(local.agent, forwarding(port, one))
        async with local.reloading(reloads(one), "after"):
            assert isinstance(local.agent, LocalAgent)
            running = forwarding(port, one)
            moved = forwarding(port, two)
            with pytest.raises(PatchRejectedError, match="has been replaced"):
                await local.agent.patch_former(running, moved, Plan())
            local.announce(reloads(two))
            await wait_for_body(port, "two")
        with pytest.raises(PatchRejectedError, match="has been replaced"):
            await local.agent.patch_former(reloads(one), reloads(two), Plan())

        result = await sync_endpoint(local.agent, reloads(one))
        assert (result.operations, result.reloaded) == (1, False)
        assert await fetch(port) == (200, "one")
        assert not (await sync_endpoint(local.agent, reloads(two))).reloaded
        assert await fetch(port) == (200, "two")


async def test_a_move_that_changes_only_text_does_not_cost_another_reload(
    instance_root: Path, haproxy_binary: Path
) -> None:
    port = free_port()
    reloads = partial(forwarding, port, balance="leastconn")
    async with backend("one") as one, backend("two") as two, rig(instance_root, haproxy_binary) as local:
        running = forwarding(port, one)
        await sync_endpoint(local.agent, running)
        async with local.reloading(reloads(one), "before"):
            assert isinstance(local.agent, LocalAgent)
            await local.agent.patch_former(running, _commented(running), Plan(), _commented(reloads(one)))

        result = await sync_endpoint(local.agent, reloads(two))
        assert (result.operations, result.reloaded) == (1, False)
        assert await fetch(port) == (200, "two")


def _commented(generation: Generation) -> Generation:
    return make_generation(parse_config(f"{generation.text}# a comment\n"), generation.files)
