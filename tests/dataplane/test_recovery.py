"""A controller that is killed at any step of a deployment: its successor brings files and process together."""

import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio

from haptic_trio.dataplane.agent import LocalAgent
from haptic_trio.dataplane.endpoint import Endpoint
from haptic_trio.dataplane.files import GenerationFiles
from haptic_trio.dataplane.runtime import RuntimeClient
from haptic_trio.dataplane.supervisor import Supervisor
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.haproxy.model import Generation
from tests.support.haproxy import answering, fetch, free_port, instances, mapping, wait_for_body

pytestmark = pytest.mark.haproxy


class Crash(BaseException):
    """Stands for kill -9: no handler of ours may run, so it is no Exception."""


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
@pytest.mark.parametrize("step", [*STEPS, (RuntimeClient, "apply")])
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
        "from tests.support.haproxy import answering, instances\n"
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
