"""A tenant changes what needs a reload as fast as possible: others keep their connections, and their changes go on."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import trio

from haptic_trio.dataplane.endpoint import SyncResult
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import Generation, make_generation
from haptic_trio.haproxy.plan.capabilities import capabilities_of
from haptic_trio.haproxy.plan.plan import make_plan
from haptic_trio.k8s.resource import Resource
from haptic_trio.messages import InstanceDeployed
from tests.attacks.inputs.mutations import ATTACKER, ATTACKER_AGE
from tests.attacks.inputs.samples import SAMPLES
from tests.attacks.inputs.tenants import Sample, Tenant
from tests.attacks.rig import NGINX, Rig, rig
from tests.attacks.site import Site as ClusterSite
from tests.features.harness import Site
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service
from tests.support.processes.haproxy import haproxy_binary, instance_root
from tests.support.processes.ports import free_port

__all__ = ["haproxy_binary", "instance_root"]

OLD_WORKERS: Final = 10
"""Reloads that a worker with connections outlives here; by default twice as many."""
TOGGLES: Final = 30
FREE: Final = 8
"""Reloads that the attacker may cause within this test: the first ones, and those after holds of 11 and 22 s."""
SOON: Final = 5.0
"""Seconds in which a change arrives on a busy machine, if it does not wait for the end of a hold."""
SLOWED: Final = "the namespace attacker has caused many reloads"
SOCKET_HOST: Final = "socket.victim.test"

_ASKED: Final = (
    f"GET / HTTP/1.1\r\nHost: {SOCKET_HOST}\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
).encode()
_ACCEPTED: Final = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)


async def _echo(stream: trio.SocketStream) -> None:
    async with stream:
        head = b""
        while b"\r\n\r\n" not in head:
            head += await stream.receive_some()
        await stream.send_all(_ACCEPTED)
        async for chunk in stream:
            await stream.send_all(chunk)


@asynccontextmanager
async def _websocket(found: Rig) -> AsyncIterator[trio.SocketStream]:
    """Open a WebSocket of the victim, with a server that sends back what it gets."""
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, _echo, 0)
        port = listeners[0].socket.getsockname()[1]
        objects = [
            service("socket", namespace="victim"),
            endpoint_slice("socket", endpoint("127.0.0.1"), ports=port, namespace="victim"),
            ingress("socket", rule(SOCKET_HOST, path("/", "socket")), namespace="victim"),
        ]
        found.apply("socket", objects)
        with trio.fail_after(30):
            while True:
                stream = await trio.open_tcp_stream("127.0.0.1", found.ports["http"])
                await stream.send_all(_ASKED)
                if (await stream.receive_some()).startswith(b"HTTP/1.1 101 "):
                    break
                await stream.aclose()
                await trio.sleep(0.01)
        async with stream:
            yield stream
        nursery.cancel_scope.cancel()


async def _is_open(stream: trio.SocketStream, text: bytes) -> bool:
    with trio.fail_after(10):
        await stream.send_all(text)
        return await stream.receive_some() == text


def _ingress(namespace: str, name: str, timeout: int = 0) -> Resource:
    """Return an Ingress for NAME.NAMESPACE.test; with *timeout* it has a backend of its own, which needs a reload."""
    annotations = {f"{NGINX}proxy-read-timeout": str(timeout)} if timeout else None
    return ingress(
        name, rule(f"{name}.{namespace}.test", path("/", "web")), namespace=namespace, annotations=annotations
    )


async def _toggle(found: Rig, number: int) -> SyncResult:
    """Have the attacker make a change that needs a reload; return once HAProxy has reloaded, or the change waits."""
    since = len(found.running.events)
    found.apply("toggle", [_ingress("attacker", "toggle", 100 + number)])
    event = await found.running.wait(
        InstanceDeployed, lambda event: event.result.reloaded or bool(event.result.held), since=since
    )
    return event.result


async def _reaches(found: Rig, one: Resource) -> float:
    """Write an Ingress of `_ingress`, and return the seconds until its host is answered by the namespace's server."""
    began = time.monotonic()
    namespace, name = one["metadata"]["namespace"], one["metadata"]["name"]
    found.apply(f"{namespace}-{name}", [one])
    await found.answers("http", f"{name}.{namespace}.test", f"{namespace}\n".encode())
    return time.monotonic() - began


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
@pytest.mark.parametrize("version", [(2, 8), (3, 4)], ids=str)
def test_a_reload_counts_for_the_tenant_whose_objects_need_it(
    sample: Sample, version: tuple[int, int], site: ClusterSite
) -> None:
    capabilities, before = capabilities_of(version), _generation(site)
    objects = sample.build(Tenant(ATTACKER, 0, ATTACKER_AGE))
    site.put(objects)
    try:
        after = _generation(site)
    finally:
        site.remove(objects)
    for running, desired in ((before, after), (after, before)):
        plan = make_plan(running, desired, capabilities=capabilities)
        assert plan.causes == ({ATTACKER} if plan.reloads else set())


def _generation(site: ClusterSite) -> Generation:
    rendered = site.renderer.render_here(site.stores)
    return make_generation(parse_config(rendered.config.pieces), rendered.files)


@pytest.mark.haproxy
async def test_a_tenant_who_reloads_all_the_time_ends_no_connection_of_others(
    haproxy_binary: Path, instance_root: Path
) -> None:
    site = Site(instance_root, free_port())
    async with (
        rig(site, haproxy_binary, pacing="3m", maxOldProcesses=OLD_WORKERS) as found,
        _websocket(found) as stream,
    ):
        await _reaches(found, _ingress("attacker", "plain"))
        before = await found.running.reloads()
        results = [await _toggle(found, number) for number in range(TOGGLES)]
        # What the owner can see, once more than the interval between reloads holds the changes back.
        with trio.fail_after(30):
            while results[-1].held[-1:] != (SLOWED,):
                results.append(await _toggle(found, len(results)))
        assert await found.running.reloads() - before <= FREE
        assert await _is_open(stream, b"still there")

        # The attacker's changes of data, and all changes of the victim go on.
        reloads = await found.running.reloads()
        assert await _reaches(found, _ingress("attacker", "data")) < SOON
        await found.change()
        assert found.changes[-1] < SOON
        assert await found.running.reloads() == reloads
        assert await _reaches(found, _ingress("victim", "own", 7)) < SOON
        assert await found.running.reloads() == reloads + 1
        assert await _is_open(stream, b"and still")
