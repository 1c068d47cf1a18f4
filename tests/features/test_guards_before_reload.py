"""No path is served without its access rule while a change waits for the reload that brings the rule."""

from pathlib import Path
from typing import Any

import pytest

from haptic_trio.messages import InstanceDeployed
from tests.features.harness import Site, controller, ingress, service
from tests.support.processes.haproxy import backend

pytestmark = pytest.mark.haproxy

NGINX = "nginx.ingress.kubernetes.io/"
LISTED, SLOW = {"whitelist-source-range": "192.0.2.1"}, {"proxy-read-timeout": "5"}
WIDER = {"whitelist-source-range": "192.0.2.1, 127.0.0.0/8"}
DENIED = {"denylist-source-range": "127.0.0.0/8"}


def shop(name: str, annotations: dict[str, str], *paths: str, kind: str = "Prefix") -> dict[str, Any]:
    """Return an Ingress for these paths of `shop.test`; only one address may use one with the annotations *LISTED*."""
    found = ingress(name, "shop.test", "web")
    http = found["spec"]["rules"][0]["http"]
    http["paths"] = [{**http["paths"][0], "path": path, "pathType": kind} for path in paths]
    found["metadata"]["annotations"] = {f"{NGINX}{key}": value for key, value in annotations.items()}
    return found


def mark(number: int, port: int) -> list[dict[str, Any]]:
    """Return an Ingress of another namespace for `mark-NUMBER.test`, with its Service."""
    found = [*service("web", port), ingress("mark", f"mark-{number}.test", "web")]
    for one in found:
        one["metadata"]["namespace"] = "other"
    return found


CHANGES = {
    "an Ingress with other paths takes the path and gets the rule": (
        [shop("one", {}, "/"), shop("two", SLOW, "/two"), shop("three", LISTED, "/admin")],
        [shop("one", {}, "/"), shop("two", LISTED | SLOW, "/two", "/admin")],
        403,
    ),
    "an Ingress with a shorter path gets the rule": (
        [shop("one", SLOW, "/"), shop("three", LISTED, "/admin")],
        [shop("one", LISTED | SLOW, "/")],
        403,
    ),
    "an Ingress is replaced by one with another type of path": (
        [shop("one", {}, "/"), shop("three", LISTED, "/admin", kind="Exact")],
        [shop("one", {}, "/"), shop("four", LISTED, "/admin")],
        403,
    ),
    "an Ingress gets a path and a rule": (
        [shop("one", SLOW, "/public"), shop("two", SLOW, "/two")],
        [shop("one", LISTED | SLOW, "/public", "/admin"), shop("two", SLOW, "/two")],
        404,
    ),
    "an Ingress gets another path, which more clients may use": (
        [shop("open", {}, "/open"), shop("one", LISTED, "/admin")],
        [shop("open", {}, "/open"), shop("one", WIDER | SLOW, "/public")],
        403,
    ),
    "an Ingress admits more clients, but not all of them": (
        [shop("open", {}, "/open"), shop("one", LISTED, "/admin")],
        [shop("open", {}, "/open"), shop("one", WIDER | DENIED, "/admin")],
        403,
    ),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_guarded_path_is_not_open_before_the_reload(change: str, site: Site, haproxy_binary: Path) -> None:
    before, after, status = CHANGES[change]
    context = {"httpPort": site.port, "bindAddress": "127.0.0.1"}
    libraries = ["base", "ssl", "ingress", "nginx-annotations"]
    # Every reload after the first one waits.
    site.write_config(
        templating={"libraries": libraries, "extraContext": context}, dataplane={"minDeploymentInterval": "1h"}
    )
    async with backend("one") as port:
        site.write_service("web", port)
        site.write("shop", *before)
        site.write("mark", *mark(1, port))
        async with controller(site, haproxy_binary) as running:
            await running.serves(site, "shop.test", "one", before[0]["spec"]["rules"][0]["http"]["paths"][0]["path"])
            await running.quiet()
            since = len(running.events)
            site.write("first", shop("first", SLOW, "/first"))
            await running.wait(InstanceDeployed, lambda event: event.result.reloaded, since=since)
            await running.quiet()
            known = (await site.get("shop.test", "/admin"))[0]
            since = len(running.events)
            site.write("shop", *after)
            await running.wait(InstanceDeployed, lambda event: bool(event.result.held), since=since)
            # Its host needs no reload, so it is served once everything that came before has been taken in.
            site.write("mark", *mark(2, port))
            await running.serves(site, "mark-2.test", "one")
            found = (await site.get("shop.test", "/admin"))[0]

    assert (known, found) == (status, status)
