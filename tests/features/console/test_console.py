"""The console over a running controller: what its stream reports, whom it lets in, and that it keeps secrets."""

import base64
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import trio

from haptic_trio.cli.console_client import (
    ConsoleClient,
    ConsoleRejectedError,
    NoConsoleError,
    find_console,
    open_console,
)
from haptic_trio.console.site import SCRIPTS
from haptic_trio.messages import InstanceDeployed, Quarantined, StageReached
from tests.features.harness import Running, Site, controller, ingress, service, serving_web
from tests.support.processes.haproxy import backend

pytestmark = pytest.mark.haproxy

PASSWORD = "planted-pass-word-1"
PLANTED = """\
{% each secret in resources.planted as "planted" if secret.metadata.name == "planted" %}
backend planted
    http-request set-header x-encoded {{ secret.data.password | word }}
    http-request set-header x-plain {{ (secret.data.password | b64decode) | word }}
{% endeach %}
"""
TOPICS = ("state", "routes", "tasks", "channels", "stores", "events", "config", "diff")


@asynccontextmanager
async def viewing(site: Site) -> AsyncIterator[ConsoleClient]:
    """Look at the controller of *site*, as `haptic-trio debug` finds it."""
    async with open_console(*find_console(site.state, None, None)) as client:
        yield client


async def deployed(running: Running) -> None:
    """Return once something is deployed and nothing is under way."""
    await running.wait(InstanceDeployed)
    await running.quiet()


async def asked(client: ConsoleClient, topic: str, **arguments: Any) -> Any:
    """Return an answer about the configuration, which may be in the making for a moment."""
    with trio.fail_after(60):
        while True:
            try:
                return await client.ask(topic, **arguments)
            except ConsoleRejectedError as exc:
                if "retry soon" not in str(exc):
                    raise
                await trio.sleep(0.01)


async def until(client: ConsoleClient, topic: str, is_wanted: Callable[[Any], bool]) -> Any:
    """Return the answer about *topic* once it is what is wanted."""
    with trio.fail_after(60):
        while True:
            answer = await asked(client, topic)
            if is_wanted(answer):
                return answer
            await trio.sleep(0.02)


def places(task: dict[str, Any]) -> list[str]:
    """Return where all tasks of a tree wait."""
    found = [task.get("place", "")]
    for nursery in task.get("nurseries", ()):
        for child in nursery["tasks"]:
            found += places(child)
    return found


async def test_viewer_gets_the_running_state(site: Site, haproxy_binary: Path) -> None:
    async with serving_web(site, haproxy_binary) as running, viewing(site) as client:
        await deployed(running)

        state = await client.ask("state")
        assert (state["iteration"]["number"], state["iteration"]["stage"], state["is_leader"]) == (1, 5, True)
        assert [one["name"] for one in state["stages"]][-1] == "reconcile"
        assert [one["name"] for one in state["instances"]] == ["local-1"]
        assert state["instances"][0]["generation"]
        assert {one["outcome"] for one in state["cycles"]} <= {"deployed", "unchanged", "superseded"}
        assert all(one["render"] > 0 for one in state["cycles"] if one["outcome"] == "deployed")

        tree = await client.ask("tasks")
        assert tree["shown"] == tree["total"] > 20
        assert any(place.startswith("commentator:") for place in places(tree["root"]))
        assert any(place.startswith("pipeline.debounce:") for place in places(tree["root"]))

        channels = {one["name"]: one for one in await client.ask("channels")}
        assert channels["changes"]["size"] == 100
        assert channels["changes"]["waiting_receivers"] == 1
        assert channels["validated"]["puts"] >= 1

        stores = {one["name"]: one["objects"] for one in await client.ask("stores")}
        assert (stores["ingresses"], stores["services"]) == (1, 1)


