"""Old workers are counted, reported, and bounded by HAProxy."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import structlog
import trio

from haptic_trio.dataplane.local import old_workers as old_workers_module
from haptic_trio.dataplane.local import supervisor as supervisor_module
from haptic_trio.dataplane.local.master import MasterClient, MasterState
from haptic_trio.dataplane.local.old_workers import WARNED_FROM, OldWorkers
from haptic_trio.dataplane.local.process import find_record
from haptic_trio.haproxy.model import Generation
from tests.support.components.agents import until
from tests.support.processes.haproxy import BASE, build_generation, instances
from tests.support.processes.ports import free_port


class Master(MasterClient):
    """A master with as many old workers as the test says."""

    def __init__(self) -> None:
        super().__init__(Path("/nowhere"), endpoint="local-1")
        self.count = 0

    async def fetch_state(self) -> MasterState:
        await trio.lowlevel.checkpoint()
        return MasterState(pid=1, reloads=0, worker=2, old_workers=tuple(range(10, 10 + self.count)))


async def test_many_old_workers_are_reported_once_for_each_doubling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_workers_module, "_measure", lambda pids: 11 * len(pids))
    observed, master = OldWorkers("local-1"), Master()
    with structlog.testing.capture_logs() as logs:
        for master.count in (0, WARNED_FROM - 1, WARNED_FROM, WARNED_FROM + 1, 2 * WARNED_FROM, 1, WARNED_FROM):
            await observed.observe(master)
    assert [(entry["processes"], entry["mebibytes"]) for entry in logs] == [(10, 110), (20, 220), (10, 110)]


async def test_a_master_that_does_not_answer_is_ignored(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logs:
        await OldWorkers("local-1").observe(MasterClient(tmp_path / "master.sock", endpoint="local-1"))
    assert logs == []


def bounded(port: int, number: int) -> Generation:
    limited = BASE.replace("maxconn 200\n", "maxconn 200\n    mworker-max-reloads 2\n").replace(
        "client 5s", "client 300s"
    )
    return build_generation(
        f"{limited}\nfrontend web\n    bind 127.0.0.1:{port}\n    http-request return status 200"
        f' content-type text/plain string "{number}"\n'
    )


@pytest.mark.haproxy
async def test_haproxy_bounds_the_number_of_old_workers(
    instance_root: Path, haproxy_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "UPKEEP_INTERVAL", 0.05)
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,), AsyncExitStack() as connections:
        await agent.activate(bounded(port, 0))
        record = find_record(instance_root / "instances/local-1")
        assert record is not None
        master = MasterClient(Path(record.sockets) / "master.sock", endpoint="local-1")
        seen = []
        for number in range(1, 6):
            # A request that is not complete keeps the worker alive.
            stream = await connections.enter_async_context(await trio.open_tcp_stream("127.0.0.1", port))
            await stream.send_all(b"GET / HTTP/1.1\r\n")
            await agent.activate(bounded(port, number))
            seen.append(len((await master.fetch_state()).old_workers))

        async def is_bounded() -> bool:
            return len((await master.fetch_state()).old_workers) <= 2

        assert max(seen) >= 2
        await until(is_bounded)

        async def is_counted() -> bool:
            return agent.old_workers == 2

        await until(is_counted)
