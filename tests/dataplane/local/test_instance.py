"""A local instance as an endpoint, with the real HAProxy."""

import os
import signal
from pathlib import Path

import pytest
import trio

from haptic_trio.dataplane.binary import probe_version
from haptic_trio.dataplane.endpoint import DeploymentRejectedError, EndpointError, PatchRejectedError
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.haproxy.model import FileKind, make_file
from haptic_trio.haproxy.plan.operations import DeleteMapEntry, Plan, ReplaceMap, SetMapEntry
from tests.support.processes.haproxy import (
    BASE,
    answering,
    backend,
    build_generation,
    fetch,
    forwarding,
    instances,
    kill_and_wait_for_next,
    live_haproxies,
    mapping,
    paths_named,
    wait_for_body,
)
from tests.support.processes.ports import free_port

pytestmark = pytest.mark.haproxy


async def test_no_haproxy_runs_before_the_first_generation(instance_root: Path, haproxy_binary: Path) -> None:
    async with instances(instance_root, haproxy_binary) as (agent,):
        info = await agent.describe()
        assert (info.name, info.generation, info.pid) == ("local-1", "", 0)
        assert await agent.fetch_running() is None
        assert not live_haproxies(instance_root, within=0)


async def test_the_first_generation_starts_haproxy_and_traffic_is_answered(
    instance_root: Path, haproxy_binary: Path
) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,):
        first = answering(port, "one")
        result = await sync_endpoint(agent, first)
        assert result.changed
        assert result.reloaded
        assert await fetch(port) == (200, "one")
        info = await agent.describe()
        assert (info.generation, info.reloads) == (first.id, 0)
        assert info.version == probe_version(haproxy_binary).text
        assert info.pid
        assert await agent.fetch_running() == first


async def test_the_same_generation_again_writes_nothing(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,):
        await sync_endpoint(agent, answering(port, "one"))
        before = (instance_root / "instances/local-1/current").readlink()
        result = await sync_endpoint(agent, answering(port, "one"))
        assert not result.changed
        assert (instance_root / "instances/local-1/current").readlink() == before


async def test_a_structural_change_reloads_the_same_process(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,):
        await sync_endpoint(agent, answering(port, "one"))
        pid = (await agent.describe()).pid
        result = await sync_endpoint(agent, answering(port, "two"))
        assert result.reloaded
        assert result.reasons
        await wait_for_body(port, "two")
        info = await agent.describe()
        assert (info.pid, info.reloads) == (pid, 1)


async def test_a_server_address_changes_without_a_reload(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,), backend("a") as first, backend("b") as second:
        await sync_endpoint(agent, forwarding(port, first))
        assert await fetch(port) == (200, "a")
        result = await sync_endpoint(agent, forwarding(port, second))
        assert (result.reloaded, result.operations) == (False, 1)
        assert await fetch(port) == (200, "b")
        assert (await agent.describe()).reloads == 0
        assert await agent.fetch_running() == forwarding(port, second)


async def test_a_reload_after_a_patch_loads_what_was_patched(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,), backend("a") as first, backend("b") as second:
        await sync_endpoint(agent, forwarding(port, first))
        await sync_endpoint(agent, forwarding(port, second))
        await kill_and_wait_for_next(agent)
        await wait_for_body(port, "b")


async def test_a_map_changes_without_a_reload(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,):
        await sync_endpoint(agent, mapping(port, {"a.example": "1", "b.example": "1"}))
        result = await sync_endpoint(agent, mapping(port, {"a.example": "2", "c.example": "1"}))
        assert not result.reloaded
        assert result.operations
        for host, answer in {"a.example": "2", "b.example": "none", "c.example": "1"}.items():
            assert await fetch(port, host=host) == (200, answer)
        assert (await agent.describe()).reloads == 0


async def test_a_large_map_is_replaced_at_once_without_a_reload(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    entries = {f"host-{number}.example": f"value-{number}" for number in range(3000)}
    async with instances(instance_root, haproxy_binary) as (agent,):
        await sync_endpoint(agent, mapping(port, {"old.example": "1"}))
        await agent.patch(mapping(port, entries), Plan((ReplaceMap("maps/host.map", tuple(entries.items())),)))
        assert await fetch(port, host="host-0.example") == (200, "value-0")
        assert await fetch(port, host="host-2999.example") == (200, "value-2999")
        assert await fetch(port, host="old.example") == (200, "none")
        assert (await agent.describe()).reloads == 0


async def test_more_operations_than_one_batch_holds_are_all_applied(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    hosts = [f"host-{number}.example" for number in range(200)]
    async with instances(instance_root, haproxy_binary) as (agent,):
        await sync_endpoint(agent, mapping(port, dict.fromkeys(hosts, "old")))
        plan = Plan(tuple(SetMapEntry("maps/host.map", host, "new") for host in hosts))
        await agent.patch(mapping(port, dict.fromkeys(hosts, "new")), plan)
        for host in (hosts[0], hosts[64], hosts[199]):
            assert await fetch(port, host=host) == (200, "new")


async def test_a_rejected_generation_changes_nothing(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,):
        first = answering(port, "one")
        await sync_endpoint(agent, first)
        broken = build_generation(first.text.replace('string "one"', 'lf-string "%[src,map(/nosuchfetch)]"'))
        with pytest.raises(DeploymentRejectedError, match=r"haproxy\.cfg:\d+: ") as caught:
            await agent.activate(broken)
        # The line may derive from a Secret.
        assert "nosuchfetch" not in str(caught.value)
        assert await fetch(port) == (200, "one")
        assert await agent.fetch_running() == first
        assert (await agent.describe()).reloads == 0
        await sync_endpoint(agent, answering(port, "two"))
        await wait_for_body(port, "two")


async def test_a_generation_that_cannot_be_loaded_is_rejected_and_the_old_one_serves_on(
    instance_root: Path, haproxy_binary: Path
) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,):
        first = answering(port, "one")
        await sync_endpoint(agent, first)
        # `haproxy -c` does not bind, so it finds nothing wrong with this.
        unloadable = build_generation(first.text + f"    bind unix@{instance_root}/nosuch/socket\n")
        with pytest.raises(DeploymentRejectedError, match="cannot bind") as caught:
            await agent.activate(unloadable)
        assert "nosuch" not in str(caught.value)
        assert await fetch(port) == (200, "one")
        assert await agent.fetch_running() == first
        # Runtime operations reach the worker that went on, and reloads work again.
        await sync_endpoint(agent, answering(port, "two"))
        await wait_for_body(port, "two")


async def test_a_first_generation_that_cannot_be_loaded_is_rejected_and_leaves_no_process(
    instance_root: Path, haproxy_binary: Path
) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,):
        first = answering(port, "one")
        with pytest.raises(DeploymentRejectedError, match="cannot bind"):
            await agent.activate(build_generation(first.text + f"    bind unix@{instance_root}/nosuch/socket\n"))
        assert (await agent.describe()).pid == 0
        assert await agent.fetch_running() is None
        await sync_endpoint(agent, first)
        assert await fetch(port) == (200, "one")


