"""The first certificate of a cluster: a reload adds the HTTPS frontend, unless the frontend exists from the start."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from haptic_trio.demo.certificate import make_certificate
from tests.features.harness import LIMIT, Running, Site, controller, ingress
from tests.support.kubernetes import tls_secret
from tests.support.processes.haproxy import backend
from tests.support.processes.ports import free_port
from tests.support.traffic.servers import names_of

pytestmark = pytest.mark.haproxy
HOST = "web.localhost"


def tls_site(site: Site, **context: Any) -> int:
    """Write a configuration with HTTPS; return the port of it."""
    port = free_port()
    site.write_config(
        templating={
            "libraries": ["base", "ssl", "ingress"],
            "extraContext": {"httpPort": site.port, "httpsPort": port, "bindAddress": "127.0.0.1", **context},
        }
    )
    return port


def secure_web(site: Site) -> None:
    """Give the Ingress of `web.localhost` a certificate."""
    made = make_certificate(HOST)
    secret = tls_secret("web", made.chain, made.key)
    found = ingress("web", HOST, "web")
    found["spec"]["tls"] = [{"hosts": [HOST], "secretName": "web"}]
    site.write("ingress-web", secret, found)


async def presents(port: int, names: set[str]) -> None:
    """Return once the server at *port* has a certificate for *names* for `web.localhost`."""
    with trio.fail_after(LIMIT):
        while True:
            try:
                if await trio.to_thread.run_sync(partial(names_of, port, HOST)) == names:
                    return
            except OSError:
                pass
            await trio.sleep(0.01)


async def reloads_for_first_certificate(site: Site, running: Running, port: int) -> int:
    """Return how often HAProxy reloads for the certificate of `web.localhost`."""
    await running.serves(site, HOST, "one")
    await running.quiet()
    before = await running.reloads()
    secure_web(site)
    await presents(port, {HOST})
    await running.quiet()
    return await running.reloads() - before


async def test_first_certificate_reloads_once(site: Site, haproxy_binary: Path) -> None:
    port = tls_site(site)
    async with backend("one") as server:
        site.write_service("web", server)
        site.write_ingress("web", HOST, "web")
        async with controller(site, haproxy_binary) as running:
            assert await reloads_for_first_certificate(site, running, port) == 1


@pytest.mark.parametrize("strict", [False, True])
async def test_first_certificate_needs_no_reload_with_an_https_frontend_from_the_start(
    site: Site, haproxy_binary: Path, strict: bool
) -> None:
    port = tls_site(site, httpsAlways=True, strictSni=strict)
    async with backend("one") as server:
        site.write_service("web", server)
        site.write_ingress("web", HOST, "web")
        async with controller(site, haproxy_binary) as running:
            assert await reloads_for_first_certificate(site, running, port) == 0
