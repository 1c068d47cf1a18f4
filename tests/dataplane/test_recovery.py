"""A controller that is killed at any step of a deployment: its successor brings files and process together."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio

from haptic_trio.dataplane.endpoint import Endpoint, EndpointError
from haptic_trio.dataplane.local import instance as agent_module
from haptic_trio.dataplane.local.files.instance_directory import GenerationFiles
from haptic_trio.dataplane.local.instance import LocalAgent
from haptic_trio.dataplane.local.master import MasterClient
from haptic_trio.dataplane.local.process import read_record
from haptic_trio.dataplane.local.runtime import RuntimeClient
from haptic_trio.dataplane.local.supervisor import Supervisor
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.haproxy.model import Generation
from tests.support.processes.haproxy import answering, fetch, instances, mapping, paths_named, wait_for_body
from tests.support.processes.ports import free_port
from tests.support.processes.scripts import script

pytestmark = pytest.mark.haproxy


class Crash(BaseException):
    """Stands for kill -9: no handler of the program may run, so it is no Exception."""


def crash(owner: type, method: str, *, after: bool, patch: pytest.MonkeyPatch) -> None:
    """Make *method* of *owner* crash before or after it does its work."""
    original: Callable[..., object] = getattr(owner, method)

    def sync_crash(*args: object, **kwargs: object) -> object:
        if after:
            original(*args, **kwargs)
        raise Crash

    async def async_crash(*args: object, **kwargs: object) -> object:
        if after:
            await original(*args, **kwargs)  # type: ignore[misc]
        raise Crash

    is_async = method in {"load", "apply"}
    patch.setattr(owner, method, async_crash if is_async else sync_crash)


STEPS: list[tuple[type, str]] = [
    (GenerationFiles, "stage"),
    (GenerationFiles, "begin"),
    (GenerationFiles, "switch"),
    (GenerationFiles, "commit"),
]


async def crash_while_deploying(
    root: Path, binary: Path, first: Generation, second: Generation, step: tuple[type, str], *, after: bool
) -> None:
    async def deploy() -> None:
        async with instances(root, binary, on_exit="leave") as (agent,):
            await sync_endpoint(agent, first)
            with pytest.MonkeyPatch.context() as patch:
                crash(*step, after=after, patch=patch)
                await sync_endpoint(agent, second)

    with pytest.RaisesGroup(Crash, flatten_subgroups=True):
        await deploy()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", [*STEPS, (Supervisor, "load")])
async def test_an_interrupted_reload_converges(
    instance_root: Path, haproxy_binary: Path, step: tuple[type, str], after: bool
) -> None:
    port = free_port()
    first, second = answering(port, "one"), answering(port, "two")
    await crash_while_deploying(instance_root, haproxy_binary, first, second, step, after=after)
    async with instances(instance_root, haproxy_binary) as (agent,):
        # Back to the first: what is on disk must not be taken for what runs.
        await sync_endpoint(agent, first)
        await wait_for_body(port, "one")
        assert await agent.fetch_running() == first


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    "step", [(GenerationFiles, "record_patch"), (GenerationFiles, "settle"), (RuntimeClient, "apply")]
)
async def test_an_interrupted_patch_converges(
    instance_root: Path, haproxy_binary: Path, step: tuple[type, str], after: bool
) -> None:
    port = free_port()
    first, second = mapping(port, {"a.example": "1"}), mapping(port, {"a.example": "2"})
    await crash_while_deploying(instance_root, haproxy_binary, first, second, step, after=after)
    async with instances(instance_root, haproxy_binary) as (agent,):
        await sync_endpoint(agent, first)
        await wait_for_body(port, "1", host="a.example")
        assert await agent.fetch_running() == first


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", [(GenerationFiles, name) for name in ("stage", "commit", "join")])
async def test_an_interrupted_writing_out_of_patches_converges(
    instance_root: Path, haproxy_binary: Path, monkeypatch: pytest.MonkeyPatch, step: tuple[type, str], after: bool
) -> None:
    monkeypatch.setattr(agent_module, "WRITE_OUT_INTERVAL", 0.0)
    port = free_port()
    first, second = mapping(port, {"a.example": "1"}), mapping(port, {"a.example": "2"})

    async def deploy() -> None:
        async with instances(instance_root, haproxy_binary, on_exit="leave") as (agent,):
            await sync_endpoint(agent, first)
            with pytest.MonkeyPatch.context() as patch:
                crash(*step, after=after, patch=patch)
                await sync_endpoint(agent, second)
                await trio.sleep_forever()

    with trio.fail_after(20), pytest.RaisesGroup(Crash, flatten_subgroups=True):
        await deploy()
    async with instances(instance_root, haproxy_binary) as (agent,):
        running = await agent.fetch_running()
        assert running is None or running == second
        await sync_endpoint(agent, second)
        assert await agent.fetch_running() == second
        await wait_for_body(port, "2", host="a.example")


def _is_written(root: Path, generation: Generation) -> bool:
    """Whether the map is among the files that HAProxy loads; where it is checked, it does not count."""
    paths = [path for path in paths_named(root, "host.map") if "haptic-trio-check-" not in str(path)]
    return generation.files["maps/host.map"].content in [path.read_bytes() for path in paths]


async def test_a_generation_without_a_verdict_is_checked_again_and_written_out_then(
    instance_root: Path, haproxy_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "WRITE_OUT_INTERVAL", 0.05)
    dying, asked = instance_root / "dying", instance_root / "asked"
    binary = script(
        instance_root / "haproxy",
        f'[ "$1" = -c ] && [ -e {dying} ] && echo >>{asked} && kill -KILL $$\nexec "{haproxy_binary}" "$@"',
    )
    port = free_port()
    first, second = mapping(port, {"a.example": "1"}), mapping(port, {"a.example": "2"})
    async with instances(instance_root, binary) as (agent,):
        await sync_endpoint(agent, first)
        dying.touch()
        assert not (await sync_endpoint(agent, second)).reloaded
        assert not _is_written(instance_root, second)
        while not asked.exists() or len(asked.read_bytes()) < 2:  # noqa: ASYNC110  the fact is a file
            await trio.sleep(0.02)
        dying.unlink()
        while not _is_written(instance_root, second):  # noqa: ASYNC110  the fact is a file
            await trio.sleep(0.02)


async def test_restarted_haproxy_has_the_runtime_changes(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    first, second = mapping(port, {"a.example": "1"}), mapping(port, {"a.example": "2"})
    async with instances(instance_root, haproxy_binary) as (agent,):
        await sync_endpoint(agent, first)
        assert not (await sync_endpoint(agent, second)).reloaded
        pid = (await agent.describe()).pid
        os.kill(pid, signal.SIGKILL)
        await wait_restarted(agent, pid)
        await wait_for_body(port, "2", host="a.example")
        assert await agent.fetch_running() == second
        assert not (await sync_endpoint(agent, second)).changed


async def test_next_controller_knows_the_runtime_changes(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    first, second = mapping(port, {"a.example": "1"}), mapping(port, {"a.example": "2"})
    async with instances(instance_root, haproxy_binary, on_exit="leave") as (agent,):
        await sync_endpoint(agent, first)
        await sync_endpoint(agent, second)
    async with instances(instance_root, haproxy_binary) as (agent,):
        assert await agent.fetch_running() == second
        assert not (await sync_endpoint(agent, second, verify=True)).changed


async def test_files_that_cannot_be_loaded_give_way_to_those_before(
    instance_root: Path, haproxy_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    first, second = mapping(port, {"a.example": "1"}), mapping(port, {"a.example": "2"})
    async with instances(instance_root, haproxy_binary) as (agent,):
        await sync_endpoint(agent, first)
        await sync_endpoint(agent, second)
        pid = (await agent.describe()).pid
        spoil(monkeypatch)
        os.kill(pid, signal.SIGKILL)
        await wait_restarted(agent, pid)
        await wait_for_body(port, "1", host="a.example")
        assert await agent.fetch_running() == first


async def wait_restarted(agent: LocalAgent, former: int) -> None:
    """Wait until a process other than *former* answers."""
    with trio.fail_after(20):
        while True:
            with contextlib.suppress(EndpointError):
                if (await agent.describe()).pid not in {0, former}:
                    return
            await trio.lowlevel.checkpoint()


def spoil(patch: pytest.MonkeyPatch) -> None:
    """Have what the notes come to be written out as something that HAProxy does not load."""
    original = GenerationFiles.join

    def join(files: GenerationFiles, generation: Generation) -> None:
        original(files, generation)
        (files.current / "haproxy.cfg").write_text("nonsense\n")

    patch.setattr(GenerationFiles, "join", join)


async def reload_by_hand(directory: Path) -> None:
    record = read_record(directory / "process.json")
    assert record is not None
    await MasterClient(Path(record.sockets) / "master.sock", endpoint="x").reload(limit=10)


async def test_reload_by_another_program_does_not_hide_earlier_runtime_changes(
    instance_root: Path, haproxy_binary: Path
) -> None:
    port = free_port()
    configurations = [mapping(port, {"a.example": str(number), "b.example": str(number % 2)}) for number in range(3)]
    async with instances(instance_root, haproxy_binary) as (agent,):
        for generation in configurations[:2]:
            await sync_endpoint(agent, generation)
        await reload_by_hand(instance_root / "instances/local-1")
        result = await sync_endpoint(agent, configurations[2])
        assert result.reloaded
        await wait_for_body(port, "2", host="a.example")
        await wait_for_body(port, "0", host="b.example")


async def test_a_cancelled_deployment_converges(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    first, second = answering(port, "one"), answering(port, "two")
    async with instances(instance_root, haproxy_binary) as (agent,):
        await sync_endpoint(agent, first)
        for delay in (0.0, 0.002, 0.005, 0.01, 0.02, 0.03):
            with trio.move_on_after(delay):
                await sync_endpoint(agent, second)
            await sync_endpoint(agent, first)
            await wait_for_body(port, "one")
            assert await agent.fetch_running() == first


async def test_after_an_interrupted_reload_a_dead_haproxy_comes_back_with_what_worked(
    instance_root: Path, haproxy_binary: Path
) -> None:
    port = free_port()
    first, second = answering(port, "one"), answering(port, "two")
    await crash_while_deploying(instance_root, haproxy_binary, first, second, (Supervisor, "load"), after=False)
    async with instances(instance_root, haproxy_binary, on_exit="stop"):
        pass
    async with instances(instance_root, haproxy_binary) as (agent,):
        assert await fetch(port) == (200, "one")
        # It was started from disk, so what it runs is known again.
        assert await agent.fetch_running() == first


async def test_haproxy_survives_a_killed_controller_and_is_adopted(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    program = (
        "import sys, trio\n"
        "from pathlib import Path\n"
        "from tests.support.processes.haproxy import answering, instances\n"
        "async def main():\n"
        f"    async with instances(Path({str(instance_root)!r}), Path({str(haproxy_binary)!r})) as (agent,):\n"
        f"        await agent.activate(answering({port}, 'one'))\n"
        "        print('PID', (await agent.describe()).pid, flush=True)\n"
        "        await trio.sleep_forever()\n"
        "trio.run(main)\n"
    )
    async with trio.open_nursery() as nursery:
        run = partial(trio.run_process, [sys.executable, "-c", program], stdout=subprocess.PIPE, check=False)
        controller = await nursery.start(run)
        printed = b""
        with trio.fail_after(20):
            while (found := re.search(rb"PID (\d+)\n", printed)) is None:
                chunk = await controller.stdout.receive_some()
                assert chunk, "the controller has ended"
                printed += chunk
        controller.kill()
    pid = int(found[1])
    assert await fetch(port) == (200, "one")
    async with instances(instance_root, haproxy_binary) as (agent,):
        assert (await agent.describe()).pid == pid
        assert not (await sync_endpoint(agent, answering(port, "one"))).changed


def test_an_agent_is_an_endpoint(tmp_path: Path) -> None:
    endpoint: Endpoint = LocalAgent("local-1", tmp_path, tmp_path / "haproxy")
    assert endpoint.name == "local-1"
