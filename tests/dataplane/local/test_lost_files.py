"""An agent whose state directory is removed while it runs writes it again, and serves on."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import trio

from haptic_trio.dataplane.agent.endpoint import RemoteAgent
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.haproxy.model import Generation
from tests.support.components.agents import Authority, agent_process, remote_agent, until
from tests.support.processes.haproxy import answering, fetch, live_haproxies, mapping, wait_for_body
from tests.support.processes.ports import free_port

pytestmark = pytest.mark.haproxy


@pytest.fixture
def short_root() -> Iterator[Path]:
    """A directory whose path is short enough for the sockets of an instance."""
    with TemporaryDirectory(prefix="haptic-trio-") as name:
        yield Path(name)
        assert not live_haproxies(Path(name))


@pytest.mark.parametrize("are_sockets_lost", [True, False], ids=["with the sockets", "without the sockets"])
async def test_agent_recovers_after_its_state_directory_was_removed(
    short_root: Path, haproxy_binary: Path, are_sockets_lost: bool
) -> None:
    # Sockets are created elsewhere if the path is too long for them.
    root = short_root if are_sockets_lost else short_root / ("long" * 20)
    port = free_port()
    authority = Authority(short_root / "tls")
    one, two = mapping(port, {"a.example": "1"}), mapping(port, {"a.example": "2"})
    with trio.fail_after(60):
        async with (
            agent_process(root, haproxy_binary, authority, free_port()) as process,
            remote_agent(process.url, authority.issue("controller")) as remote,
        ):
            await until(lambda: deployed(remote, one))
            # Only in the running process and in the journal of patches.
            assert not (await sync_endpoint(remote, two)).reloaded
            before = (await remote.describe()).pid
            # At once: the agent must not write into it while its entries are being removed.
            process.state.rename(short_root / "removed")
            shutil.rmtree(short_root / "removed")

            # Without a deployment: the controller may be away.
            await until(lambda: restored(remote, process.state, two))
            assert ((await remote.describe()).pid != before) == are_sockets_lost
            await wait_for_body(port, "2", host="a.example")

            assert not (await sync_endpoint(remote, two)).changed
            assert not (await sync_endpoint(remote, one)).reloaded
            await wait_for_body(port, "1", host="a.example")
            assert (await sync_endpoint(remote, answering(port, "three"))).reloaded
            await wait_for_body(port, "three")

            # A restarted agent finds everything.
            await process.kill()
            assert await fetch(port) == (200, "three")
            process.start()
            await until(lambda: deployed(remote, answering(port, "three")))
            assert await fetch(port) == (200, "three")


async def deployed(remote: RemoteAgent, desired: Generation) -> bool:
    """Deploy *desired*."""
    await sync_endpoint(remote, desired)
    return True


async def restored(remote: RemoteAgent, state: Path, desired: Generation) -> bool:
    """Whether the directory is complete again, and HAProxy runs *desired*."""
    info = await remote.describe()
    return info.generation == desired.id and info.pid != 0 and (state / "current" / "haproxy.cfg").exists()
