"""Questions of operators, each answered by the console's page in at most three actions from its first screen."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest
import trio

from tests.features.console.test_page import CUT, looking, picture
from tests.features.harness import Running, Site, ingress, service, tls_ingress
from tests.support.processes.chromium import Page

pytestmark = pytest.mark.haproxy

Story: TypeAlias = Callable[["Operator", Site], Awaitable[None]]


class Operator:
    """A user of the page whose actions are counted: clicks, texts, and choices."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.actions = 0

    async def click(self, text: str, within: str = "main") -> None:
        """Click what has that text."""
        self.actions += 1
        all_found = f"[...document.querySelectorAll('#{within} a, #{within} button')]"
        found = f"{all_found}.find((one) => one.textContent === {text!r})"
        await self.page.until(f"Boolean({found})")
        await self.page.evaluate(f"{found}.click()")

    async def write(self, element: str, text: str, *, submit: str = "") -> None:
        """Write *text* into the element with that id, and press Enter in the form *submit*."""
        self.actions += 1
        await self.page.evaluate(f"document.getElementById('{element}').focus()")
        await self.page.type(text)
        if submit:
            await self.page.press("Enter")


async def why_503(operator: Operator, site: Site) -> None:
    page = operator.page
    await operator.write("route-search", "lost")
    shown = await page.shows("routes", lambda text: "lost.localhost" in text and "web.localhost" not in text)
    assert "down" in shown
    await operator.click("lost.localhost/", "routes")
    shown = await page.shows("card", "Warnings")
    assert "503: backend default_empty_80 has no enabled server" in shown
    assert "NoEndpoints: the Service default/empty has no ready endpoint" in shown
    assert await page.evaluate("location.hash") == "#routes/lost.localhost/"


async def why_404(operator: Operator, site: Site) -> None:
    await operator.write("try-host", "http://foreign.localhost/shop", submit="try")
    shown = await operator.page.shows("card", "404: no route matches")
    assert "Ingress default/foreign names this host, but its class is nginx" in shown


async def why_reloaded(operator: Operator, site: Site) -> None:
    await operator.click("Instances", "tabs")
    # A deployment that waits for its reload names the backend, but not the cause.
    shown = await operator.page.shows("instances", "Ingress default/more")
    assert "backend default_more_80 added" in shown
    assert "caused by" in shown
    await operator.click("Ingress default/more")
    await operator.page.shows("explanation", "name: more")


async def which_certificate_expires(operator: Operator, site: Site) -> None:
    await operator.click("Instances", "tabs")
    rows = "[...document.querySelectorAll('#certificates tbody tr')].map((row) => row.textContent)"
    await operator.page.until(f"{rows}.some((row) => row.includes('later.localhost'))")
    soonest, other, *_ = await operator.page.evaluate(rows)
    assert "in 8 d" in soonest or "in 9 d" in soonest
    assert "soon.localhost" in soonest
    assert "Secret default/soon" in soonest
    assert "later.localhost" in other


async def what_matches(operator: Operator, site: Site) -> None:
    page = operator.page
    await operator.write("try-host", "web.localhost", submit="try")
    shown = await page.shows("card", "backend default_web_80")
    for part in (
        "GET web.localhost/",
        "maps/path-prefix.map:",
        "Ingress default/web",
        "by template map-path-prefix-ingress:",
    ):
        assert part in shown
    assert "Service default/web" in shown
    assert "127.0.0.1:" in shown
    if folder := os.environ.get("HAPTIC_SCREENSHOTS"):
        await picture(page, site, Path(folder) / "console-route.png")

    # From a server to its line, from there to its backend and the routes to it, and back.
    await operator.click("s1", "card")
    await page.until("document.querySelector('#lines [aria-current]')?.textContent.includes('server s1')")
    for related in ("backend default_web_80", "Route web.localhost/"):
        await page.shows("related", related)
        await page.evaluate(
            f"[...document.querySelectorAll('#related a')].find((one) => one.textContent === {related!r}).click()"
        )
    assert await page.evaluate("location.hash") == "#routes/web.localhost/"
    await page.evaluate("history.back()")
    await page.until("!document.getElementById('view-configuration').hidden")
    await page.evaluate("history.go(-2)")
    await page.until("!document.getElementById('card').hidden")
    await page.shows("card", "backend default_web_80")


