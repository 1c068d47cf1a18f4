"""The console's page in a real browser, over a running controller."""

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio

from haptic_trio.cli.console_client import find_console
from haptic_trio.console.site import SCRIPTS
from haptic_trio.messages import InstanceDeployed
from tests.features.harness import Running, Site, ingress, service, serving_web
from tests.support.processes.chromium import Page, open_page

pytestmark = pytest.mark.haproxy

SPOKEN = """
window.spoken = 0;
new MutationObserver(() => { window.spoken += 1 })
  .observe(document.getElementById("headline"), { childList: true, characterData: true, subtree: true })
"""

VIEWS = (
    ("routes", "view-routes"),
    ("instances", "instances"),
    ("problems", "view-problems"),
    ("configuration", "lines"),
    ("activity", "events"),
    ("internals", "tasks"),
)
"""Each view, and an element of it with text."""
CUT = """[...document.querySelectorAll('.scroll, main table')].filter((one) => one.offsetParent !== null &&
(one.scrollWidth > one.clientWidth + 1 || one.getBoundingClientRect().right > innerWidth)).map((one) =>
one.id || one.firstElementChild.id)"""
"""Visible tables of which the right is cut."""
UNNAMED = """[...document.querySelectorAll('input, select, button, table, [role=region], ol, [tabindex="0"]')]
.filter((one) => !(one.labels?.length || one.getAttribute('aria-label') || one.getAttribute('aria-labelledby') ||
(one.tagName === 'BUTTON' && one.textContent.trim()))).map((one) => one.outerHTML.slice(0, 100)).concat(
[...document.querySelectorAll('main table')].filter((one) => [...one.querySelectorAll('tr, td, th')].some((cell) =>
!cell.getAttribute('role'))).map((one) => one.id))"""
"""Controls without a name, and tables with cells without a role."""


@asynccontextmanager
async def looking(site: Site, haproxy: Path, browser: Path, profile: Path) -> AsyncIterator[tuple[Running, Page]]:
    """Run the controller, and a browser that shows its console."""
    async with serving_web(site, haproxy) as running, open_page(browser, profile) as page:
        address, token = find_console(site.state, None, None)
        await page.open(f"{address}/console#token={token}")
        await page.shows("headline", "Ready, leader, 1 instance")
        yield running, page
        assert page.errors == []


async def test_page_shows_a_reconciliation_and_what_made_a_line(
    site: Site, haproxy_binary: Path, chromium: Path, tmp_path: Path
) -> None:
    async with looking(site, haproxy_binary, chromium, tmp_path / "profile") as (_running, page):
        await page.click("tab-activity")
        await page.evaluate("document.getElementById('idle').click()")
        await page.shows("cycles", "index synchronized")
        assert "token" not in str(await page.evaluate("location.href"))

        await page.shows("diff-summary", "has not changed since the start")
        site.write("more", *service("more", 1), ingress("more", "more.localhost", "more"))
        await page.evaluate(SPOKEN)
        await page.shows("cycles", "resources changed")
        # The cycle that the test caused has all its parts: seen, debounced, rendered, parsed, deployed.
        cycle = "[...document.querySelectorAll('#cycles tbody tr')].find((row) => row.textContent.includes('changed'))"
        await page.until(f"{cycle}.textContent.includes('deployed')")
        for part in ("render", "parse", "deploy"):
            assert await page.evaluate(f"{cycle}.querySelector('.bar .{part}').offsetWidth > 0"), part

        assert "Ingress default/more" in await page.text("cycles")
        # Each change is shown, and not read aloud.
        assert await page.evaluate("window.spoken") == 0

        await page.click("tab-configuration")
        await page.shows("diff", "backend default_more_80")
        # Of a whole page of lines, what is chosen is explained where it can be seen.
        await page.until("document.querySelectorAll('#lines button').length > 20")
        await page.evaluate("document.querySelector('#lines button').click()")
        await page.until("document.getElementById('explanation').textContent !== ''")
        await page.until("document.getElementById('explanation').getBoundingClientRect().bottom < innerHeight + 1")
        await page.evaluate("document.getElementById('search').value = 'backend default_more'")
        await page.evaluate("document.getElementById('find').requestSubmit()")
        await page.shows("range", "1 to 1 of 1")
        await page.evaluate("document.querySelector('#lines button').click()")
        await page.shows("explanation", "name: more")
        if folder := os.environ.get("HAPTIC_SCREENSHOTS"):
            await page.evaluate("location.hash = '#configuration/haproxy.cfg:30'")
            await page.until("document.querySelector('#lines [aria-current]')?.textContent.startsWith('30')")
            await page.shows("explanation", "line: 30")
            await page.evaluate("scrollTo(0, 0)")
            await picture(page, site, Path(folder) / "console-configuration.png")
            await page.click("tab-activity")
            await page.shows("cycles", "deployed")
            await picture(page, site, Path(folder) / "console-activity.png")


