"""Changes in the console's page: the object, its effect in HAProxy, the reload and its reason, the time."""

from pathlib import Path

import pytest
import trio

from tests.features.console.test_api import asking, read
from tests.features.console.test_page import CUT, looking
from tests.features.harness import Site, ingress, service
from tests.support.processes.chromium import Page

pytestmark = pytest.mark.haproxy

ROWS = """[...document.querySelectorAll('#cycles tbody tr')].map((row) =>
Object.fromEntries([...row.cells].map((cell) => [cell.dataset.label, cell.textContent])))"""


async def change_with(page: Page, text: str, shown: str = "") -> dict[str, str]:
    """Return the cells of the newest change that names *text*, by column, once it is deployed and *shown*."""
    found = (
        f"{ROWS}.find((row) => row.Changed.includes({text!r}) && row.Outcome === 'deployed'"
        f" && row['In HAProxy'].includes({shown!r}))"
    )
    await page.until(f"Boolean({found})")
    row: dict[str, str] = await page.evaluate(found)
    return row


async def test_page_shows_what_each_change_did_in_haproxy_and_how_long_it_took(
    site: Site, haproxy_binary: Path, chromium: Path, tmp_path: Path
) -> None:
    async with looking(site, haproxy_binary, chromium, tmp_path / "profile") as (running, page):
        await page.click("tab-activity")
        await running.quiet()
        site.write("path", ingress("path", "path.localhost", "web"))
        row = await change_with(page, "Ingress default/path")
        assert "1 map entry added" in row["In HAProxy"]
        assert row["Reload"] == "no reload"
        assert row["Until traffic"].endswith((" ms", " s"))

        await running.quiet()
        site.write("more", *service("more", 1), ingress("more", "more.localhost", "more"))
        row = await change_with(page, "Ingress default/more", "lines added, 0 removed")
        assert row["Reload"].startswith("reloaded: ")
        assert "backend default_more_80 added" in row["Reload"]
        assert row["Until traffic"]

        # From the change to its lines, and back to the object.
        found = "[...document.querySelectorAll('#cycles a')].find((one) => one.textContent.includes('lines added'))"
        await page.evaluate(f"{found}.click()")
        await page.shows("diff", "backend default_more_80")
        assert (await page.evaluate("location.hash")).startswith("#configuration/generation:")
        await page.evaluate("history.back()")
        await page.until("!document.getElementById('view-activity').hidden")

        await page.call("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=False)
        assert await page.evaluate(CUT) == []
        await page.evaluate(
            "[...document.querySelectorAll('#cycles a')].find((one) => "
            "one.textContent === 'Ingress default/more').click()"
        )
        await page.shows("explanation", "name: more")


async def test_changes_are_a_resource(site: Site, haproxy_binary: Path) -> None:
    async with asking(site, haproxy_binary) as (running, client):
        await running.quiet()
        site.write("path", ingress("path", "path.localhost", "web"))
        while True:
            (*_, change) = (await read(client, "changes"))["changes"]
            if change.get("objects") == ["Ingress default/path"] and "traffic" in change:
                break
            await trio.sleep(0.01)
        assert change["operations"] == {"map entry added": 1}
        assert "reloaded" not in change
