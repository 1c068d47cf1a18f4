"""Drift of a running instance is found, distinguished by kind, and repaired."""

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from haptic_trio.dataplane.endpoint import DriftReport, EndpointError, PatchRejectedError
from haptic_trio.dataplane.local.instance import LocalAgent
from haptic_trio.dataplane.local.process import read_record
from haptic_trio.dataplane.local.runtime import RuntimeClient
from haptic_trio.dataplane.local.worker import WorkerState
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.haproxy.model import Generation
from haptic_trio.haproxy.plan.capabilities import capabilities_of
from haptic_trio.haproxy.plan.operations import Operation, Removal
from tests.dataplane.test_patches import RESPONSE, ask_until_accepted, denying, servers_of, site
from tests.support.processes.haproxy import BASE, backend, bodies_of, build_generation, instances
from tests.support.processes.ports import free_port
from tests.support.processes.scripts import script


async def send_commands(root: Path, *commands: str) -> None:
    """Say *commands* on the runtime socket, as anybody may."""
    record = read_record(root / "instances/local-1/process.json")
    assert record is not None
    client = RuntimeClient(Path(record.sockets) / "admin.sock", endpoint="somebody")
    for command in commands:
        await client.ask(f"{command}\n")


async def wait_for_address(root: Path, place: int, address: str) -> None:
    """Return once the server at *place* is at *address*: HAProxy 3.2 answers before it has moved it."""
    with trio.fail_after(60):
        while True:
            if (await servers_of(root))[place].address == address:
                return
            await trio.lowlevel.checkpoint()


@asynccontextmanager
async def serving(root: Path, binary: Path, desired: Generation) -> AsyncIterator[LocalAgent]:
    """Run an instance that has *desired*."""
    async with instances(root, binary) as (agent,):
        await sync_endpoint(agent, desired)
        yield agent


