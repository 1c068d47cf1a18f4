"""The graph of a route in the console's page."""

import os
from pathlib import Path

import pytest

from tests.features.console.test_live import send_command
from tests.features.console.test_page import COLOUR, contrast, looking, picture
from tests.features.console.test_stories import write_failing_objects
from tests.features.harness import Site
from tests.support.processes.chromium import Page

pytestmark = pytest.mark.haproxy

NODES = "[...document.querySelectorAll('#card .graph title')].map((one) => one.textContent)"
LINKS = "[...document.querySelectorAll('#card .graph a')]"
OUTSIDE = """[...document.querySelectorAll('#card .graph text')].filter((one) => {
const [text, box] = [one.getBoundingClientRect(), one.parentNode.querySelector('rect').getBoundingClientRect()];
return text.left < box.left || text.right > box.right || box.right > innerWidth || box.left < 0;
}).map((one) => one.textContent)"""
"""Texts of nodes that are cut."""


async def open_route(page: Page, request: str) -> list[str]:
    """Open the card of *request*, and return the nodes of its graph."""
    await page.evaluate(f"location.hash = '#routes/{request}'")
    await page.until(f"{NODES}[0] === 'Request: {request}'")
    found: list[str] = await page.evaluate(NODES)
    return found


async def test_route_is_drawn_from_the_request_to_its_servers_with_links(
    site: Site, haproxy_binary: Path, chromium: Path, tmp_path: Path
) -> None:
    write_failing_objects(site)
    async with looking(site, haproxy_binary, chromium, tmp_path / "profile") as (_running, page):
        request, ingress, backend, server = await open_route(page, "web.localhost/")
        assert (request, ingress) == ("Request: web.localhost/", "Ingress: default/web")
        assert backend == "Service: default/web"
        assert server.startswith("Server s1")
        assert await page.evaluate("document.querySelectorAll('#card .graph path').length") == 3
        await page.until(f"{NODES}.at(-1).startsWith('Server s1, ')")
        assert await page.evaluate(OUTSIDE) == []

        # The state of a server is a word, not a colour only.
        await send_command(site, "set server default_web_80/s1 state maint")
        await page.until(f"{NODES}.at(-1).startsWith('Server s1, MAINT')")
        assert await page.evaluate("document.querySelectorAll('#card .graph rect.bad').length") == 1
        await send_command(site, "set server default_web_80/s1 state ready")

        # Nodes are links, which the Tab key reaches; the request has no object.
        assert await page.evaluate(f"{LINKS}.length") == 3
        await page.evaluate(f"{LINKS}[0].focus()")
        await page.press("Tab")
        assert (await page.focused()).startswith("Service: default/web")
        await page.press("Enter")
        await page.shows("explanation", "Service")
        assert await page.evaluate("decodeURI(location.hash)") == "#configuration/Service default/web"

        assert (await open_route(page, "lost.localhost/"))[-1] == "Servers: none"
        # Figures arrive while another tab hides the graph, which is there again afterwards.
        await page.evaluate("document.getElementById('view-routes').hidden = true; dispatchEvent(new Event('resize'))")
        assert await page.evaluate(NODES) == []
        await page.click("tab-routes")
        assert (await open_route(page, "foreign.localhost/"))[-1] == "Answer: 404"


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_graph_fits_a_narrow_window_and_is_readable_in_both_modes(
    site: Site, haproxy_binary: Path, chromium: Path, tmp_path: Path, scheme: str
) -> None:
    async with looking(site, haproxy_binary, chromium, tmp_path / "profile") as (_running, page):
        await page.prefer(scheme)
        await open_route(page, "web.localhost/")
        wide = await page.evaluate("document.querySelector('#card .graph').clientHeight")
        for text in ("--text", "--faint", "--accent", "--good", "--bad"):
            assert contrast(await page.evaluate(COLOUR % text), await page.evaluate(COLOUR % "--ground")) >= 4.5, text

        await page.call("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=False)

        await page.until(f"document.querySelector('#card .graph').clientHeight > {wide} * 2")
        assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert await page.evaluate(OUTSIDE) == []
        if scheme == "dark" and (folder := os.environ.get("HAPTIC_SCREENSHOTS")):
            await picture(page, site, Path(folder) / "console-graph.png")
