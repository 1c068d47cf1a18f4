"""Ways to the console's page and out of it: `debug --open`, the page that asks for the token, and copies."""

import json
import os
import sys
from pathlib import Path

import pytest
import trio

from haptic_trio.cli.console_client import find_console
from tests.features.console.test_page import looking
from tests.features.harness import Site, serving_web
from tests.support.processes.chromium import Page, open_page

pytestmark = pytest.mark.haproxy

CLIPBOARD = """Object.defineProperty(navigator, 'clipboard',
{ value: { writeText: async (text) => { window.copied = text; } }, configurable: true })"""
NO_CLIPBOARD = """Object.defineProperty(navigator, 'clipboard', { value: undefined, configurable: true });
document.addEventListener('copy', () => { window.copied = document.activeElement.value; })"""


async def debug_open(site: Site, *arguments: str, **environment: str) -> str:
    """Return what `haptic-trio debug --open` prints."""
    command = [sys.executable, "-m", "haptic_trio", "debug", "--open", "--state-dir", str(site.state), *arguments]
    known = {name: value for name, value in os.environ.items() if name not in {"BROWSER", "DISPLAY", "WAYLAND_DISPLAY"}}
    done = await trio.run_process(command, capture_stdout=True, env=known | environment)
    return done.stdout.decode()


async def test_debug_opens_the_page_with_the_token(
    site: Site, haproxy_binary: Path, chromium: Path, tmp_path: Path
) -> None:
    browser, arguments = tmp_path / "browser", tmp_path / "arguments"
    browser.write_text(f'#!/bin/sh\necho "$@" >{arguments}\n')
    browser.chmod(0o755)
    async with serving_web(site, haproxy_binary), open_page(chromium, tmp_path / "profile") as page:
        address, token = find_console(site.state, None, None)

        printed = await debug_open(site, BROWSER=f"{browser} %s")

        assert printed == f"The browser shows {address}/console\n"
        # Others on the machine see the arguments of a process.
        assert token not in arguments.read_text()
        await page.open(arguments.read_text().strip())
        await page.shows("headline", "Ready, leader, 1 instance")
        assert await page.evaluate("location.href") == f"{address}/console"

        # Without a browser, the address can be given to one elsewhere.
        assert await debug_open(site) == f"{address}/console#token={token}\n"
        assert json.loads(await debug_open(site, "--output", "json"))["opened"] is False


async def copied(page: Page, text: str, within: str) -> str:
    """Press the button with that *text*, and return what it copied."""
    await page.evaluate("window.copied = null")
    found = f"[...document.querySelectorAll('#{within} button')].find((one) => one.textContent === {text!r})"
    await page.until(f"Boolean({found})")
    await page.evaluate(f"{found}.focus()")
    await page.press("Enter")
    await page.until("window.copied !== null")
    return str(await page.evaluate("window.copied"))


@pytest.mark.parametrize("clipboard", [CLIPBOARD, NO_CLIPBOARD], ids=["clipboard", "selection"])
async def test_page_copies_hosts_places_lines_and_addresses(
    site: Site, haproxy_binary: Path, chromium: Path, tmp_path: Path, clipboard: str
) -> None:
    async with looking(site, haproxy_binary, chromium, tmp_path / "profile") as (_running, page):
        await page.evaluate(clipboard)
        address, token = find_console(site.state, None, None)
        await page.evaluate("location.hash = '#routes/web.localhost/'")
        await page.shows("card", "Copy host")
        assert await copied(page, "Copy host", "card") == "web.localhost"
        await page.shows("copied", "Copied: web.localhost")
        assert await page.focused() == "Copy host"
        assert (await copied(page, "Copy place", "card")).startswith("maps/path-prefix.map:")
        assert await copied(page, "Copy link", "card") == f"{address}/console#routes/web.localhost/"
        await page.evaluate("document.getElementById('route-search').value = 'web & more'")
        url = await copied(page, "Copy API URL", "list")
        assert url == f"{address}/api/v1/routes?search=web+%26+more"
        assert token not in url

        await page.evaluate("location.hash = '#configuration/backend default_web_80'")
        await page.shows("copies", "Copy name")
        assert await copied(page, "Copy name", "copies") == "backend default_web_80"
        await page.evaluate("location.hash = '#configuration/haproxy.cfg:1'")
        await page.shows("copies", "Copy place")
        assert await copied(page, "Copy place", "copies") == "haproxy.cfg:1"
        lines = (await copied(page, "Copy lines", "view-configuration")).split("\n")
        assert len(lines) > 50
        assert lines[0] == await copied(page, "Copy line", "copies")


async def test_page_says_where_the_token_is(site: Site, haproxy_binary: Path, chromium: Path, tmp_path: Path) -> None:
    async with serving_web(site, haproxy_binary), open_page(chromium, tmp_path / "profile") as page:
        address, _token = find_console(site.state, None, None)
        await page.open(f"{address}/console")
        await page.until("document.getElementById('login')?.hidden === false")
        shown = await page.text("login")
        for way in ("haptic-trio debug --open", "token_file", "console.token", "kubectl", "get secret", "Serving"):
            assert way in shown
        await page.evaluate(CLIPBOARD)
        assert (await copied(page, "Copy command", "login")).startswith("haptic-trio debug --open")
        await page.call("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=False)
        assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