async def test_page_shows_tasks_closing_and_reopening_and_an_error_with_its_place(
    site: Site, haproxy_binary: Path, chromium: Path, tmp_path: Path
) -> None:
    async with looking(site, haproxy_binary, chromium, tmp_path / "profile") as (_running, page):
        await page.click("tab-internals")
        await page.shows("tasks", "pipeline.debounce")
        site.write_config(logging={"level": "debug"})
        await page.shows("iteration", "Iteration 2, stage reconcile, ready")
        await page.shows("tasks", "pipeline.debounce")
        if folder := os.environ.get("HAPTIC_SCREENSHOTS"):
            await picture(page, site, Path(folder) / "console-tasks.png")

        site.write("bad", ingress("bad", "bad\nhost", "web"))
        await page.shows("counters", "1 quarantined")
        await page.shows("tab-problems", "Problems (1)")
        await page.click("tab-problems")
        await page.shows("quarantined", "Ingress default/badQuarantined")
        if folder := os.environ.get("HAPTIC_SCREENSHOTS"):
            await picture(page, site, Path(folder) / "console-problems.png")
        await page.click("tab-activity")
        await page.shows("events", "object quarantined")
        shown = await page.shows("events", "Ingress default/bad")
        assert "iteration ended" in shown
        assert await page.evaluate("document.querySelector('#tab-activity').getAttribute('aria-selected')") == "true"

        # The level filter has the debug events on request.
        assert "reconciliation triggered" not in shown
        await choose(page, "level", "debug")
        assert "reconciliation triggered" in await page.text("events")
        await choose(page, "level", "warning")
        assert "iteration ended" not in await page.text("events")
        if folder := os.environ.get("HAPTIC_SCREENSHOTS"):
            await page.prefer("dark")
            await page.evaluate("document.getElementById('events').scrollIntoView()")
            await picture(page, site, Path(folder) / "console-events.png")


async def test_page_is_worked_by_keyboard_alone(
    site: Site, haproxy_binary: Path, chromium: Path, tmp_path: Path
) -> None:
    async with looking(site, haproxy_binary, chromium, tmp_path / "profile") as (_running, page):
        await page.press("Tab")
        assert await page.focused() == "Skip to content"
        await page.press("Tab")
        for key, view in (
            ("ArrowRight", "instances"),
            ("End", "internals"),
            ("ArrowRight", "routes"),
            ("ArrowLeft", "internals"),
            ("ArrowLeft", "activity"),
        ):
            await page.press(key)
            assert await page.focused() == await page.text(f"tab-{view}")
            assert await page.evaluate(f"document.getElementById('view-{view}').hidden") is False
        await page.press("ArrowLeft")
        await page.until("document.querySelectorAll('#lines button').length > 20")
        # The view itself, the file, the section, then the search.
        await page.press("Tab")
        assert await page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        for _ in range(3):
            await page.press("Tab")
        await page.type("backend default_web")
        await page.press("Enter")
        await page.shows("range", "1 to 1 of 1")
        await page.press("Tab")
        while "backend default_web" not in await page.focused():
            await page.press("Tab")
        await page.press("Enter")
        await page.shows("explanation", "name: web")

        # All lines are one stop of the Tab key.
        await page.evaluate("document.getElementById('search').value = ''")
        await page.evaluate("document.getElementById('find').requestSubmit()")
        await page.until("document.querySelectorAll('#lines button').length > 20")
        await page.evaluate("document.querySelector('#lines button').focus()")
        await page.press("ArrowDown")
        assert (await page.focused()).startswith("2")
        await page.press("End")
        assert await page.evaluate("document.activeElement === document.querySelector('#lines li:last-child button')")
        await page.press("Tab")
        assert await page.evaluate("document.activeElement.id") == "target"


