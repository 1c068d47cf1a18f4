"""The whole controller over an API server that fails in every way, with a real HAProxy."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from haptic_trio.messages import IterationEnded, ProblemsReported, StageReached
from tests.features.harness import LIMIT, Running, Traffic, controller, serving_web
from tests.features.server_site import ServerSite
from tests.support.api_server.server import serving
from tests.support.processes.haproxy import backend
from tests.support.processes.ports import free_port
from tests.support.traffic.scrape import ask, scrape

pytestmark = pytest.mark.haproxy


@pytest.fixture
async def site(instance_root: Path) -> AsyncIterator[ServerSite]:
    """A site with a configuration and a class, and nothing to serve yet."""
    async with serving() as server:
        site = ServerSite(instance_root, free_port(), server)
        server.write_kubeconfig(site.kubeconfig, token_file=str(site.token_file))
        site.write_config()
        site.write_class()
        yield site


async def reported(running: Running, text: str) -> None:
    """Return once a problem that contains *text* was reported."""
    await running.wait(ProblemsReported, lambda event: any(text in str(problem) for problem in event.problems))


async def test_changes_at_the_api_server_reach_traffic(site: ServerSite, haproxy_binary: Path) -> None:
    async with serving_web(site, haproxy_binary) as running, backend("two") as two:
        before = await running.reloads()
        site.write_service("web", two)
        await running.serves(site, "web.localhost", "two")
        assert await running.reloads() == before

        site.write_ingress("more", "more.localhost", "web", "/shop")
        await running.serves(site, "more.localhost", "two", "/shop")
        site.remove("ingress-more")
        await running.answers(site, "more.localhost", 404, "/shop")


async def test_changed_config_map_opens_a_new_iteration_and_traffic_goes_on(
    site: ServerSite, haproxy_binary: Path
) -> None:
    async with serving_web(site, haproxy_binary) as running, trio.open_nursery() as nursery:
        traffic = Traffic()
        nursery.start_soon(traffic.run, site, "web.localhost")
        await traffic.wait_for(5)

        site.write_config(reconciler={"debounceInterval": "30ms"})
        ended = await running.wait(IterationEnded)
        await running.wait(StageReached, lambda event: (event.iteration, event.stage) == (2, 5))
        site.write_ingress("more", "more.localhost", "web")
        await running.serves(site, "more.localhost", "one")
        await traffic.wait_for(5)

        assert ended.reason == "configuration changed"
        assert traffic.failures == []
        nursery.cancel_scope.cancel()


async def failures(running: Running) -> float:
    """Return how many lists and watches have failed."""
    return (await scrape(running.serving.addresses[0]))("haptic_watch_failures_total") or 0


async def disturb(site: ServerSite, running: Running, fault: str) -> None:
    """Let the API server fail in one way, with a change in between, and recover."""
    server = site.server
    match fault:
        case "watches cut":
            for number in range(10):
                server.cut_watches()
                site.write_ingress(f"extra-{number}", f"extra-{number}.localhost", "web")
                # real time: it may hit any moment of opening a watch
                await trio.sleep(0.02)
        case "stopped":
            before = await failures(running)
            server.stop()
            site.write_ingress("extra-1", "extra-1.localhost", "web")
            with trio.fail_after(LIMIT):
                while await failures(running) == before:  # noqa: ASYNC110  the fact is a metric
                    await trio.sleep(0.02)
            await server.start()
        case "compacted":
            server.stop()
            server.compact()
            await server.start()
        case "expired":
            server.faults.expire_watches = 5
            server.expire_watches()
        case "forbidden":
            server.faults.forbidden |= {"ingresses", "services", "endpointslices"}
            begun = len(server.requests)
            server.cut_watches()
            await server.until(
                lambda: all(any(kind in line for line in server.requests[begun:]) for kind in server.faults.forbidden)
            )
            server.faults.forbidden.clear()
        case "throttled":
            server.faults.throttled = 20
            server.faults.retry_after = 0
            server.cut_watches()
        case "failing":
            server.faults.failing = 20
            server.cut_watches()
        case "token rotated":
            server.rotate_token("second-token")
            begun = len(server.requests)
            server.cut_watches()
            await server.until(lambda: len(server.requests) > begun)
            site.token_file.write_text("second-token")


@pytest.mark.parametrize(
    "fault",
    ["watches cut", "stopped", "compacted", "expired", "forbidden", "throttled", "failing", "token rotated"],
)
async def test_no_route_is_lost_whatever_the_api_server_does(
    site: ServerSite, haproxy_binary: Path, fault: str
) -> None:
    async with serving_web(site, haproxy_binary) as running, trio.open_nursery() as nursery:
        traffic = Traffic()
        nursery.start_soon(traffic.run, site, "web.localhost")
        site.write_ingress("gone", "gone.localhost", "web")
        await running.serves(site, "gone.localhost", "one")

        await disturb(site, running, fault)
        site.write_ingress("after", "after.localhost", "web")
        site.remove("ingress-gone")
        await running.serves(site, "after.localhost", "one")
        await running.answers(site, "gone.localhost", 404)
        await traffic.wait_for(5)

        assert traffic.failures == []
        assert len(running.events.all(IterationEnded)) == 0
        nursery.cancel_scope.cancel()


async def test_nothing_is_deployed_before_every_kind_could_be_listed(site: ServerSite, haproxy_binary: Path) -> None:
    site.server.faults.forbidden.add("ingresses")
    async with backend("one") as port:
        site.write_service("web", port)
        site.write_ingress("web", "web.localhost", "web")
        async with controller(site, haproxy_binary) as running:
            await running.wait(StageReached, lambda event: event.stage == 2)
            await reported(running, "ingresses is forbidden")
            # It is listed again, and deploys nothing.
            begun = len(site.server.requests)
            await site.server.until(lambda: any("ingresses" in line for line in site.server.requests[begun:]))
            assert running.iteration is not None
            assert running.iteration.stage == 2
            assert all(info.generation == "" for info in await running.describe())
            readiness = await ask(running.serving.addresses[0], "/readyz")
            assert readiness.status_code == 503
            assert "`watch_resources` waits for the first lists: ingresses" in readiness.json()["reasons"][0]

            site.server.faults.forbidden.clear()
            await running.serves(site, "web.localhost", "one")
            counted = await scrape(running.serving.addresses[0])
            kind = "ingresses.networking.k8s.io/v1"
            assert (counted("haptic_watch_failures_total", type=kind, error="Forbidden") or 0) >= 1
            assert (counted("haptic_watch_lists_total", type=kind) or 0) >= 1
            assert (counted("haptic_watch_connections_total", type="services.v1") or 0) >= 1
            assert (counted("haptic_api_requests_total") or 0) > 5


async def test_controller_that_starts_before_the_api_server_waits_for_it(
    site: ServerSite, haproxy_binary: Path
) -> None:
    site.server.stop()
    async with backend("one") as port:
        site.write_service("web", port)
        site.write_ingress("web", "web.localhost", "web")
        async with controller(site, haproxy_binary) as running:
            await reported(running, "is the API server running")
            assert running.events.all(StageReached) == []
            await site.server.start()
            await running.serves(site, "web.localhost", "one")
