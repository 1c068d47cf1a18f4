"""A fleet of real HAProxy processes: created, adopted, drained and replaced without a refused connection."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trio

from haptic_trio.dataplane.local.process import MasterProcess, read_record
from haptic_trio.dataplane.sync import sync_endpoint
from tests.fleet.rig.local import (
    GROUP,
    clients_of,
    download,
    listening_sockets,
    quick_and_slow,
    running_fleet,
    slow_backend,
)
from tests.support.processes.haproxy import answering, bodies_of, fetch, instances, live_haproxies
from tests.support.processes.ports import free_port

pytestmark = pytest.mark.haproxy


def pid_of(root: Path, instance_id: str) -> int:
    record = read_record(root / "instances" / instance_id / "process.json")
    assert record is not None
    return record.pid


async def test_a_fleet_starts_grows_and_shrinks_with_one_socket_for_all(
    instance_root: Path, haproxy_binary: Path
) -> None:
    port = free_port()
    async with (
        running_fleet(instance_root, haproxy_binary, answering(port, "one"), size=2) as fleet,
        clients_of(port) as clients,
    ):
        await fleet.wait_settled()
        clients.failed.clear()
        fleet.change(size=5)
        five = await fleet.wait_settled()
        assert len({pid_of(instance_root, name) for name in five}) == 5
        assert len(listening_sockets(port)) == 1
        fleet.change(size=1)
        await fleet.wait_settled()
        assert len(live_haproxies(instance_root)) == 2
        assert [endpoint.name for endpoint in fleet.endpoints.value or ()] == fleet.ready
        assert len(list((instance_root / "instances").glob("local-*"))) == 1
        assert len(list((instance_root / "fleet").iterdir())) == 1
        assert clients.answered
        assert not clients.failed


async def test_an_instance_that_cannot_listen_reports_the_address(instance_root: Path, haproxy_binary: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        taken = holder.getsockname()[1]
        async with running_fleet(instance_root, haproxy_binary, answering(taken, "one"), size=1) as fleet:
            await fleet.wait(lambda: bool(fleet.unbound))
            assert [(one.host, one.port) for one in fleet.unbound[0].addresses] == [("127.0.0.1", taken)]
            # The newest generation no longer has the address: the next attempt succeeds.
            fleet.generations.append(answering(free_port(), "one"))
            await fleet.wait_settled()


async def test_a_rotation_rejects_no_connection(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with running_fleet(instance_root, haproxy_binary, answering(port, "one"), size=2) as fleet:
        first = await fleet.wait_settled()
        async with clients_of(port, count=8, pause=0.005) as clients:
            for round_ in range(3):
                fleet.change(config_hash=f"other {round_}")
                await fleet.wait(
                    lambda: all(record.config_hash == fleet.specs[GROUP].config_hash for record in fleet.records)
                )
                await fleet.wait_settled()
            assert clients.answered > 100
            assert not clients.failed
        assert not set(first) & set(fleet.ready)
        assert len(fleet.drains) == 6


async def test_a_rotation_after_a_new_port_rejects_no_connection(instance_root: Path, haproxy_binary: Path) -> None:
    port, new_port = free_port(), free_port()
    async with running_fleet(instance_root, haproxy_binary, answering(port, "one"), size=2) as fleet:
        await fleet.wait_settled()
        fleet.generations.append(answering(new_port, "two"))
        for endpoint in fleet.endpoints.value or ():
            await sync_endpoint(endpoint, fleet.generations[-1])
        # A reload binds new addresses for each instance alone; who takes over from an instance takes over its sockets.
        assert len(listening_sockets(new_port)) == 2
        async with clients_of(new_port, count=8, pause=0.005) as clients:
            fleet.change(config_hash="other")
            await fleet.wait(lambda: all(record.config_hash == "other" for record in fleet.records))
            await fleet.wait_settled()
            assert clients.answered
            assert not clients.failed


async def test_a_draining_instance_finishes_a_download(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with (
        slow_backend(40, 0.05) as slow,
        running_fleet(instance_root, haproxy_binary, quick_and_slow(port, slow.port), drain_timeout=10.0) as fleet,
        trio.open_nursery() as nursery,
    ):
        (first,) = await fleet.wait_settled()
        pid = pid_of(instance_root, first)
        answers: list[bytes] = []

        async def fetch_slowly() -> None:
            answers.append(await download(port))

        nursery.start_soon(fetch_slowly)
        await slow.asked(1)
        fleet.change(config_hash="other")
        await fleet.wait(lambda: fleet.drains == [first])
        assert not answers
        # It accepts no new connections any more, but continues the existing one.
        assert await fetch(port) == (200, "quick")
        assert MasterProcess(pid).is_alive()
        await fleet.wait(lambda: bool(answers))
        assert answers[0].endswith(b"x" * 40)
        await fleet.wait_settled()
        assert first not in fleet.ready
        assert not fleet.errors


async def test_a_connection_that_outlasts_the_drain_is_cut(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with (
        slow_backend(1000, 0.1) as slow,
        running_fleet(instance_root, haproxy_binary, quick_and_slow(port, slow.port), drain_timeout=0.5) as fleet,
        trio.open_nursery() as nursery,
    ):
        (first,) = await fleet.wait_settled()
        answers: list[bytes] = []

        async def fetch_slowly() -> None:
            answers.append(await download(port))

        nursery.start_soon(fetch_slowly)
        await slow.asked(1)
        began = time.monotonic()
        fleet.change(config_hash="other")
        await fleet.wait(lambda: bool(answers), within=8.0)
        assert time.monotonic() - began > 0.5
        assert b"200 OK" in answers[0]
        await fleet.wait_settled()
        assert first not in fleet.ready
        assert await fetch(port) == (200, "quick")


async def test_a_hung_instance_is_replaced(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with running_fleet(instance_root, haproxy_binary, answering(port, "one"), size=2, drain_timeout=0.5) as fleet:
        first, _ = await fleet.wait_settled()
        for pid in [pid for pid in live_haproxies(instance_root, within=0) if first in command_of(pid)]:
            os.kill(pid, signal.SIGSTOP)
        await fleet.wait(lambda: first not in [record.id for record in fleet.records])
        await fleet.wait_settled()
        assert len(live_haproxies(instance_root, within=0)) == 4
        async with clients_of(port) as clients:
            await fleet.wait(lambda: clients.answered > 20)
        assert not clients.failed


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


async def test_a_killed_haproxy_is_restarted(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with running_fleet(instance_root, haproxy_binary, answering(port, "one"), size=2) as fleet:
        first, _ = await fleet.wait_settled()
        former = pid_of(instance_root, first)
        os.kill(former, signal.SIGKILL)
        await fleet.wait(lambda: first not in fleet.ready or pid_of(instance_root, first) != former)
        await fleet.wait_settled()
        assert await fetch(port) == (200, "one")


CONTROLLER = """
import sys
from pathlib import Path
import trio
from tests.fleet.rig.local import running_fleet
from tests.support.processes.haproxy import answering

