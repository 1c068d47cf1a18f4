"""A controller and an agent one version apart, as processes: one runs this checkout, the other an earlier commit."""

import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from io import BytesIO
from pathlib import Path

import pytest
import trio

from haptic_trio import __version__
from tests.features.harness import Site
from tests.support.components.agents import Authority, agent_process, remote_agent, until
from tests.support.processes.haproxy import backend
from tests.support.processes.ports import free_port

pytestmark = pytest.mark.haproxy

ROOT = Path(__file__).parents[3]
BEFORE_THE_FIRST_RELEASE = "42fdd393911cd79f5d45b71c46ca08e8d1704074"
"""The version before this one until there is a release: of 2026-11-22, before the newest change of the protocol."""
RULE = "http-request return status 200 content-type text/plain string c if { path /c }\n"
LIMIT = 100.0


def git(*arguments: str) -> bytes:
    """Return what git prints about this checkout."""
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=True).stdout


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the package of the version before this one: of the newest tag of another version."""
    folder = tmp_path_factory.mktemp("former")
    try:
        tags = git("tag", "--list", "v*", "--merged", "HEAD", "--sort=-version:refname").decode().split()
        version = next((tag for tag in tags if tag != f"v{__version__}"), BEFORE_THE_FIRST_RELEASE)
        package = git("archive", version, "haptic_trio")
    except (OSError, subprocess.CalledProcessError) as exc:
        pytest.skip(f"this checkout has no history with the version before this one: {exc}")
    with tarfile.open(fileobj=BytesIO(package)) as archive:
        archive.extractall(folder, filter="data")
    return folder


@asynccontextmanager
async def controller_process(
    site: Site, authority: Authority, agent: str, source: Path | None, log: Path
) -> AsyncIterator[None]:
    """Run `haptic-trio serve` over *site* for the agent at *agent*: of this checkout, or the package below *source*."""
    files = authority.issue("controller")
    command = [
        *(sys.executable, "-P", "-m", "haptic_trio", "serve", "--manifests", str(site.manifests)),
        *("--state-dir", str(site.state), "--listen", "127.0.0.1:0", "--agent", f"edge-1={agent}"),
        *("--agent-ca", str(files.authorities), "--agent-cert", str(files.certificate), "--agent-key", str(files.key)),
    ]
    environment = {**os.environ, **({"PYTHONPATH": str(source)} if source else {})}
    with log.open("wb") as output:
        run = partial(trio.run_process, command, stdout=output, stderr=output, env=environment, check=False)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            try:
                yield
            finally:
                # Trio ends the process with the first signal, and waits for it.
                nursery.cancel_scope.cancel()


async def serves(site: Site, body: str, path: str = "/") -> None:
    """Return once a request for *path* is answered with *body*."""
    while True:
        try:
            if await site.get("web.localhost", path) == (200, body):
                return
        except (OSError, trio.BrokenResourceError, IndexError):
            # Not listening, or another process is about to.
            pass
        await trio.sleep(0.02)


@pytest.mark.parametrize("part", ["agent", "controller"])
async def test_former_version_of_one_side_works_with_this_version_of_the_other(
    part: str, site: Site, haproxy_binary: Path, instance_root: Path, former: Path
) -> None:
    authority = Authority(instance_root / "tls")
    log = instance_root / "controller.log"
    # Nothing but the agent's events may lead to a deployment here.
    # The former version has no pacing of reloads, and refuses its setting.
    config = {"dataplane": {"kind": "agent", "driftPreventionInterval": "1h", "namespaceReloadInterval": None}}
    site.write_config(**config)
    agents, controllers = (former, None) if part == "agent" else (None, former)
    with trio.fail_after(LIMIT):
        async with (
            agent_process(instance_root, haproxy_binary, authority, free_port(), source=agents) as agent,
            backend("a") as first,
            backend("b") as second,
            remote_agent(agent.url, authority.issue("observer")) as remote,
        ):
            site.write_service("web", first)
            site.write_ingress("web", "web.localhost", "web")
            async with controller_process(site, authority, agent.url, controllers, log):
                await serves(site, "a")
                before = await remote.describe()

                # A patch: a server of another address.
                site.write_service("web", second)
                await serves(site, "b")
                patched = await remote.describe()
                assert (patched.reloads, patched.pid) == (before.reloads, before.pid)

                # An activation: a rule of a frontend needs a reload.
                site.write_config(**config, templateSnippets={"frontend-rules-mark": {"template": RULE}})
                await serves(site, "c", "/c")
                activated = await remote.describe()
                assert activated.reloads > patched.reloads

                # An event: the agent starts a killed HAProxy again, and the controller deploys to it.
                os.kill(activated.pid, signal.SIGKILL)

                async def is_another() -> bool:
                    return (await remote.describe()).pid not in {0, activated.pid}

                await until(is_another)
                await serves(site, "b")

    for text in (log.read_text(), agent.output):
        assert "Traceback" not in text
        assert "not understood" not in text