async def test_configuration_is_searched_explained_and_compared(site: Site, haproxy_binary: Path) -> None:
    async with serving_web(site, haproxy_binary) as running, viewing(site) as client:
        await deployed(running)

        page = await asked(client, "config", limit=10)
        assert len(page["lines"]) == 10
        assert page["total"] > 20
        assert "maps/path-prefix.map" in page["files"]
        found = await asked(client, "config", search="BACKEND default_web")
        assert [(one["text"].split()[1], one["made_by"]) for one in found["lines"]] == [
            ("default_web_80", "Service default/web")
        ]
        line = found["lines"][0]["line"]
        answer = await asked(client, "explain", target=f"haproxy.cfg:{line}")
        assert answer["made_by"]["object"]["name"] == "web"
        assert (await asked(client, "diff"))["before"] == 0

        site.write("more", *service("more", 1), ingress("more", "more.localhost", "more"))
        await running.wait(InstanceDeployed, since=len(running.events.all(InstanceDeployed)))
        difference = await until(client, "diff", lambda answer: bool(answer["added"]))
        assert difference["removed"] == 0
        assert any("backend default_more_80" in one["text"] for one in difference["lines"])

        with pytest.raises(ConsoleRejectedError):
            await client.ask("explain", target="haproxy.cfg:99999")
        with pytest.raises(ConsoleRejectedError, match="unknown topic"):
            await client.ask("reload")


async def test_followers_see_a_reinitialisation_and_each_event_once(site: Site, haproxy_binary: Path) -> None:
    async with serving_web(site, haproxy_binary) as running, viewing(site) as client:
        await deployed(running)
        numbers: list[int] = []
        kinds: list[str] = []
        is_up = False
        site.write_config(logging={"level": "debug"})

        with trio.fail_after(60):
            await client.follow(["events", "state"], interval=0.2)
            while not is_up:
                message = await client.receive()
                if message["kind"] == "events":
                    assert message["missed"] == 0
                    numbers += [one["number"] for one in message["value"]]
                    kinds += [one["kind"] for one in message["value"]]
                elif message["kind"] == "state":
                    iteration = message["value"]["iteration"]
                    is_up = iteration is not None and (iteration["number"], iteration["stage"]) == (2, 5)

        assert numbers == list(range(1, len(numbers) + 1))
        assert kinds.index("ConfigChanged") < kinds.index("IterationEnded")


async def test_no_secret_is_ever_sent(site: Site, haproxy_binary: Path) -> None:
    encoded = base64.b64encode(PASSWORD.encode()).decode()
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "planted", "namespace": "default"},
        "data": {"password": encoded},
    }
    credentials = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "haptic-trio", "namespace": "default"},
        "stringData": {"dataplane_username": "admin", "dataplane_password": PASSWORD + "-2"},
    }
    site.write_config(
        watchedResources={"planted": {"apiVersion": "v1", "resources": "secrets", "indexBy": ["metadata.name"]}},
        templateSnippets={"backends-planted": {"template": PLANTED}},
    )
    site.write("planted", secret, credentials)
    async with backend("one") as port, controller(site, haproxy_binary) as running:
        site.write_service("web", port)
        site.write_ingress("web", "web.localhost", "web")
        await running.wait(StageReached, lambda event: event.stage == 5)
        await deployed(running)
        async with viewing(site) as client:
            reported = {topic: await asked(client, topic) for topic in TOPICS}
            reported["found"] = await asked(client, "config", search=PASSWORD)
            reported["explained"] = await asked(client, "explain", target="Secret default/planted")
            for name in reported["config"]["files"]:
                reported[name] = await asked(client, "config", path=name)

        text = json.dumps(reported)
        assert any(one["is_secret"] for one in reported["config"]["lines"] if "is_secret" in one)
        assert PASSWORD not in text
        assert encoded not in text


async def test_stranger_is_not_let_in(site: Site, haproxy_binary: Path) -> None:
    async with serving_web(site, haproxy_binary):
        address, token = find_console(site.state, None, None)
        assert (site.state / "console.token").stat().st_mode & 0o777 == 0o600

        with pytest.RaisesGroup(pytest.RaisesExc(NoConsoleError, match="not allowed; check the token")):
            async with open_console(address, "wrong"):
                pass
        # A page of another site, in the browser of a user who has the token.
        with pytest.RaisesGroup(pytest.RaisesExc(NoConsoleError, match="not allowed")):
            async with open_console(address, token, headers=[(b"Origin", b"http://evil.example")]):
                pass


