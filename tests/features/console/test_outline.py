"""The configuration in the console's page has syntax colours and an outline."""

from pathlib import Path

import pytest

from tests.features.console.test_page import looking
from tests.features.harness import Site, ingress, service
from tests.support.processes.chromium import Page

pytestmark = pytest.mark.haproxy

LINE = """[...document.querySelectorAll('#lines button')].find((one) => one.textContent.slice(0, 200).match(%s))"""
CLASSES = "Object.fromEntries([...%s.querySelectorAll('span')].map((one) => [one.textContent, one.className]))"
SECTIONS = "[...document.querySelectorAll('#outline button')].map((one) => one.textContent)"


async def classes_of(page: Page, pattern: str) -> dict[str, str]:
    """Return the coloured parts of the first line that matches the JavaScript expression *pattern*."""
    line = LINE % pattern
    await page.until(f"Boolean({line})")
    found: dict[str, str] = await page.evaluate(CLASSES % line)
    return found


async def test_lines_have_syntax_colours(site: Site, haproxy_binary: Path, chromium: Path, tmp_path: Path) -> None:
    async with looking(site, haproxy_binary, chromium, tmp_path / "profile") as (_running, page):
        await page.click("tab-configuration")
        assert (await classes_of(page, "/^\\d+global/"))["global"] == "code-section"
        parts = await classes_of(page, "/http-request .* if /")
        assert parts["http-request"] == "code-directive"
        assert parts["if"] == "code-condition"
        assert (await classes_of(page, "/timeout connect/"))["timeout"] == "code-directive"
        # Colours change nothing of the text.
        shown = await page.evaluate("[...document.querySelectorAll('#lines button')].map((one) => one.textContent)")
        copied = await page.evaluate("document.getElementById('copy-lines').dataset.copy")
        for line, text in zip(shown, copied.split("\n"), strict=True):
            assert text in line

        await page.evaluate("location.hash = '#configuration/maps/path-prefix.map:1'")
        assert (await classes_of(page, "/web.localhost/"))["web.localhost|/"] == "code-directive"


async def test_outline_leads_to_sections_and_is_filtered(
    site: Site, haproxy_binary: Path, chromium: Path, tmp_path: Path
) -> None:
    async with looking(site, haproxy_binary, chromium, tmp_path / "profile") as (running, page):
        await page.call("Emulation.setDeviceMetricsOverride", width=1200, height=800, deviceScaleFactor=1, mobile=False)
        await page.call("Page.reload")
        # Also where another file is shown, and it follows changes.
        await page.shows("headline", "Ready, leader, 1 instance")
        await page.evaluate("location.hash = '#configuration/maps/path-prefix.map:1'")
        await page.until(f"{SECTIONS}.includes('default_web_80')")
        assert await page.evaluate("document.getElementById('outline-panel').open") is True
        await running.quiet()
        site.write("more", *service("more", 1), ingress("more", "more.localhost", "more"))
        await page.until(f"{SECTIONS}.includes('default_more_80')")

        await page.evaluate("document.getElementById('outline-filter').focus()")
        await page.type("backend more")
        await page.until(f"{SECTIONS}.length === 1")
        await page.shows("outline-count", "1 section")
        await page.press("Tab")
        await page.press("Enter")
        await page.until("document.querySelector('#lines [aria-current]')?.textContent.includes('default_more_80')")
        await page.shows("explanation", "name: more")
        assert "#configuration/haproxy.cfg:" in await page.evaluate("location.hash")