async def test_a_port_that_is_taken_is_rejected_without_a_moment_of_refused_connections(
    instance_root: Path, haproxy_binary: Path
) -> None:
    port = free_port()
    answers: list[tuple[int, str]] = []

    async def ask() -> None:
        while True:
            answers.append(await fetch(port))

    with trio.socket.socket() as holder:
        await holder.bind(("127.0.0.1", 0))
        holder.listen()
        taken = holder.getsockname()[1]
        async with instances(instance_root, haproxy_binary) as (agent,):
            first = answering(port, "one")
            await sync_endpoint(agent, first)
            wider = build_generation(first.text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{port},127.0.0.1:{taken}"))
            async with trio.open_nursery() as clients:
                clients.start_soon(ask)
                with pytest.raises(DeploymentRejectedError, match=f"cannot bind 127.0.0.1:{taken}"):
                    await agent.activate(wider)
                clients.cancel_scope.cancel()
            assert set(answers) == {(200, "one")}
            assert (await agent.describe()).reloads == 0


async def test_a_rejected_operation_falls_back_to_a_reload(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    first, second = mapping(port, {"a.example": "1"}), mapping(port, {"a.example": "2"})
    async with instances(instance_root, haproxy_binary) as (agent,):
        await sync_endpoint(agent, first)
        with pytest.raises(PatchRejectedError, match=r"del map maps/host\.map …"):
            await agent.patch(second, Plan((DeleteMapEntry("maps/host.map", "unknown.example"),)))
        assert (instance_root / "instances/local-1/current/maps/host.map").read_text() == "a.example 1\n"
        result = await sync_endpoint(agent, second)
        assert result.reloaded
        await wait_for_body(port, "2", host="a.example")
        assert await agent.fetch_running() == second


async def test_a_file_changed_by_hand_is_repaired(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,):
        desired = mapping(port, {"a.example": "1"})
        await sync_endpoint(agent, desired)
        current = instance_root / "instances/local-1/current"
        (current / "maps/host.map").write_text("a.example hand\n")
        assert (await agent.describe()).generation != desired.id
        result = await sync_endpoint(agent, desired)
        assert result.changed
        assert (current / "maps/host.map").read_text() == "a.example 1\n"
        assert (await agent.describe()).generation == desired.id
        await wait_for_body(port, "1", host="a.example")


async def test_a_path_outside_the_instance_is_rejected(instance_root: Path, haproxy_binary: Path) -> None:
    async with instances(instance_root, haproxy_binary) as (agent,):
        escaping = build_generation(BASE, [make_file(FileKind.FILE, "../../escaped", "x")])
        with pytest.raises(DeploymentRejectedError, match="escaped"):
            await agent.activate(escaping)
        assert not paths_named(instance_root, "escaped")


async def test_a_killed_haproxy_is_started_again(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,):
        await sync_endpoint(agent, answering(port, "one"))
        await kill_and_wait_for_next(agent)
        assert await fetch(port) == (200, "one")
        assert await agent.fetch_running() == answering(port, "one")


async def test_a_stuck_haproxy_is_unreachable(
    instance_root: Path, haproxy_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("haptic_trio.dataplane.local.master.ANSWER_LIMIT", 0.1)
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,):
        await sync_endpoint(agent, answering(port, "one"))
        pid = (await agent.describe()).pid
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(EndpointError):
                await agent.activate(answering(port, "two"))
        finally:
            os.kill(pid, signal.SIGCONT)
        await sync_endpoint(agent, answering(port, "two"))
        await wait_for_body(port, "two")


async def test_ten_reloads_fail_no_request_on_a_new_connection(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    answers: list[tuple[int, str]] = []

    async def ask(until: trio.Event) -> None:
        while not until.is_set():
            answers.append(await fetch(port))

    async with instances(instance_root, haproxy_binary) as (agent,):
        await sync_endpoint(agent, answering(port, "0"))
        done = trio.Event()
        async with trio.open_nursery() as clients:
            for _ in range(3):
                clients.start_soon(ask, done)
            for number in range(1, 11):
                await sync_endpoint(agent, answering(port, str(number)))
            done.set()
        assert (await agent.describe()).reloads == 10
        assert {status for status, _ in answers} == {200}
        assert len(answers) > 100
        await wait_for_body(port, "10")
