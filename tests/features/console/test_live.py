"""Live figures of HAProxy in the console, over a running controller."""

from pathlib import Path
from typing import Any

import pytest
import trio

from haptic_trio.cli.console_client import ConsoleClient
from haptic_trio.console.live import Live
from haptic_trio.dataplane.local.process import read_record
from haptic_trio.dataplane.local.runtime import RuntimeClient
from haptic_trio.dataplane.sync import sync_endpoint
from tests.features.console.test_console import deployed, viewing
from tests.features.console.test_page import looking
from tests.features.harness import Site, serving_web
from tests.support.components.agents import serving_haproxy
from tests.support.processes.haproxy import backend, fetch, forwarding
from tests.support.processes.ports import free_port

pytestmark = pytest.mark.haproxy


async def answered(client: ConsoleClient, count: int) -> dict[str, Any]:
    """Return the figures of the backend once it has answered *count* requests."""
    with trio.fail_after(60):
        while True:
            view = await client.ask("live", backends=["default_web_80", "no-such-backend", "x;help"])
            (backend,) = view["backends"]
            if backend["answers"] >= count:
                return {**backend, "processes": view["processes"]}
            await trio.sleep(0.05)


async def test_figures_of_backends_and_processes_are_live(site: Site, haproxy_binary: Path) -> None:
    async with serving_web(site, haproxy_binary) as running, viewing(site) as client:
        await deployed(running)
        for _ in range(3):
            assert (await site.get("web.localhost"))[0] == 200

        figures = await answered(client, 3)

        assert (figures["name"], figures["up"], figures["answers_5xx"]) == ("default_web_80", 1, 0)
        assert [(one["name"], one["is_up"]) for one in figures["servers"]] == [("s1", True)]
        (process,) = figures["processes"]
        assert process["instance"] == "local-1"
        assert process["version"].startswith(("2.", "3."))


async def test_figures_come_from_agents_under_the_names_of_the_controller(
    instance_root: Path, haproxy_binary: Path
) -> None:
    port = free_port()
    async with (
        serving_haproxy(instance_root, haproxy_binary) as served,
        served.remote() as remote,
        backend("a") as server,
    ):
        await sync_endpoint(remote, forwarding(port, server))
        assert await fetch(port) == (200, "a")

        view = await Live(lambda: [remote]).read(["app"])

        assert [one.instance for one in view.processes] == ["edge-1"]
        (app,) = view.backends
        assert (app.up, app.answers, [one.instance for one in app.servers]) == (1, 1, ["edge-1"])


async def test_page_shows_a_server_that_is_down_as_a_route_that_is_down(
    site: Site, haproxy_binary: Path, chromium: Path, tmp_path: Path
) -> None:
    async with looking(site, haproxy_binary, chromium, tmp_path / "profile") as (_running, page):
        await page.shows("routes", lambda text: "web.localhost" in text and "serving" in text)
        await page.evaluate("location.hash = '#routes/web.localhost/'")
        await page.shows("card", "1 server up")

        # The check of drift repairs it after a while: until then no server is up.
        await send_command(site, "set server default_web_80/s1 state maint")
        await page.shows("routes", "no server is up")
        await page.shows("card", "MAINT")
        await send_command(site, "set server default_web_80/s1 state ready")
        await page.shows("routes", "serving")

        await page.click("tab-instances")
        await page.shows("instances", "connection")


async def send_command(site: Site, command: str) -> None:
    """Run *command* on the runtime socket of the instance."""
    record = read_record(site.state / "instances/local-1/process.json")
    assert record is not None
    runtime = RuntimeClient(Path(record.sockets) / "admin.sock", endpoint="local-1")
    assert not (await runtime.ask(f"{command}\n")).strip()
