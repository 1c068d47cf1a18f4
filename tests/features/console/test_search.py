"""A search in all files of the configuration, in the console's page and over HTTP."""

from pathlib import Path

import pytest

from tests.features.console.test_api import asking, read
from tests.features.console.test_page import looking
from tests.features.harness import Site, ingress, tls_ingress

pytestmark = pytest.mark.haproxy

HOSTS = 60


def write_hosts(site: Site) -> None:
    """Write an Ingress with a certificate, and so many others that the search has two pages."""
    site.write_tls_config()
    site.write("safe", *tls_ingress("safe", "safe.localhost", "web", 90))
    site.write("many", *(ingress(f"n{number:02}", f"n{number:02}.localhost", "web") for number in range(HOSTS)))


async def test_page_searches_all_files_and_leads_to_a_line(
    site: Site, haproxy_binary: Path, chromium: Path, tmp_path: Path
) -> None:
    write_hosts(site)
    async with looking(site, haproxy_binary, chromium, tmp_path / "profile") as (_running, page):
        await page.click("tab-configuration")
        await page.evaluate("document.getElementById('search').value = 'LOCALHOST'")
        await page.click("search-all")
        await page.shows("hits-range", "1 to 50 of ")
        places = await page.evaluate("[...document.querySelectorAll('#hits .place')].map((one) => one.textContent)")
        assert places == sorted(set(places)), "each file once"
        assert await page.evaluate("document.querySelector('#hits mark').textContent") == "localhost"
        assert "Ingress default/n" in await page.text("hits")
        await page.click("hits-next")
        await page.shows("hits-range", "51 to ")
        assert "n59.localhost" in await page.shows("hits", "n59.localhost")
        assert await page.evaluate("document.getElementById('hits-previous').disabled") is False
        assert await page.evaluate("decodeURI(location.hash)") == "#configuration/search:LOCALHOST"

        # A line between the hits is shown around them; Enter on a hit opens it in its file.
        await page.evaluate("location.hash = '#configuration/search:n07.localhost'")
        await page.shows("hits-range", "1 to 1 of 1 line")
        assert await page.evaluate("document.querySelectorAll('#hits .around').length") == 4
        await page.evaluate("document.querySelector('#hits button').focus()")
        await page.press("Enter")
        await page.until("document.querySelector('#lines [aria-current]')?.textContent.includes('n07.localhost')")
        assert "#configuration/maps/path-prefix.map:" in await page.evaluate("location.hash")
        await page.shows("explanation", "name: n07")

        await page.evaluate("location.hash = '#configuration/search:PRIVATE KEY'")
        await page.shows("hits-range", "No file has this text.")
        await page.call("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=False)
        await page.evaluate("location.hash = '#configuration/search:localhost'")
        await page.shows("hits-range", "1 to 50 of ")
        assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


async def test_search_is_a_resource_and_does_not_read_secrets(site: Site, haproxy_binary: Path) -> None:
    write_hosts(site)
    async with asking(site, haproxy_binary) as (_running, client):
        answer = await read(client, "search", search="n07.localhost", context=2)
        (hit,) = answer["hits"]
        assert (hit["line"]["path"], hit["made_by"]["object"]["name"]) == ("maps/path-prefix.map", "n07")
        assert [len(hit["before"]), len(hit["after"])] == [2, 2]

        page = await read(client, "search", search=".localhost", offset=50, limit=5)
        assert (len(page["hits"]), page["offset"]) == (5, 50)
        assert page["count"] > HOSTS
        assert (await read(client, "search", search="PRIVATE KEY"))["count"] == 0
        assert (await client.get("/search")).status_code == 400