@pytest.mark.haproxy
async def test_changes_over_the_runtime_socket_are_repaired(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with backend("a") as one, backend("b") as two:
        desired = site(port, [one, two], entries="x.example app\n")
        async with serving(instance_root, haproxy_binary, desired) as agent:
            assert await agent.repair() == DriftReport()
            await send_commands(
                instance_root,
                "set server app/s1 state maint",
                "set server app/s2 addr 127.0.0.9 port 9",
                "del map hosts.map x.example",
            )
            await wait_for_address(instance_root, 1, "127.0.0.9")

            report = await agent.repair()

            assert report == DriftReport(found={"map": 1, "server": 2}, operations=3)
            assert await bodies_of(port) == {"a", "b"}
            assert await agent.repair() == DriftReport()
            assert (await agent.describe()).reloads == 0


@pytest.mark.haproxy
async def test_changed_keys_of_an_acl_are_repaired(instance_root: Path, haproxy_binary: Path) -> None:
    desired = denying(free_port(), "10.0.0.1\n10.0.0.2\n", ".a\n.a\n")
    async with serving(instance_root, haproxy_binary, desired) as agent:
        await send_commands(instance_root, "del acl lists/addresses.txt 10.0.0.2", "add acl lists/hosts.txt .b")

        assert await agent.repair() == DriftReport(found={"acl": 2}, operations=2)

        assert await agent.repair() == DriftReport()
        assert (await agent.describe()).reloads == 0


@pytest.mark.haproxy
async def test_verifying_deployment_reports_unchanged_only_after_a_comparison(
    instance_root: Path, haproxy_binary: Path
) -> None:
    async with backend("a") as one:
        desired = site(free_port(), [one])
        async with serving(instance_root, haproxy_binary, desired) as agent:
            assert not (await sync_endpoint(agent, desired, verify=True)).changed
            await send_commands(instance_root, "set server app/s1 state drain")
            assert not (await sync_endpoint(agent, desired)).changed

            result = await sync_endpoint(agent, desired, verify=True)

            assert (result.changed, result.reloaded, result.operations) == (True, False, 1)
            assert result.drift == {"server": 1}
            assert [server.state for server in await servers_of(instance_root)] == ["ready"]


HASHED = (
    BASE + "\nbackend app\n  balance source\n  hash-type consistent\n  server a 127.0.0.1:1\n  server b 127.0.0.2:1\n"
)


@pytest.mark.haproxy
async def test_what_no_command_puts_right_is_loaded_once(instance_root: Path, haproxy_binary: Path) -> None:
    desired = build_generation(HASHED)
    async with serving(instance_root, haproxy_binary, desired) as agent:
        await send_commands(instance_root, "set server app/a state maint", "del server app/a")

        held = await sync_endpoint(agent, desired, verify=True, may_reload=False)
        result = await sync_endpoint(agent, desired, verify=True)

        assert (held.reloaded, held.held) == (False, ("drift: server app/a removed",))
        assert (result.reloaded, result.reasons) == (True, ("drift: server app/a removed",))
        assert result.drift == {"server": 1}
        assert not (await sync_endpoint(agent, desired, verify=True)).changed
        assert (await agent.describe()).reloads == 1


@pytest.mark.haproxy
async def test_reload_by_another_program_is_not_drift(instance_root: Path, haproxy_binary: Path) -> None:
    async with backend("a") as one, serving(instance_root, haproxy_binary, site(free_port(), [one])) as agent:
        await sync_endpoint(agent, site(free_port(), [one, one]))
        before = await agent.describe()
        await agent._supervisor.master.reload(limit=10)

        assert await agent.repair() == DriftReport()
        assert (await agent.describe()).reloads == before.reloads + 1


@pytest.mark.haproxy
async def test_edited_files_are_reported_with_their_number(instance_root: Path, haproxy_binary: Path) -> None:
    async with serving(instance_root, haproxy_binary, site(free_port(), [1], entries="a app\n")) as agent:
        for name in ("haproxy.cfg", "hosts.map"):
            path = trio.Path(instance_root / "instances/local-1/current" / name)
            content = await path.read_bytes()
            await path.unlink()
            await path.write_bytes(content + b"# by hand\n")
            report = await agent.repair()
            assert report.found == {"files": 1}
            assert name in report.reasons[0]


@pytest.mark.haproxy
async def test_instance_without_a_process_is_reported(
    instance_root: Path, haproxy_binary: Path, tmp_path: Path
) -> None:
    stop = tmp_path / "stop"
    binary = script(tmp_path / "haproxy", f'[ -e "{stop}" ] && [ "$1" != -vv ] && exit 1\nexec "{haproxy_binary}" "$@"')
    async with serving(instance_root, binary, site(free_port(), [1])) as agent:
        stop.touch()
        pid = (await agent.describe()).pid
        os.kill(pid, signal.SIGKILL)
        while pid:
            await trio.sleep(0.01)
            # A process that is just dying does not answer.
            with contextlib.suppress(EndpointError):
                pid = (await agent.describe()).pid

        report = await agent.repair()

        assert report == DriftReport(found={"process": 1}, reasons=("process: no haproxy runs",))


async def test_before_the_first_generation_there_is_nothing_to_compare(tmp_path: Path) -> None:
    assert await LocalAgent("local-1", tmp_path, tmp_path / "haproxy").repair() == DriftReport()


@pytest.mark.haproxy
async def test_what_an_earlier_controller_has_left_over_is_deleted_once_it_can_be(
    instance_root: Path, haproxy_binary: Path
) -> None:
    port = free_port()
    with trio.socket.socket() as slow:
        await slow.bind(("127.0.0.1", 0))
        slow.listen()
        async with backend("b") as two, instances(instance_root, haproxy_binary, on_exit="leave") as (agent,):
            await sync_endpoint(agent, site(port, [two, slow.getsockname()[1]]))
            client = await trio.open_tcp_stream("127.0.0.1", port)
            accepted = await ask_until_accepted(client, slow)
            await sync_endpoint(agent, site(port, [two]))
        async with client, instances(instance_root, haproxy_binary) as (agent,):
            with accepted:
                assert await agent.repair() == DriftReport()
                assert len(await servers_of(instance_root)) == 2
                await accepted.send(RESPONSE)
                assert (await client.receive_some()).endswith(b"ok")
            assert await agent.repair() == DriftReport()
            assert [server.server for server in await servers_of(instance_root)] == ["s1"]


class FakeRuntime(RuntimeClient):
    """A worker with scripted state that rejects scripted commands."""

    def __init__(self, *answers: str, rejects: bool = False) -> None:
        super().__init__(Path("admin.sock"), endpoint="fake-1")
        self.answers = list(answers)
        self.reported: list[Operation] = []
        self._rejects = rejects

    async def read(self, questions: Sequence[str], *, worker: int) -> list[str]:
        assert len(questions) == len(self.answers)
        return self.answers

    async def apply(self, operations: Sequence[Operation], *, worker: int, patient: bool = True) -> tuple[Removal, ...]:
        if self._rejects:
            raise PatchRejectedError("fake-1", "no such server")
        self.reported += operations
        return ()


STATE = "1\n# be_name srv_name srv_addr srv_port srv_uweight srv_iweight srv_admin_state srv_op_state\n"
LTS = capabilities_of((2, 8))


async def test_difference_that_remains_after_a_reload_is_reported_only_once() -> None:
    state, desired = WorkerState("fake-1"), build_generation(HASHED)
    runtime = FakeRuntime(f"{STATE}app b 127.0.0.2 1 1 1 0 2\n", "# name\napp\n")

    async def look(worker: int) -> DriftReport:
        return await state.repair(runtime, desired, worker=worker, capabilities=LTS)

    missing = DriftReport(found={"server": 1}, reasons=("drift: server app/a removed",))
    assert [await look(1), await look(1)] == [missing, missing]
    assert [await look(2), await look(2), await look(3)] == [DriftReport()] * 3
    # Gone and there again is something else.
    whole = f"{runtime.answers[0]}app a 127.0.0.1 1 1 1 0 2\n"
    former, runtime.answers[0] = runtime.answers[0], whole
    assert await look(3) == DriftReport()
    runtime.answers[0] = former
    assert await look(3) == missing


async def test_a_repair_that_is_rejected_is_a_reason_to_reload() -> None:
    runtime = FakeRuntime(
        f"{STATE}app a 127.0.0.9 1 1 1 0 2\napp b 127.0.0.2 1 1 1 0 2\n", "# name\napp\n", rejects=True
    )
    report = await WorkerState("fake-1").repair(runtime, build_generation(HASHED), worker=1, capabilities=LTS)
    assert report == DriftReport(found={"server": 1}, reasons=("repair rejected: fake-1: no such server",))


async def test_an_answer_that_cannot_be_read_is_an_error_of_the_endpoint() -> None:
    runtime = FakeRuntime("Permission denied\n", "")
    with pytest.raises(EndpointError, match="show servers state"):
        await WorkerState("fake-1").repair(runtime, build_generation(HASHED), worker=1, capabilities=LTS)
