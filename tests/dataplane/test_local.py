"""Instances over the lives of their controllers: left, adopted, stopped, and kept apart."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import trio
import trio.testing

from haptic_trio.dataplane.local.directory_lock import InstanceLockedError, lock_directory
from haptic_trio.dataplane.sync import sync_endpoint
from tests.support.processes.haproxy import (
    answering,
    fetch,
    instances,
    kill_and_wait_for_next,
    live_haproxies,
    paths_named,
    wait_for_body,
)
from tests.support.processes.ports import free_port

pytestmark = pytest.mark.haproxy


async def test_left_alone_haproxy_serves_on_and_the_next_controller_adopts_it(
    instance_root: Path, haproxy_binary: Path
) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary, on_exit="leave") as (agent,):
        await sync_endpoint(agent, answering(port, "one"))
        pid = (await agent.describe()).pid
    assert await fetch(port) == (200, "one")
    async with instances(instance_root, haproxy_binary) as (agent,):
        info = await agent.describe()
        assert (info.pid, info.generation) == (pid, answering(port, "one").id)
        await sync_endpoint(agent, answering(port, "two"))
        await wait_for_body(port, "two")
        assert (await agent.describe()).pid == pid
        await kill_and_wait_for_next(agent)
        await wait_for_body(port, "two")


async def test_a_process_that_was_never_recorded_is_found_and_adopted(
    instance_root: Path, haproxy_binary: Path
) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary, on_exit="leave") as (agent,):
        await sync_endpoint(agent, answering(port, "one"))
    alive = set(live_haproxies(instance_root, within=0))
    (instance_root / "instances/local-1/process.json").unlink()
    async with instances(instance_root, haproxy_binary):
        assert set(live_haproxies(instance_root, within=0)) == alive
        assert await fetch(port) == (200, "one")
    assert not live_haproxies(instance_root)


async def test_a_stale_record_is_discarded(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary, on_exit="leave") as (agent,):
        await sync_endpoint(agent, answering(port, "one"))
        pid = (await agent.describe()).pid
    record = instance_root / "instances/local-1/process.json"
    # As if another process had got the pid: this one.
    record.write_text(record.read_text().replace(f'"pid":{pid}', f'"pid":{os.getpid()}'))
    os.kill(pid, signal.SIGKILL)
    assert not live_haproxies(instance_root)
    async with instances(instance_root, haproxy_binary) as (agent,):
        assert (await agent.describe()).pid not in {0, pid, os.getpid()}
        assert await fetch(port) == (200, "one")


async def test_a_generation_on_disk_is_started_at_once(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,):
        await sync_endpoint(agent, answering(port, "one"))
    assert not live_haproxies(instance_root)
    async with instances(instance_root, haproxy_binary) as (agent,):
        assert await fetch(port) == (200, "one")
        assert not (await sync_endpoint(agent, answering(port, "one"))).changed


async def test_two_controllers_cannot_have_one_instance(instance_root: Path, haproxy_binary: Path) -> None:
    async with instances(instance_root, haproxy_binary):
        with pytest.RaisesGroup(InstanceLockedError, flatten_subgroups=True):
            async with instances(instance_root, haproxy_binary):
                pytest.fail("the other one has it")


def start_lock_holder(path: Path) -> subprocess.Popen[bytes]:
    """Start a process that keeps *path* locked until its input ends, as a child does between fork and exec."""
    script = (
        "import fcntl, os, sys\n"
        "fcntl.flock(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX)\n"
        "print(flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(path)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    return holder


async def test_lock_waits_for_the_child_of_a_killed_controller(tmp_path: Path) -> None:
    async def take(task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        async with lock_directory(tmp_path):
            pass

    with start_lock_holder(tmp_path / "lock") as holder:
        async with trio.open_nursery() as nursery:
            await nursery.start(take)
            await trio.testing.wait_all_tasks_blocked()
            assert holder.stdin is not None
            holder.stdin.close()
    assert (tmp_path / "lock").read_text() == str(os.getpid())


async def test_instances_run_side_by_side_on_one_port(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary, count=2) as agents:
        assert [agent.name for agent in agents] == ["local-1", "local-2"]
        for agent in agents:
            await sync_endpoint(agent, answering(port, "one"))
        assert len({(await agent.describe()).pid for agent in agents}) == 2
        assert await fetch(port) == (200, "one")


async def test_a_long_state_directory_works(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with instances(instance_root / ("long" * 30) / "with space", haproxy_binary) as (agent,):
        await sync_endpoint(agent, answering(port, "one"))
        assert await fetch(port) == (200, "one")


async def test_a_stopped_instance_leaves_no_sockets(
    instance_root: Path, haproxy_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(prefix="run-") as short:
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        async with instances(instance_root / ("long" * 30), haproxy_binary) as (agent,):
            await sync_endpoint(agent, answering(free_port(), "one"))
            assert len(paths_named(Path(short), "*.sock")) == 3
        assert paths_named(Path(short), "*") == [Path(short) / "haptic-trio"]


async def test_haproxy_gets_nothing_of_our_environment(
    instance_root: Path, haproxy_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAPTIC_SECRET", "leaked")
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,):
        await sync_endpoint(agent, answering(port, "${HAPTIC_SECRET-nothing}"))
        assert "leaked" not in (await fetch(port))[1]
        environment = trio.Path(f"/proc/{(await agent.describe()).pid}/environ")
        assert b"HAPTIC_SECRET" not in await environment.read_bytes()
