"""A supervisor recovers from processes that crash, hang or still load, from lost files, and from a full disk."""

import errno
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import structlog
import trio

from haptic_trio.dataplane.endpoint import DeploymentRejectedError, EndpointStorageError, EndpointUnreachableError
from haptic_trio.dataplane.local import supervisor as supervisor_module
from haptic_trio.dataplane.local.attached import AttachedAgent
from haptic_trio.dataplane.local.files import instance_directory
from haptic_trio.dataplane.local.instance import LocalAgent
from haptic_trio.dataplane.local.master import MasterClient, ReloadReport
from haptic_trio.dataplane.local.process import ProcessRecord, find_record, read_arguments, read_record, spawn
from haptic_trio.dataplane.local.supervisor import LoadRejectedError, Supervisor
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.haproxy.model import FileKind, Generation, make_file
from haptic_trio.state_files import writer
from tests.support.components.agents import until
from tests.support.processes.haproxy import (
    BASE,
    answering,
    build_generation,
    fetch,
    instances,
    kill_and_wait_for_next,
    mapping,
    wait_for_body,
)
from tests.support.processes.ports import free_port

pytestmark = pytest.mark.haproxy

ReadOnly = Callable[[Path], AbstractContextManager[None]]


class Crash(BaseException):
    """Stands for kill -9: no handler of the program may run, so it is no Exception."""


def slow_to_load(port: int, answer: str) -> Generation:
    """Return a generation that HAProxy takes some hundred milliseconds to load; its last file is read at the end."""
    entries = "".join(f"host-{number}.example {number}\n" for number in range(300_000))
    return build_generation(
        f"{BASE}\nfrontend web\n    bind 127.0.0.1:{port}\n"
        "    http-request set-var(txn.slow) req.hdr(host),map(maps/slow.map,none)\n"
        "    http-request return status 200 content-type text/plain"
        ' lf-string "%[req.hdr(host),map(maps/host.map,none)]"\n',
        [
            make_file(FileKind.MAP, "maps/slow.map", entries),
            make_file(FileKind.MAP, "maps/host.map", f"example.org {answer}\n"),
        ],
    )


async def begin_reload(record: ProcessRecord) -> None:
    """Have a master reload, and do not wait for the result, like a controller that is killed meanwhile."""
    arguments = trio.Path(f"/proc/{record.pid}/cmdline")
    before = await arguments.read_bytes()

    async def has_begun() -> bool:
        # A master executes itself again, with the pids of its workers as arguments.
        return await arguments.read_bytes() not in {before, b""}

    async with await trio.open_unix_socket(f"{record.sockets}/master.sock") as stream:
        await stream.send_all(b"reload\n")
        await until(has_begun)
    raise Crash


async def crash_while_reloading(root: Path, binary: Path, generations: Sequence[Generation]) -> None:
    """Deploy *generations*, and crash when the last one is being loaded."""

    async def deploy() -> None:
        async with instances(root, binary, on_exit="leave") as (agent,):
            for generation in generations[:-1]:
                await agent.activate(generation)
            record = read_record(root / "instances/local-1/process.json")
            assert record is not None
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Supervisor, "load", lambda _: begin_reload(record))
                await agent.activate(generations[-1])

    with pytest.RaisesGroup(Crash, flatten_subgroups=True):
        await deploy()


async def test_a_reload_in_flight_keeps_its_files_until_it_is_over(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    first, second = answering(port, "one"), slow_to_load(port, "two")
    await crash_while_reloading(instance_root, haproxy_binary, [first, second])

    async with instances(instance_root, haproxy_binary) as (agent,):
        # The configuration is loaded, but the state does not say so.
        assert await fetch(port) == (200, "two")
        assert (await agent.describe()).reloads == 1
        assert await agent.fetch_running() is None
        await sync_endpoint(agent, first)
        assert await fetch(port) == (200, "one")


async def test_an_attached_agent_waits_for_a_reload_in_flight_too(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    first, second = answering(port, "one"), slow_to_load(port, "two")
    await crash_while_reloading(instance_root, haproxy_binary, [first, second])
    directory = instance_root / "instances/local-1"
    record = read_record(directory / "process.json")
    assert record is not None

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            agent = AttachedAgent("local-1", directory, haproxy_binary, Path(record.sockets) / "master.sock")
            await nursery.start(partial(agent.run, on_exit="leave", grace=0.0))
            assert await fetch(port) == (200, "two")
            assert await agent.fetch_running() is None
            nursery.cancel_scope.cancel()
    async with instances(instance_root, haproxy_binary):
        pass


async def test_haproxy_is_not_reloaded_where_it_could_not_create_its_master_socket(
    instance_root: Path, haproxy_binary: Path, read_only: ReadOnly
) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,):
        await agent.activate(answering(port, "one"))
        pid = (await agent.describe()).pid
        record = read_record(instance_root / "instances/local-1/process.json")
        assert record is not None
        with read_only(Path(record.sockets)):
            with pytest.raises(EndpointStorageError):
                await agent.activate(answering(port, "two"))
            # It would have exited.
            assert await fetch(port) == (200, "one")
        await sync_endpoint(agent, answering(port, "two"))
        assert await fetch(port) == (200, "two")
        assert (await agent.describe()).pid == pid


async def test_an_haproxy_is_adopted_from_a_read_only_directory(
    instance_root: Path, haproxy_binary: Path, read_only: ReadOnly
) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary, on_exit="leave") as (agent,):
        await agent.activate(answering(port, "one"))
        pid = (await agent.describe()).pid
    with read_only(instance_root):
        async with instances(instance_root, haproxy_binary) as (agent,):
            assert (await agent.describe()).pid == pid
            with pytest.raises(EndpointStorageError):
                await agent.activate(answering(port, "two"))
            assert await fetch(port) == (200, "one")


