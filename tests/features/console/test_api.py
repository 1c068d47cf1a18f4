"""The resources of the console for scripts, over a running controller."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from haptic_trio.cli.console_client import find_console
from haptic_trio.messages import Quarantined
from tests.features.console.test_console import answer_of, deployed, viewing
from tests.features.harness import Running, Site, ingress, service, serving_web

pytestmark = pytest.mark.haproxy

RESOURCES = ("routes", "problems", "instances")


@asynccontextmanager
async def asking(site: Site, haproxy: Path) -> AsyncIterator[tuple[Running, httpx.AsyncClient]]:
    """Run the controller, and a client that has the token."""
    async with serving_web(site, haproxy) as running:
        address, token = find_console(site.state, None, None)
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=f"{address}/api/v1", headers=headers, trust_env=False) as client:
            with trio.fail_after(60):
                await deployed(running)
                yield running, client


async def read(client: httpx.AsyncClient, resource: str, **parameters: Any) -> Any:
    """Return a resource once it can be had."""
    while True:
        answer = await client.get(f"/{resource}", params=parameters)
        if answer.status_code != 503:
            break
        await trio.sleep(0.01)
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    return answer.json()


async def test_routes_problems_and_instances_are_resources(site: Site, haproxy_binary: Path) -> None:
    site.write("lost", *service("empty"), ingress("lost", "lost.localhost", "empty"))
    async with asking(site, haproxy_binary) as (running, client):
        page = await read(client, "routes")
        routes = {route["host"]: route for route in page["routes"]}
        assert page["counts"] == {"serving": 1, "down": 1}
        web = routes["web.localhost"]
        assert (web["path"], web["kind"], web["namespace"], web["name"]) == ("/", "Ingress", "default", "web")
        assert (web["backend"], web["servers"], web["state"]) == ("default_web_80", 1, "serving")
        assert routes["lost.localhost"]["reason"].startswith("NoEndpoints: ")

        page = await read(client, "routes", search="localhost", state="down", limit=1)
        assert ([route["name"] for route in page["routes"]], page["total"]) == (["lost"], 1)

        site.write("bad", ingress("bad", "bad\nhost", "web"))
        await running.wait(Quarantined)
        problems = await read(client, "problems")
        assert problems["objects"]["quarantined"] == 1
        while True:
            page = await read(client, "routes", state="quarantined")
            if page["routes"]:
                break
            await trio.sleep(0.01)
        assert page["routes"][0]["name"] == "bad"

        (instance,) = (await read(client, "instances"))["instances"]
        assert instance["name"] == "local-1"

        for wrong in ({"state": "odd"}, {"limit": "-1"}, {"offset": "x"}, {"search": "x" * 2000}):
            assert (await client.get("/routes", params=wrong)).status_code == 400, wrong


async def test_resources_are_for_those_with_the_token_and_a_known_host(site: Site, haproxy_binary: Path) -> None:
    async with asking(site, haproxy_binary) as (_running, client):
        url, token = find_console(site.state, None, None)
        bearer = f"Authorization: Bearer {token}"
        for resource in RESOURCES:
            path = f"/api/v1/{resource}"
            assert (await answer_of(url, path, "localhost", bearer)).startswith("HTTP/1.1 200")
            for line in ("Authorization: Bearer wrong", f"Authorization: Basic {token}", "X-Nothing: 1"):
                assert (await answer_of(url, path, "localhost", line)).startswith("HTTP/1.1 401"), line
            # A token in the address would be in logs.
            assert (await answer_of(url, f"{path}?token={token}", "localhost")).startswith("HTTP/1.1 401")
            assert (await answer_of(url, path, "evil.example", bearer)).startswith("HTTP/1.1 421")
            rejected = await answer_of(url, path, "localhost", bearer, "Origin: http://evil.example")
            assert rejected.startswith("HTTP/1.1 403")
            assert (await client.post(f"/{resource}")).status_code == 405


async def test_viewers_follow_a_page_of_routes(site: Site, haproxy_binary: Path) -> None:
    async with asking(site, haproxy_binary), viewing(site) as client:
        await client.follow(["routes"], interval=0.2)
        hosts: list[str] = []
        is_written = False
        while "more.localhost" not in hosts:
            message = await client.receive()
            if message["kind"] == "routes":
                hosts = [route["host"] for route in message["value"]["routes"]]
                if not is_written:
                    site.write("more", *service("more", 1), ingress("more", "more.localhost", "more"))
                    is_written = True
        assert hosts == ["more.localhost", "web.localhost"]
