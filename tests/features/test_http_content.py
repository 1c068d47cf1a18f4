"""Contents fetched by HTTP, from a server to HAProxy: the whole controller, a real HAProxy, a real server."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from haptic_trio.cli.console_client import find_console, open_console
from haptic_trio.messages import (
    HttpContentAccepted,
    HttpContentRejected,
    HttpFetched,
    IterationEnded,
    ProblemsReported,
    ReconcileFailed,
    StageReached,
)
from tests.features.harness import LIMIT, Running, Site, controller
from tests.support.processes.haproxy import backend
from tests.support.traffic.web import Page, Web, serving_pages

pytestmark = pytest.mark.haproxy

DENY = """\
{% for line in http.fetch(denyListUrl, denyListOptions).splitlines() if line.strip() %}
{{ line.strip() | map_key }} denied
{% endfor %}
"""
GUARD = """\
    http-request deny deny_status 403 if { src,map_ip(maps/deny.map) -m found }
"""


def write_config(site: Site, url: str, *, snippet: str = GUARD, fields: Any = None, **options: Any) -> None:
    """Write a configuration that denies the addresses in the list at *url*, fetched with *options*."""
    context = {"denyListUrl": url, "denyListOptions": {"interval": "100ms", **options}}
    site.write_config(
        http={"allowedNetworks": ["127.0.0.1/32"], "minInterval": "50ms"},
        maps={"deny.map": {"template": DENY}},
        templateSnippets={"frontend-rules-100-deny": {"template": snippet}},
        templating={"extraContext": {"httpPort": site.port, "bindAddress": "127.0.0.1", **context}},
        **(fields or {}),
    )


@asynccontextmanager
async def denying(site: Site, binary: Path, page: Page, **options: Any) -> AsyncIterator[tuple[Web, Running]]:
    """Run a server with the deny-list *page*, and the controller with an Ingress for `web.localhost`."""
    async with serving_pages() as web, backend("one") as port:
        web.pages["/deny.txt"] = page
        write_config(site, web.url("/deny.txt"), **options)
        site.write_service("web", port)
        site.write_ingress("web", "web.localhost", "web")
        async with controller(site, binary) as running:
            yield web, running


async def test_changed_list_reaches_haproxy_without_a_reload(site: Site, haproxy_binary: Path) -> None:
    async with denying(site, haproxy_binary, Page(body=b"192.0.2.1\n")) as (web, running):
        await running.serves(site, "web.localhost", "one")
        accepted = await running.wait(HttpContentAccepted)
        before = await running.reloads()
        web.text("/deny.txt", "192.0.2.1\n127.0.0.0/8\n")

        await running.answers(site, "web.localhost", 403)
        await running.wait(HttpContentAccepted, lambda event: event.digest != accepted.digest)
        web.text("/deny.txt", "192.0.2.1\n")
        await running.serves(site, "web.localhost", "one")
        assert await running.reloads() == before


async def test_bad_list_is_rejected_and_reported_once_and_the_former_one_stays(
    site: Site, haproxy_binary: Path
) -> None:
    async with denying(site, haproxy_binary, Page(body=b"127.0.0.0/8\n")) as (web, running):
        await running.answers(site, "web.localhost", 403)
        web.text("/deny.txt", "<html>this is no list</html>\n")
        rejected = await running.wait(HttpContentRejected)
        assert rejected.has_former
        assert "map_key" in rejected.problem.message
        # It is looked at again and again, and stays the same.
        await web.wait_asked(len(web.asked) + 4)
        await running.quiet()
        assert (await site.get("web.localhost"))[0] == 403
        assert len(running.events.all(HttpContentRejected)) == 1
        assert running.events.all(ReconcileFailed) == []
        web.text("/deny.txt", "192.0.2.1\n")

        await running.serves(site, "web.localhost", "one")


async def test_content_that_haproxy_alone_rejects_is_taken_back(site: Site, haproxy_binary: Path) -> None:
    async with serving_pages() as web, backend("one") as port:
        web.text("/network", "192.0.2.0/24")
        web.text("/deny.txt", "")
        fetched = f"http.fetch('{web.url('/network')}', interval='100ms')"
        snippet = f"    http-request deny if {{ src {{{{ {fetched} }}}} }}\n"
        write_config(site, web.url("/deny.txt"), snippet=snippet, interval=0)
        site.write_service("web", port)
        site.write_ingress("web", "web.localhost", "web")
        async with controller(site, haproxy_binary) as running:
            await running.serves(site, "web.localhost", "one")
            web.text("/network", "192.0.2.0/99")

            rejected = await running.wait(HttpContentRejected)
            assert rejected.url.endswith("/network")
            await running.quiet()
            assert await site.get("web.localhost") == (200, "one")
            web.text("/network", "127.0.0.0/8")
            await running.answers(site, "web.localhost", 403)


async def test_reinitialisation_fetches_nothing_again_and_needs_no_server(site: Site, haproxy_binary: Path) -> None:
    page = Page(body=b"127.0.0.0/8\n")
    async with denying(site, haproxy_binary, page, interval="1h", critical=True) as (web, running):
        await running.answers(site, "web.localhost", 403)
        await running.wait(HttpContentAccepted)
        web.pages["/deny.txt"] = Page(status=503)
        since = len(running.events)
        fields = {"dataplane": {"driftPreventionInterval": "59s"}}
        write_config(site, web.url("/deny.txt"), fields=fields, interval="1h", critical=True)
        await running.wait(IterationEnded, since=since)
        await running.wait(StageReached, lambda event: event.stage == 5, since=since)
        await running.settled(since=since, iteration=2)

        assert (await site.get("web.localhost"))[0] == 403
        assert len(web.asked) == 1


def stored_in(site: Site) -> list[Path]:
    """Return the files of stored contents."""
    return list(site.state.glob("contents/*.content"))


async def test_restart_without_the_server_uses_the_stored_content(site: Site, haproxy_binary: Path) -> None:
    page = Page(body=b"127.0.0.0/8\n")
    options: dict[str, Any] = {"interval": "1h", "critical": True, "retries": 0}
    async with denying(site, haproxy_binary, page, **options) as (web, running):
        await running.answers(site, "web.localhost", 403)
        with trio.fail_after(LIMIT):
            while not stored_in(site):  # noqa: ASYNC110  another thread writes the file
                await trio.sleep(0.02)
        url = web.url("/deny.txt")
    # HAProxy was stopped as well, and nothing listens at the URL any more.
    async with controller(site, haproxy_binary) as running:
        reported = await running.wait(ProblemsReported, lambda event: event.source == url)
        accepted = await running.wait(HttpContentAccepted)
        await running.answers(site, "web.localhost", 403)

        assert (accepted.url, accepted.bytes) == (url, len(page.body))
        (problem,) = reported.problems
        assert "the content that was stored before the restart is used: it is " in problem.message


async def test_missing_critical_content_is_reported_and_nothing_is_deployed_without_it(
    site: Site, haproxy_binary: Path
) -> None:
    async with denying(site, haproxy_binary, Page(status=503), critical=True, retries=0) as (web, running):
        failed = await running.wait(ReconcileFailed)
        reported = await running.wait(ProblemsReported, lambda event: event.source == web.url("/deny.txt"))
        assert failed.phase == "render"
        assert [str(problem) for problem in reported.problems] == [
            f"{web.url('/deny.txt')}: the server answered 503; there is no content"
        ]
        web.text("/deny.txt", "127.0.0.0/8\n")

        await running.answers(site, "web.localhost", 403)
        await running.wait(ProblemsReported, lambda event: event.source == web.url("/deny.txt") and not event.problems)


async def test_credentials_are_sent_and_nowhere_to_be_seen(
    site: Site, haproxy_binary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token, in_query = "planted-token-of-a-secret", "planted-query"
    async with serving_pages() as web, backend("one") as port:
        path = f"/deny.txt?key={in_query}"
        web.text(path, "127.0.0.0/8\n")
        encoded = base64.b64encode(token.encode()).decode()
        metadata = {"name": "feed", "namespace": "default"}
        site.write("secret", {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"token": encoded}})
        watched = {"watchedResources": {"secrets": {"apiVersion": "v1", "resources": "secrets"}}}
        write_config(site, web.url(path), fields=watched, auth={"secret": "default/feed"}, headers={"x-key": in_query})
        site.write_service("web", port)
        site.write_ingress("web", "web.localhost", "web")
        async with controller(site, haproxy_binary) as running:
            await running.answers(site, "web.localhost", 403)
            assert web.asked[0].headers["authorization"] == f"Bearer {token}"
            web.pages[path] = Page(status=401)
            await running.wait(ProblemsReported, lambda event: bool(event.problems))
            web.text(path, "not a list\n")
            await running.wait(HttpContentRejected)
            async with httpx.AsyncClient() as client:
                metrics = (await client.get(f"{running.serving.addresses[0]}/metrics")).text
            async with open_console(*find_console(site.state, None, None)) as console:
                shown = json.dumps([await console.ask(topic) for topic in ("events", "state", "tasks")])
    out, err = capsys.readouterr()

    assert "haptic_http_contents 1.0" in metrics
    assert "haptic_http_oldest_content_age_seconds " in metrics
    assert 'haptic_http_fetches_total{outcome="failed"}' in metrics
    assert 'haptic_http_content_validations_total{result="rejected"} 1.0' in metrics
    assert "/deny.txt?…" in out + err
    for text in (out, err, metrics, shown, repr(running.events.all(HttpFetched))):
        assert token not in text
        assert encoded not in text
        assert in_query not in text