async def test_a_killed_haproxy_binds_no_port_until_it_can_create_its_master_socket(
    instance_root: Path, haproxy_binary: Path, read_only: ReadOnly
) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,):
        await agent.activate(answering(port, "one"))
        directory = instance_root / "instances/local-1"
        record = read_record(directory / "process.json")
        assert record is not None

        async def is_tried_again() -> bool:
            return [line["event"] for line in logs].count("haproxy did not start") > 1

        with read_only(Path(record.sockets)), structlog.testing.capture_logs() as logs:
            os.kill(record.pid, signal.SIGKILL)
            await until(is_tried_again)
            # A process that ends after it has bound its ports cuts connections to it.
            assert "master-socket" not in (directory / "haproxy.log").read_text()
        await wait_for_body(port, "one")


async def test_a_master_that_dies_during_a_reload_is_not_waited_for(
    instance_root: Path, haproxy_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,):
        await agent.activate(answering(port, "one"))
        pid = (await agent.describe()).pid

        async def never_answers(_client: MasterClient, *, limit: float) -> ReloadReport:
            # A worker that has the connection, too, keeps it open when the master is gone.
            os.kill(pid, signal.SIGKILL)
            # real time: an answer that never comes
            await trio.sleep(limit)
            raise AssertionError

        with trio.fail_after(10), monkeypatch.context() as patch:
            patch.setattr(MasterClient, "reload", never_answers)
            with pytest.raises(EndpointUnreachableError):
                await agent.activate(answering(port, "two"))

        await wait_for_body(port, "one")
        await sync_endpoint(agent, answering(port, "two"))
        await wait_for_body(port, "two")


async def test_a_start_that_was_killed_is_not_a_reason_to_turn_back(
    instance_root: Path, haproxy_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    reported, patched = mapping(port, {"a.example": "1"}), mapping(port, {"a.example": "2"})
    victims: list[int] = []

    def spawn_and_kill_the_first(command: Sequence[str], log: Path) -> int:
        pid = spawn(command, log)
        if not victims:
            os.kill(pid, signal.SIGKILL)
            victims.append(pid)
        return pid

    async with instances(instance_root, haproxy_binary) as (agent,):
        await agent.activate(answering(port, "before"))
        await agent.activate(reported)
        assert not (await sync_endpoint(agent, patched)).reloaded
        monkeypatch.setattr(supervisor_module, "spawn", spawn_and_kill_the_first)

        await kill_and_wait_for_next(agent)

        assert victims
        await wait_for_body(port, "2", host="a.example")
        assert await agent.fetch_running() == patched


async def test_what_haproxy_is_started_with_may_be_more_or_nothing_at_all(
    instance_root: Path, haproxy_binary: Path
) -> None:
    port = free_port()
    allowed = True

    def choose() -> Sequence[str]:
        if not allowed:
            raise LoadRejectedError("not now")
        return ["-n", "77"]

    agent = LocalAgent(
        "local-1", instance_root / "one", haproxy_binary, supervisor=partial(Supervisor, start_options=choose)
    )
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(agent.run, on_exit="stop", grace=0.1))
            allowed = False
            with pytest.raises(DeploymentRejectedError, match="not now"):
                await agent.activate(answering(port, "one"))
            allowed = True
            await agent.activate(answering(port, "one"))
            assert b"77" in read_arguments((await agent.describe()).pid)
            nursery.cancel_scope.cancel()