async def test_page_shows_the_changes_of_generations_from_before_it_connected(
    site: Site, haproxy_binary: Path, chromium: Path, tmp_path: Path
) -> None:
    async with serving_web(site, haproxy_binary) as running:
        await running.quiet()
        for name in ("first", "second"):
            site.write(name, *service(name, 1), ingress(name, f"{name}.localhost", name))
            await running.wait(InstanceDeployed, partial(reloads_for, f"default_{name}"))
            await running.quiet()
        async with open_page(chromium, tmp_path / "profile") as page:
            address, token = find_console(site.state, None, None)
            await page.open(f"{address}/console#token={token}")
            await page.shows("headline", "Ready, leader, 1 instance")
            await page.click("tab-configuration")
            await page.shows("diff", "backend default_second_80")
            assert "default_first_80" not in await page.text("diff")
            numbers = await page.evaluate("[...document.getElementById('generation').options].map((one) => one.value)")
            assert numbers == ["0", "3", "2"]
            await choose(page, "generation", "2")
            await page.shows("diff", "backend default_first_80")
            await page.shows("diff", "# Service default/first")
            assert page.errors == []


def reloads_for(backend: str, event: InstanceDeployed) -> bool:
    """Whether the deployment reloaded HAProxy for a backend whose name begins like that."""
    return any(f"backend {backend}" in reason for reason in event.result.reasons)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_page_is_readable_in_light_and_dark(
    site: Site, haproxy_binary: Path, chromium: Path, tmp_path: Path, scheme: str
) -> None:
    async with looking(site, haproxy_binary, chromium, tmp_path / "profile") as (_running, page):
        await page.prefer(scheme)
        ground = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (luminance(ground) > 0.5) == (scheme == "light")

        for text in (*TEXT_COLOURS, *CODE_COLOURS):
            for behind in ("--ground", "--raised", "--current"):
                colours = [await page.evaluate(COLOUR % name) for name in (text, behind)]
                # WCAG 2, level AA, for text of usual size.
                assert contrast(*colours) >= 4.5, (scheme, text, behind)
        for part in ("--debounce", "--render", "--parse", "--check", "--deploy"):
            colours = [await page.evaluate(COLOUR % name) for name in ("--on-bar", part)]
            assert contrast(*colours) >= 4.5, (scheme, part)


async def test_page_fits_a_narrow_window(site: Site, haproxy_binary: Path, chromium: Path, tmp_path: Path) -> None:
    async with looking(site, haproxy_binary, chromium, tmp_path / "profile") as (_running, page):
        await page.call("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=False)
        for view, element in VIEWS:
            await page.click(f"tab-{view}")
            await page.shows(element, lambda text: len(text) > 40)
            # Long lines are scrolled to by themselves, not the page as a whole; tables are not cut at all.
            assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), view
            assert await page.evaluate(CUT) == [], view


