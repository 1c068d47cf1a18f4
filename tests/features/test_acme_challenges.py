"""ACME challenges (HTTP-01) of cert-manager are answered, by the objects that it makes, and a certificate follows."""

from functools import partial
from pathlib import Path

import pytest
import trio

from haptic_trio.dataplane.binary import probe_version
from tests.features.cert_manager import HOST, PATH, Edge, certificate, solver_ingress, solver_route, solver_service
from tests.features.harness import LIMIT, controller, request
from tests.support.processes.haproxy import backend
from tests.support.traffic.servers import names_of

pytestmark = pytest.mark.haproxy
BACKENDS_AT_RUNTIME = (3, 4)


async def answers(port: int, path: str, *expected: object) -> None:
    """Return once a request over HTTP is answered with one of *expected*, a status or a body."""
    with trio.fail_after(LIMIT):
        while True:
            try:
                if not {*expected}.isdisjoint(await request(port, HOST, path)):
                    return
            except (OSError, trio.BrokenResourceError, IndexError):
                pass
            await trio.sleep(0.01)


async def presents(port: int) -> None:
    """Return once the server at *port* has a certificate for the host."""
    with trio.fail_after(LIMIT):
        while True:
            try:
                if await trio.to_thread.run_sync(partial(names_of, port, HOST)) == {HOST}:
                    return
            except OSError:
                pass
            await trio.sleep(0.01)


async def test_challenges_are_answered_while_the_host_redirects_and_has_no_certificate(
    edge: Edge, haproxy_binary: Path
) -> None:
    site = edge.site
    async with backend("one") as web, backend("key") as solver:
        edge.write(web)
        async with controller(site, haproxy_binary) as running:
            await answers(site.port, "/", 308)
            await answers(edge.gateway_http, "/", 301)
            await running.quiet()
            before = await running.reloads()
            site.write("solver", *solver_service(solver), solver_ingress())
            await answers(site.port, PATH, "key")
            site.write("secret", certificate("shop-tls"))
            await presents(edge.https)
            await answers(site.port, "/", 308)
            site.remove("solver")
            await answers(site.port, PATH, "one")
            await running.quiet()
            of_ingress = await running.reloads() - before

            site.write("solver", *solver_service(solver), solver_route())
            await answers(edge.gateway_http, PATH, "key")
            await answers(edge.gateway_http, "/", 301)
            site.write("gateway-secret", certificate("gateway-tls"))
            await presents(edge.gateway_https)
            site.remove("solver")
            await answers(edge.gateway_http, PATH, 301)
            await running.quiet()
            of_both = await running.reloads() - before

    if probe_version(haproxy_binary).number[:2] >= BACKENDS_AT_RUNTIME:
        # The first certificate of an HTTPS port of a Gateway adds its frontend.
        assert (of_ingress, of_both) == (0, 1)
