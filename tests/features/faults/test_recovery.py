"""The controller as a process: it is killed, it is asked to end, and it comes back. HAProxy serves on."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import trio

from haptic_trio.messages import InstanceDeployed
from tests.features.harness import Site, Traffic, controller
from tests.features.harness import ingress as make_ingress
from tests.support.processes.haproxy import backend, live_haproxies, paths_named, wait_for_body
from tests.support.processes.ports import free_port

pytestmark = pytest.mark.haproxy


class ServeProcess:
    """`haptic-trio serve` in a process of its own."""

    def __init__(self, process: trio.Process, port: int, log: Path) -> None:
        self.process = process
        self.log = log
        self._url = f"http://127.0.0.1:{port}"

    async def wait_ready(self) -> None:
        """Return once `/readyz` says so."""
        with trio.fail_after(60):
            async with httpx.AsyncClient(base_url=self._url, trust_env=False) as client:
                while True:
                    if await self._is_ready(client):
                        return
                    assert self.process.returncode is None, self.log.read_text()
                    await trio.sleep(0.01)

    async def wait_logged(self, text: str) -> None:
        """Return once a line of the log holds *text*."""
        with trio.fail_after(60):
            while True:
                if text in self.log.read_text():
                    return
                await trio.sleep(0.002)

    async def _is_ready(self, client: httpx.AsyncClient) -> bool:
        try:
            return (await client.get("/readyz")).status_code == 200
        except httpx.TransportError:
            return False

    async def end(self, number: signal.Signals, *, within: float) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        with trio.fail_after(within):
            return await self.process.wait()


@asynccontextmanager
async def serve_process(site: Site, binary: Path, *, on_exit: str = "leave") -> AsyncIterator[ServeProcess]:
    """Run `serve` over *site*; killed at the end if the test has not ended it."""
    port = free_port()
    log = site.state.parent / "controller.log"
    command = [
        sys.executable, "-m", "haptic_trio", "serve",
        "--manifests", str(site.manifests), "--state-dir", str(site.state), "--haproxy", str(binary),
        "--listen", f"127.0.0.1:{port}", "--on-exit", on_exit, "--log-format", "json",
    ]  # fmt: skip
    with log.open("ab") as out:
        process = await trio.lowlevel.open_process(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=Path.cwd()
        )
    try:
        yield ServeProcess(process, port, log)
    finally:
        if process.returncode is None:
            process.kill()
        with trio.move_on_after(5, shield=True):
            await process.wait()


def haproxies(site: Site) -> list[int]:
    """Return the HAProxy processes of *site* that live now, master and worker."""
    return sorted(live_haproxies(site.state / "instances", within=0))


def write_web(site: Site, port: int) -> None:
    site.write_service("web", port)
    site.write_ingress("web", "web.localhost", "web")


async def test_haproxy_serves_on_when_the_controller_is_killed_and_the_next_one_catches_up(
    site: Site, haproxy_binary: Path
) -> None:
    traffic = Traffic()
    async with backend("one") as one, backend("two") as two:
        write_web(site, one)
        async with serve_process(site, haproxy_binary) as killed:
            await killed.wait_ready()
            before = haproxies(site)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(traffic.run, site, "web.localhost")
                await traffic.wait_for(20)
                assert await killed.end(signal.SIGKILL, within=5) == -signal.SIGKILL
                await traffic.wait_for(50)
                nursery.cancel_scope.cancel()
        # The controller does not notice it yet.
        site.write_service("web", two)
        assert await site.get("web.localhost") == (200, "one")

        async with controller(site, haproxy_binary) as running:
            await running.serves(site, "web.localhost", "two")
            [info] = await running.describe()
            [deployed, *_more] = running.events.all(InstanceDeployed)
            after = haproxies(site)

    assert traffic.failures == []
    assert info.pid in before
    assert after == before
    assert not deployed.result.reloaded
    assert haproxies(site) == []


async def test_controller_that_is_killed_again_and_again_never_leaves_a_second_haproxy(
    site: Site, haproxy_binary: Path
) -> None:
    async with backend("one") as one, backend("two") as two:
        masters = set()
        for body, port in (("one", one), ("two", two), ("one", one)):
            write_web(site, port)
            async with serve_process(site, haproxy_binary) as serving:
                await serving.wait_ready()
                await wait_for_body(site.port, body, host="web.localhost")
                await serving.end(signal.SIGKILL, within=5)
            masters.add(tuple(haproxies(site)))
        assert len(masters) == 1
        assert len(next(iter(masters))) == 2

        async with controller(site, haproxy_binary) as running:
            await running.settled()


@pytest.mark.parametrize(
    "line",
    [
        "health and metrics",
        "resources synchronized",
        "endpoints discovered",
        "haproxy started",
        "created an instance",
        '"event": "serving"',
    ],
)
async def test_controller_that_dies_while_it_starts_leaves_what_the_next_one_can_use(
    site: Site, haproxy_binary: Path, line: str
) -> None:
    async with backend("one") as one:
        write_web(site, one)
        async with serve_process(site, haproxy_binary) as serving:
            await serving.wait_logged(line)
            await serving.end(signal.SIGKILL, within=5)
        assert len(haproxies(site)) <= 2

        async with controller(site, haproxy_binary) as running:
            await running.serves(site, "web.localhost", "one")
            assert len(haproxies(site)) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_ends_the_controller_cleanly_and_leaves_haproxy_serving(
    site: Site, haproxy_binary: Path, number: signal.Signals
) -> None:
    async with backend("one") as one:
        write_web(site, one)
        async with serve_process(site, haproxy_binary) as serving:
            await serving.wait_ready()
            before = haproxies(site)

            code = await serving.end(number, within=30)

            assert code == 0, serving.log.read_text()
        assert await site.get("web.localhost") == (200, "one")
        assert haproxies(site) == before
        assert "Traceback" not in serving.log.read_text()
        assert "signal received" in serving.log.read_text()

        async with controller(site, haproxy_binary) as running:
            await running.settled()
            assert haproxies(site) == before


async def test_controller_that_is_to_stop_haproxy_takes_it_along(site: Site, haproxy_binary: Path) -> None:
    async with backend("one") as one:
        write_web(site, one)
        async with serve_process(site, haproxy_binary, on_exit="stop") as serving:
            await serving.wait_ready()

            assert await serving.end(signal.SIGTERM, within=30) == 0

    assert haproxies(site) == []
    assert paths_named(site.state / "scratch", "*") == []


async def test_the_owner_of_a_host_is_the_same_after_a_restart(site: Site, haproxy_binary: Path) -> None:
    async with backend("one") as one, backend("two") as two:
        site.write_service("one", one)
        site.write_service("two", two)
        site.write_ingress("b", "web.localhost", "two")
        async with controller(site, haproxy_binary, on_exit="leave") as running:
            await running.serves(site, "web.localhost", "two")
            # Later, and with a name that comes first.
            site.write_ingress("a", "web.localhost", "one")
            await running.serves(site, "web.localhost", "one")
            (before,) = await running.instances(1)
        for name, modified in (("a", 2_000_000_000), ("b", 1_000_000_000)):
            os.utime(site.manifests / f"ingress-{name}.yaml", (modified, modified))
        async with controller(site, haproxy_binary) as running:
            await running.wait(InstanceDeployed)
            (after,) = await running.instances(1)
            assert (after.generation, after.reloads) == (before.generation, before.reloads)
            assert await site.get("web.localhost") == (200, "one")
            # A creation time gives precedence.
            dated = make_ingress("b", "web.localhost", "two")
            dated["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
            site.write("ingress-b", dated)
            await running.serves(site, "web.localhost", "two")
