"""A change of several kinds costs one reload at most, whatever of it the HAProxy at hand takes without."""

from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from haptic_trio.messages import InstanceDeployed
from tests.features.harness import Site, controller
from tests.support.processes.haproxy import backend
from tests.support.processes.ports import free_port
from tests.support.scenarios.wanted import FIELDS, MOVING, Wanted, host, make_certificates

pytestmark = pytest.mark.haproxy


async def test_new_backend_and_new_structure_are_one_reload(site: Site, haproxy_binary: Path) -> None:
    site.write_config(
        **FIELDS,
        templating={
            "libraries": ["base", "ssl"],
            "extraContext": {"httpPort": site.port, "httpsPort": free_port(), "bindAddress": "127.0.0.1"},
        },
    )
    certificates, first = make_certificates(1), Wanted(text=1)
    async with AsyncExitStack() as stack:
        ports = [await stack.enter_async_context(backend(str(number))) for number in range(4)]
        site.write("wanted", first.as_object(ports, certificates))
        running = await stack.enter_async_context(controller(site, haproxy_binary))
        await running.serves(site, MOVING, "0")
        before = await running.reloads()
        newest = first
        for number in range(2, 5):
            since = len(running.events)
            newest = msgspec.structs.replace(newest, text=number, hosts=(*newest.hosts, number), mark=number, route=1)
            site.write("wanted", newest.as_object(ports, certificates))

            reloaded = await running.wait(InstanceDeployed, lambda event: event.result.reloaded, since=since)
            await running.serves(site, host(number), str(number % 4))
            await running.quiet()

            assert any("x-text" in reason or "http-after-response" in reason for reason in reloaded.result.reasons)
            assert await running.reloads() == before + number - 1