def write_failing_objects(site: Site) -> None:
    """Write an Ingress without endpoints, one of another class, and two with certificates."""
    site.write("lost", *service("empty"), ingress("lost", "lost.localhost", "empty"))
    foreign = ingress("foreign", "foreign.localhost", "web")
    foreign["spec"]["ingressClassName"] = "nginx"
    site.write("foreign", foreign)
    for name, days in (("later", 90), ("soon", 9)):
        site.write(name, *tls_ingress(name, f"{name}.localhost", "web", days))


async def prepare(site: Site, running: Running, page: Page, routes: int = 0) -> None:
    """Write objects in trouble beside *routes* others, and wait until the first screen counts them."""
    write_failing_objects(site)
    await counts(page, routes + 4)
    await running.quiet()
    site.write("more", *service("more", 1), ingress("more", "more.localhost", "more"))
    await counts(page, routes + 5)
    await running.quiet()


async def counts(page: Page, routes: int) -> None:
    """Return once the page has so many routes."""
    with trio.fail_after(120):
        while True:
            if f"all states ({routes})" in await page.text("route-state"):
                return
            await trio.sleep(0.1)


STORIES: tuple[Story, ...] = (why_503, why_404, why_reloaded, which_certificate_expires, what_matches)


@pytest.mark.parametrize("story", STORIES)
async def test_question_is_answered_in_three_actions(
    site: Site, haproxy_binary: Path, chromium: Path, tmp_path: Path, story: Story
) -> None:
    site.write_tls_config()
    async with looking(site, haproxy_binary, chromium, tmp_path / "profile") as (running, page):
        await prepare(site, running, page)
        if folder := os.environ.get("HAPTIC_SCREENSHOTS"):
            await picture(page, site, Path(folder) / "console-routes.png")
        operator = Operator(page)

        await story(operator, site)

        assert operator.actions <= 3


@pytest.mark.slow
async def test_questions_are_answered_among_ten_thousand_routes_in_both_themes(
    site: Site, haproxy_binary: Path, chromium: Path, tmp_path: Path
) -> None:
    site.write_tls_config()
    crowd = [ingress(f"m{number}", f"host{number}.example.com", "crowd") for number in range(10_000)]
    site.write("crowd", *service("crowd", 1), *crowd)
    async with looking(site, haproxy_binary, chromium, tmp_path / "profile") as (running, page):
        await prepare(site, running, page, 10_000)
        address = await page.evaluate("location.origin + '/console'")
        for scheme in ("light", "dark"):
            await page.prefer(scheme)
            for story in STORIES:
                # The first screen of a page that was just opened.
                await page.call("Page.navigate", url=address)
                await page.shows("headline", "Ready, leader, 1 instance")
                await page.shows("route-range", "1 to 100 of 10005")
                operator = Operator(page)

                await story(operator, site)

                assert operator.actions <= 3, story
        await page.call("Page.navigate", url=address)
        await page.shows("route-range", "1 to 100 of 10005")
        await page.call("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=False)
        assert await page.evaluate(CUT) == []


async def test_routes_are_filtered_by_state_and_fit_a_narrow_window(
    site: Site, haproxy_binary: Path, chromium: Path, tmp_path: Path
) -> None:
    async with looking(site, haproxy_binary, chromium, tmp_path / "profile") as (running, page):
        await prepare(site, running, page)
        await page.shows("route-state", "down (1)")
        await page.evaluate("document.getElementById('route-state').value = 'down'")
        await page.evaluate("document.getElementById('route-state').dispatchEvent(new Event('change'))")
        await page.shows("route-range", "1 to 1 of 1")

        await page.call("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=False)
        await page.evaluate("location.hash = '#routes/lost.localhost/'")
        await page.shows("card", "NoEndpoints")
        assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert await page.evaluate(CUT) == []