def fill_the_disk(patch: pytest.MonkeyPatch) -> None:
    """Let every new file fail as on a full disk."""

    def write_file(path: str | Path, _content: bytes, *, durable: bool = True) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    for module in (writer, instance_directory):
        patch.setattr(module, "write_file", write_file)


async def test_a_killed_haproxy_is_started_again_on_a_full_disk(
    instance_root: Path, haproxy_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    deployed, patched = mapping(port, {"a.example": "1"}), mapping(port, {"a.example": "2"})
    async with instances(instance_root, haproxy_binary) as (agent,):
        await agent.activate(deployed)
        assert not (await sync_endpoint(agent, patched)).reloaded
        with monkeypatch.context() as patch:
            fill_the_disk(patch)
            await kill_and_wait_for_next(agent)
            # The runtime change of the last seconds is lost: it could not be written.
            await wait_for_body(port, "1", host="a.example")
            assert await agent.fetch_running() == deployed
            # The former record names the former process.
            record = find_record(instance_root / "instances/local-1")
            assert record is not None
            assert record.pid == (await agent.describe()).pid
        await sync_endpoint(agent, patched)
        assert await fetch(port, host="a.example") == (200, "2")


async def test_an_haproxy_is_adopted_on_a_full_disk(
    instance_root: Path, haproxy_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary, on_exit="leave") as (agent,):
        await agent.activate(answering(port, "one"))
        pid = (await agent.describe()).pid
    with monkeypatch.context() as patch:
        fill_the_disk(patch)
        async with instances(instance_root, haproxy_binary) as (agent,):
            assert (await agent.describe()).pid == pid
            assert await fetch(port) == (200, "one")


@asynccontextmanager
async def kept_up(
    root: Path, binary: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[LocalAgent, Path, ProcessRecord]]:
    """Run an instance whose files are looked after all the time; yield it with its record and the path of that."""
    monkeypatch.setattr(supervisor_module, "UPKEEP_INTERVAL", 0.05)
    async with instances(root, binary) as (agent,):
        await agent.activate(answering(free_port(), "one"))
        path = root / "instances/local-1/process.json"
        record = read_record(path)
        assert record is not None
        yield agent, path, record


async def test_a_lost_record_is_written_again(
    instance_root: Path, haproxy_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kept_up(instance_root, haproxy_binary, monkeypatch) as (_agent, path, before):
        path.write_bytes(bytes(100))

        async def is_back() -> bool:
            return read_record(path) == before

        await until(is_back)


async def test_record_of_the_former_process_is_replaced_once_there_is_space(
    instance_root: Path, haproxy_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kept_up(instance_root, haproxy_binary, monkeypatch) as (agent, path, before):

        def fail(*_arguments: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr(supervisor_module, "write_record", fail)
            os.kill((await agent.describe()).pid, signal.SIGKILL)

            async def is_restarted() -> bool:
                return (await agent.describe()).pid not in {0, before.pid}

            await until(is_restarted)
            assert read_record(path) == before
        pid = (await agent.describe()).pid

        async def is_replaced() -> bool:
            record = read_record(path)
            return record is not None and record.pid == pid

        await until(is_replaced)


async def test_lost_settings_of_an_instance_are_written_again(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,):
        await agent.activate(answering(port, "one"))
        settings = instance_root / "instances/local-1/process.cfg"
        settings.unlink()
        await kill_and_wait_for_next(agent)
        await wait_for_body(port, "one")
        settings.unlink()
        await agent.activate(answering(port, "two"))
        await wait_for_body(port, "two")


async def test_a_damaged_map_is_not_loaded(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    former, newest = mapping(port, {"a.example": "1"}), mapping(port, {"a.example": "2"})
    async with instances(instance_root, haproxy_binary) as (agent,):
        await agent.activate(former)
        await agent.activate(newest)
    directory = instance_root / "instances/local-1"
    (directory / "current/maps/host.map").write_text("")
    async with instances(instance_root, haproxy_binary) as (agent,):
        # The former generation is complete.
        assert await fetch(port, host="a.example") == (200, "1")
        assert await agent.fetch_running() == former
        await sync_endpoint(agent, newest)
        assert await fetch(port, host="a.example") == (200, "2")


async def test_haproxy_waits_for_a_deployment_where_every_generation_is_damaged(
    instance_root: Path, haproxy_binary: Path
) -> None:
    port = free_port()
    deployed = mapping(port, {"a.example": "1"})
    async with instances(instance_root, haproxy_binary) as (agent,):
        await agent.activate(deployed)
    (instance_root / "instances/local-1/current/maps/host.map").write_text("")
    async with instances(instance_root, haproxy_binary) as (agent,):
        assert (await agent.describe()).pid == 0
        await sync_endpoint(agent, deployed)
        assert await fetch(port, host="a.example") == (200, "1")
