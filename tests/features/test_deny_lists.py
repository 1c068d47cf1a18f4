"""Lists of addresses at URLs in a running controller: for all hosts, and for Ingresses that name them."""

from pathlib import Path

import pytest

from haptic_trio.messages import HttpContentAccepted, HttpContentRejected, HttpFetched, Quarantined
from tests.features.harness import Running, Site, controller, ingress
from tests.support.processes.haproxy import backend
from tests.support.traffic.web import Page, Web, serving_pages

pytestmark = pytest.mark.haproxy


def write_site(site: Site, web: Web, port: int) -> None:
    site.write_config(
        http={"allowedNetworks": ["127.0.0.1/32"], "minInterval": "50ms"},
        templating={
            "libraries": ["base", "ssl", "ingress", "haptic-annotations"],
            "extraContext": {
                "httpPort": site.port,
                "bindAddress": "127.0.0.1",
                "denyLists": {"bots": web.url("/bots"), "own": web.url("/own")},
                "deniedByLists": ["bots"],
                "denyListInterval": "100ms",
                "denyListEntries": 3,
            },
        },
    )
    site.write_service("web", port)
    site.write_ingress("plain", "plain.test", "web")
    for name, lists in (("guarded", "own"), ("wrong", "own, absent")):
        made = ingress(name, f"{name}.test", "web")
        made["metadata"]["annotations"] = {"haptic-trio/deny-lists": lists}
        site.write(f"ingress-{name}", made)


async def rejected_for(running: Running, web: Web, path: str, text: str) -> str:
    """Return why *text* is rejected as the list at *path*."""
    since = len(running.events)
    web.text(path, text)
    event = await running.wait(HttpContentRejected, lambda event: event.url == web.url(path), since=since)
    assert event.has_former
    await running.quiet()
    return event.problem.message


async def test_lists_deny_their_clients_without_a_reload(site: Site, haproxy_binary: Path) -> None:
    async with serving_pages() as web, backend("one") as port:
        web.text("/bots", "# bots\n192.0.2.1\n\n")
        web.text("/own", "2001:db8::/32 ; documentation\n")
        write_site(site, web, port)
        async with controller(site, haproxy_binary) as running:
            quarantined = await running.wait(Quarantined)
            assert quarantined.ref.name == "wrong"
            assert "deny-lists: there is no list absent; the setting denyLists has bots, own" in str(quarantined)
            await running.serves(site, "plain.test", "one")
            await running.serves(site, "guarded.test", "one")
            await running.quiet()
            before = await running.reloads()

            # The list of an Ingress denies its clients alone.
            since = len(running.events)
            web.text("/own", "2001:db8::/32\n127.0.0.0/8\n")
            await running.answers(site, "guarded.test", 403)
            await running.wait(HttpContentAccepted, since=since)
            assert await site.get("plain.test") == (200, "one")

            # A list that is bad, too long or empty does not replace the one before it, nor does a server that fails.
            problem = await rejected_for(running, web, "/own", "192.0.2.1\n\n<html>\n")
            assert "line 3 is neither an address nor a network" in problem
            problem = await rejected_for(running, web, "/own", "".join(f"192.0.2.{last}\n" for last in range(4)))
            assert "line 4: the list has more than 3 networks" in problem
            for page in (Page(), Page(status=500)):
                since = len(running.events)
                web.pages["/own"] = page
                await running.wait(HttpFetched, lambda event: event.outcome == "failed", since=since)
            assert (await site.get("guarded.test"))[0] == 403

            # Lists for all hosts.
            web.text("/bots", "127.0.0.1\n")
            await running.answers(site, "plain.test", 403)
            assert (await site.get("absent.test"))[0] == 403
            web.text("/bots", "# none\n")
            await running.serves(site, "plain.test", "one")
            assert await running.reloads() == before