async def main(root, binary, port, size):
    async with running_fleet(Path(root), Path(binary), answering(int(port), "one"), size=int(size)) as fleet:
        await fleet.wait_settled()
        print("settled", flush=True)
        await trio.sleep_forever()

trio.run(main, *sys.argv[1:])
"""


def start_controller(root: Path, binary: Path, port: int, *, size: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", CONTROLLER, str(root), str(binary), str(port), str(size)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3])


async def test_instances_outlive_a_killed_controller_and_are_adopted(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    with start_controller(instance_root, haproxy_binary, port, size=2) as controller:
        assert controller.stdout is not None
        output = controller.stdout
        with trio.fail_after(20):
            while b"settled" not in await trio.to_thread.run_sync(output.readline):
                pass
        controller.kill()
    alive = set(live_haproxies(instance_root, within=0))
    assert len(alive) == 4
    assert await fetch(port) == (200, "one")
    async with running_fleet(instance_root, haproxy_binary, answering(port, "one"), size=2) as fleet:
        await fleet.wait_settled()
        assert set(live_haproxies(instance_root, within=0)) == alive
        assert len(fleet.endpoints.value or ()) == 2


@pytest.mark.parametrize("delay", [0.0, 0.15, 0.3, 0.5])
async def test_a_controller_killed_at_any_time_leaves_nothing_behind(
    instance_root: Path, haproxy_binary: Path, delay: float
) -> None:
    port = free_port()
    with start_controller(instance_root, haproxy_binary, port, size=4) as controller:
        with trio.fail_after(20):
            # It is another process that makes it.
            while not (instance_root / "instances").is_dir():  # noqa: ASYNC110
                await trio.sleep(0.01)
        # real time: it is killed at moments that nothing marks
        await trio.sleep(delay)
        controller.kill()
    async with running_fleet(instance_root, haproxy_binary, answering(port, "one"), size=2) as fleet:
        names = await fleet.wait_settled()
        assert len(live_haproxies(instance_root, within=0)) == 4
        assert sorted(path.name for path in (instance_root / "instances").iterdir() if path.is_dir()) == sorted(names)


async def test_instances_without_a_mark_are_adopted(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary, count=2, on_exit="leave") as agents:
        for agent in agents:
            await sync_endpoint(agent, answering(port, "one"))
    async with (
        running_fleet(instance_root, haproxy_binary, answering(port, "one"), size=2) as fleet,
        clients_of(port) as clients,
    ):
        await fleet.wait(lambda: {"local-1", "local-2"} <= {record.id for record in fleet.records})
        await fleet.wait(lambda: not {"local-1", "local-2"} & {record.id for record in fleet.records})
        await fleet.wait_settled()
        assert not clients.failed


async def test_on_exit_decides_whether_haproxy_continues(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with running_fleet(instance_root, haproxy_binary, answering(port, "one"), on_exit="leave") as fleet:
        (name,) = await fleet.wait_settled()
    assert len(live_haproxies(instance_root, within=0)) == 2
    async with running_fleet(instance_root, haproxy_binary, answering(port, "one")) as fleet:
        assert await fleet.wait_settled() == [name]
    assert not live_haproxies(instance_root)


async def test_a_port_of_another_controllers_fleet_is_not_shared(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    one, other = instance_root / "one", instance_root / "other"
    async with running_fleet(one, haproxy_binary, answering(port, "one")) as first:
        await first.wait_settled()
        async with running_fleet(other, haproxy_binary, answering(port, "other")) as second:
            await second.wait(lambda: bool(second.errors))
            assert f"127.0.0.1:{port}" in second.errors[0]
            assert f"--state-dir {one}" in second.errors[0]
            assert live_haproxies(other, within=0) == []


async def test_a_hung_instance_gives_up_its_sockets_without_waiting_for_its_drain(
    instance_root: Path, haproxy_binary: Path
) -> None:
    port = free_port()
    async with running_fleet(instance_root, haproxy_binary, answering(port, "one"), drain_timeout=300.0) as fleet:
        (first,) = await fleet.wait_settled()
        worker = max(pid for pid in live_haproxies(instance_root, within=0) if pid != pid_of(instance_root, first))
        os.kill(worker, signal.SIGSTOP)
        await fleet.wait(lambda: first not in [record.id for record in fleet.records])
        await fleet.wait_settled()
        assert not any(first in command_of(pid) for pid in live_haproxies(instance_root, within=0))
        async with clients_of(port) as clients:
            await fleet.wait(lambda: clients.answered > 20)
        assert not clients.failed


@pytest.mark.parametrize("content", [None, bytes(100)])
async def test_an_instance_whose_record_is_lost_continues(
    instance_root: Path, haproxy_binary: Path, content: bytes | None
) -> None:
    port = free_port()
    async with running_fleet(instance_root, haproxy_binary, answering(port, "one"), health_interval=0.1) as fleet:
        (first,) = await fleet.wait_settled()
        pid = pid_of(instance_root, first)
        path = instance_root / "instances" / first / "process.json"
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        lost_at = time.time()
        async with clients_of(port) as clients:
            # Without an answer it would count as dead after two health checks.
            await fleet.wait(lambda: (fleet.records[0].heartbeat_at or 0.0) > lost_at + 0.5)
            assert fleet.ready == [first]
            assert MasterProcess(pid).is_alive()
        assert not clients.failed
    assert not live_haproxies(instance_root)


async def test_an_haproxy_of_a_lost_state_directory_is_replaced(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    root = instance_root / "state"
    async with running_fleet(root, haproxy_binary, answering(port, "former"), on_exit="leave") as fleet:
        await fleet.wait_settled()
        fleet.change(config_hash="other")
        await fleet.wait(lambda: all(record.config_hash == "other" for record in fleet.records))
        (former,) = await fleet.wait_settled()
    assert former != "local-1"
    shutil.rmtree(root)
    async with running_fleet(root, haproxy_binary, answering(port, "present")) as fleet, clients_of(port) as clients:
        await fleet.wait(lambda: bool(fleet.drains))
        (present,) = await fleet.wait_settled()
        assert present != former
        assert fleet.drains == [former]
        assert await bodies_of(port) == {"present"}
        assert len(live_haproxies(instance_root, within=0)) == 2
    assert clients.answered
    assert not [failure for failure in clients.failed if "refused" in failure]


@pytest.mark.parametrize("lost", ["state", "instances"])
async def test_a_removed_state_directory_is_made_again(instance_root: Path, haproxy_binary: Path, lost: str) -> None:
    port = free_port()
    root = instance_root / "state"
    async with running_fleet(root, haproxy_binary, answering(port, "former")) as fleet, clients_of(port) as clients:
        (former,) = await fleet.wait_settled()
        clients.failed.clear()
        shutil.rmtree(root if lost == "state" else root / "instances" / former)
        fleet.generations.append(answering(port, "present"))
        await fleet.wait(lambda: bool(fleet.drains))
        (present,) = await fleet.wait_settled()
        assert fleet.drains == [former]
        assert present != former
        assert await bodies_of(port) == {"present"}
        (endpoint,) = fleet.endpoints.value or ()
        await sync_endpoint(endpoint, answering(port, "last"))
        assert await bodies_of(port) == {"last"}
    assert clients.answered
    assert not [failure for failure in clients.failed if "refused" in failure]