async def test_address_leads_to_a_view_and_back(
    site: Site, haproxy_binary: Path, chromium: Path, tmp_path: Path
) -> None:
    async with looking(site, haproxy_binary, chromium, tmp_path / "profile") as (_running, page):
        await page.evaluate("location.hash = '#configuration/maps/path-prefix.map:1'")
        await page.until("document.querySelector('#lines [aria-current]') !== null")
        assert "web.localhost" in await page.evaluate("document.querySelector('#lines [aria-current]').textContent")
        await page.shows("explanation", "Ingress")

        # A reload of the page keeps the view, and needs no token.
        await page.call("Page.reload")
        await page.until("document.querySelector('#lines [aria-current]')?.textContent.includes('web.localhost')")
        assert await page.evaluate("document.getElementById('path').value") == "maps/path-prefix.map"

        await page.click("tab-problems")
        assert await page.evaluate("location.hash") == "#problems"
        await page.evaluate("history.back()")
        await page.until("!document.getElementById('view-configuration').hidden")
        await page.evaluate("location.hash = '#nothing/<b>'")
        await page.until("!document.getElementById('view-routes').hidden")


async def test_roles_and_names_are_complete(site: Site, haproxy_binary: Path, chromium: Path, tmp_path: Path) -> None:
    async with looking(site, haproxy_binary, chromium, tmp_path / "profile") as (_running, page):
        for view, element in VIEWS:
            await page.click(f"tab-{view}")
            await page.shows(element, lambda text: len(text) > 40)
        assert await page.evaluate(UNNAMED) == []


async def picture(page: Page, site: Site, path: Path) -> None:
    """Write a picture of the page for the documentation, without the folder of the test."""
    await page.evaluate(WITHOUT_FOLDER % f"{site.manifests.parent}/")
    await page.screenshot(path)


WITHOUT_FOLDER = """(() => { const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll('%s', ''); })()"""


async def choose(page: Page, element: str, value: str) -> None:
    """Choose *value* of the select element with that id."""
    # In one step: the options may be made again at any time.
    await page.evaluate(
        f"(() => {{ const found = document.getElementById('{element}'); found.value = '{value}';"
        " found.dispatchEvent(new Event('change', { bubbles: true })); })()"
    )


TEXT_COLOURS = ("--text", "--faint", "--accent", "--good", "--warn", "--bad")
CODE_COLOURS = ("--code-section", "--code-directive", "--code-string", "--code-condition")
COLOUR = """(() => { const probe = document.createElement('i'); probe.style.color = 'var(%s)';
document.body.append(probe); const found = getComputedStyle(probe).color; probe.remove(); return found; })()"""


def luminance(colour: str) -> float:
    """Return how bright `rgb(…)` is, as WCAG 2 has it."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, 1 to 21."""
    dark, bright = sorted((luminance(one), luminance(other)))
    return (bright + 0.05) / (dark + 0.05)


async def test_page_asks_for_a_token_and_reports_a_wrong_one(
    site: Site, haproxy_binary: Path, chromium: Path, tmp_path: Path
) -> None:
    async with serving_web(site, haproxy_binary), open_page(chromium, tmp_path / "profile") as page:
        address, token = find_console(site.state, None, None)
        await page.open(f"{address}/console")
        # Shown by the script: without it nothing can be sent.
        await page.until("document.getElementById('login')?.hidden === false")
        for given, element, expected in (("wrong", "token-error", "invalid"), (token, "headline", "Ready")):
            await page.evaluate(f"document.getElementById('token').value = {given!r}")
            await page.evaluate("document.getElementById('login').requestSubmit()")
            await page.shows(element, expected)


async def test_page_may_load_nothing_from_elsewhere(site: Site, haproxy_binary: Path) -> None:
    async with serving_web(site, haproxy_binary):
        address, _token = find_console(site.state, None, None)
        async with httpx.AsyncClient(base_url=address) as client:
            with trio.fail_after(10):
                page = await client.get("/console")
                parts = [await client.get(f"/console/{name}") for name in (*SCRIPTS, "console.css")]

        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe-inline" not in policy
        assert all(part.status_code == 200 and "https://" not in part.text for part in (page, *parts))