async def test_token_of_a_given_file_is_the_only_one(site: Site, haproxy_binary: Path, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.write_text("token-of-a-secret\n")
    async with serving_web(site, haproxy_binary, console_token_file=given):
        async with open_console(*find_console(site.state, None, given)):
            pass
        assert not (site.state / "console.token").exists()


async def answer_of(url: str, path: str, host: str, *lines: str) -> str:
    """Return how the answer begins to a request for *path* by the name *host*."""
    parts = urlsplit(url)
    async with await trio.open_tcp_stream(parts.hostname or "", parts.port or 0) as stream:
        head = [f"GET {path} HTTP/1.1", f"Host: {host}", *lines, "", ""]
        await stream.send_all("\r\n".join(head).encode())
        with trio.fail_after(10):
            return (await stream.receive_some()).decode()


async def test_console_answers_to_its_own_names_alone(site: Site, haproxy_binary: Path) -> None:
    upgrade = (
        "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    )  # fmt: skip
    async with serving_web(site, haproxy_binary, console_hosts=("console.example.com",)):
        url, _ = find_console(site.state, None, None)
        port = urlsplit(url).port
        paths = ("/console", *(f"/console/{name}" for name in SCRIPTS), "/console/console.css")
        for host in (f"localhost:{port}", "localhost:18080", f"127.0.0.1:{port}", "console.example.com"):
            for path in paths:
                assert (await answer_of(url, path, host)).startswith("HTTP/1.1 200"), (host, path)
            assert (await answer_of(url, "/console/stream", host, *upgrade)).startswith("HTTP/1.1 101"), host
        # Rebound: the name of a page elsewhere leads here, and is the origin as well.
        for path in (*paths, "/console/", "/console/nothing"):
            answer = await answer_of(url, path, f"evil.example:{port}")
            assert answer.startswith("HTTP/1.1 421"), path
        origin = f"Origin: http://evil.example:{port}"
        rejected = await answer_of(url, "/console/stream", f"evil.example:{port}", origin, *upgrade)
        assert rejected.startswith("HTTP/1.1 403")
        assert (await answer_of(url, "/console/", "localhost")).startswith("HTTP/1.1 404")
        # Nothing redirects to a host that a request names.
        for path in ("/console.css/", "/healthz/"):
            assert (await answer_of(url, path, f"evil.example:{port}")).startswith("HTTP/1.1 404"), path
        # Probes and scrapers may use any host name.
        assert (await answer_of(url, "/healthz", "haptic.monitoring.svc")).startswith("HTTP/1.1 200")


async def test_error_has_its_place(site: Site, haproxy_binary: Path) -> None:
    async with serving_web(site, haproxy_binary) as running, viewing(site) as client:
        site.write("bad", ingress("bad", "bad\nhost", "web"))
        await running.wait(Quarantined)
        events = await until(client, "events", lambda answer: any(one["kind"] == "Quarantined" for one in answer))
        found = [one for one in events if one["kind"] == "Quarantined"]

        assert found[0]["fields"]["object"] == "Ingress default/bad"
        assert ":" in found[0]["fields"]["problem"]
        state = await client.ask("state")
        assert (state["quarantined"], state["objects"]["quarantined"]) == (1, 1)
        (listed,) = [one for one in state["objects"]["listed"] if one["reason"] == "Quarantined"]
        assert (listed["object"], listed["serving"]) == ("Ingress default/bad", "nothing")

        async with httpx.AsyncClient(trust_env=False) as probe:
            url = f"{find_console(site.state, None, None)[0]}/readyz"
            assert "problems" not in (await probe.get(url)).json()
            assert (await probe.get(url, params={"verbose": ""})).json()["problems"] == state["objects"]
        assert "Ingress default/bad: Quarantined: " in await run_debug(site, "problems")


async def run_debug(site: Site, *arguments: str) -> str:
    """Return what `haptic-trio debug` prints, in a terminal of 80 columns."""
    command = [sys.executable, "-m", "haptic_trio", "debug", *arguments, "--state-dir", str(site.state)]
    with trio.fail_after(60):
        done = await trio.run_process(command, capture_stdout=True, env={**os.environ, "COLUMNS": "80"})
    return bytes(done.stdout).decode()


async def test_debug_answers_in_a_terminal_and_for_machines(site: Site, haproxy_binary: Path) -> None:
    async with serving_web(site, haproxy_binary) as running:
        await deployed(running)

        assert "pipeline.debounce" in await run_debug(site, "tasks")
        assert "reconciliation completed" in await run_debug(site, "events")
        stores = json.loads(await run_debug(site, "stores", "--output", "json"))
        assert {one["name"]: one["objects"] for one in stores}["ingresses"] == 1
        search = ("--search", "backend default_web", "--output", "json")
        (found,) = json.loads(await run_debug(site, "config", "haproxy.cfg", *search))["lines"]
        assert found["made_by"] == "Service default/web"
        assert "maps/path-prefix.map:" in await run_debug(site, "config", "--search", "DEFAULT_web_80")
