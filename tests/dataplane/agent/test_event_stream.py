"""Event stream of an agent: events, heartbeats, and the reason reason a connection ended."""

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec
import pytest
import trio
import trio_websocket

from haptic_trio.dataplane.agent.client import AgentAddress
from haptic_trio.dataplane.agent.event_stream import BURST, CONNECT_LIMIT, follow_once
from haptic_trio.dataplane.agent.messages import AgentEvent, EventKind
from haptic_trio.dataplane.agent.tls import RenewedContext
from haptic_trio.dataplane.sync import sync_endpoint
from tests.support.components.agents import Authority, Serving, serving, serving_haproxy
from tests.support.components.endpoints import MemoryEndpoint
from tests.support.processes.haproxy import answering, wait_for_body
from tests.support.processes.ports import free_port


class Follower:
    """Receives events and returns them in order."""

    def __init__(self) -> None:
        self._in, self._out = trio.open_memory_channel[AgentEvent](1000)
        self.take: Callable[[AgentEvent], None] = self._in.send_nowait

    async def next(self, *kinds: EventKind) -> AgentEvent:
        """Return the next event of *kinds*."""
        with trio.fail_after(10):
            while (event := await self._out.receive()).kind not in kinds:
                pass
            return event


@asynccontextmanager
async def following(served: Serving) -> AsyncIterator[Follower]:
    """Follow the events of an agent; the first is the hello."""
    address = AgentAddress(name="edge-1", url=served.url)
    context = RenewedContext(served.authority.issue("listener"), server=False)
    follower = Follower()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow_once, address, context, follower.take)
        assert (await follower.next(*EventKind)).kind is EventKind.HELLO
        yield follower
        nursery.cancel_scope.cancel()


@pytest.mark.haproxy
async def test_events_report_deployments_crashes_and_edited_files(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    first = answering(port, "one")
    async with (
        serving_haproxy(instance_root, haproxy_binary) as served,
        served.remote() as remote,
        following(served) as follower,
    ):
        await sync_endpoint(remote, first)
        started = await follower.next(EventKind.STARTED)
        assert started.deployed
        changed = await follower.next(EventKind.GENERATION)
        assert (changed.generation, changed.sequence) == (first.id, started.sequence + 1)

        await sync_endpoint(remote, answering(port, "two"))
        reloaded = await follower.next(EventKind.RELOADED)
        assert (reloaded.deployed, reloaded.reloads) == (True, 1)

        os.kill(started.pid, signal.SIGKILL)
        crashed = await follower.next(EventKind.CRASHED)
        assert not crashed.deployed
        again = await follower.next(EventKind.STARTED)
        assert not again.deployed
        await wait_for_body(port, "two")

        config = instance_root / "agent/current/haproxy.cfg"
        config.chmod(0o600)
        config.write_text(config.read_text() + "# by hand\n")
        drift = await follower.next(EventKind.DRIFT)
        assert not drift.deployed
        await sync_endpoint(remote, answering(port, "two"))
        assert (await follower.next(EventKind.GENERATION)).generation == answering(port, "two").id


async def test_agent_without_news_sends_heartbeats(tmp_path: Path) -> None:
    async with serving(MemoryEndpoint("local"), tmp_path, heartbeat=0.02) as served, following(served) as follower:
        assert (await follower.next(EventKind.HEARTBEAT)).sequence == 0
        await follower.next(EventKind.HEARTBEAT)


async def test_client_that_is_not_allowed_is_rejected(tmp_path: Path) -> None:
    async with serving(MemoryEndpoint("local"), tmp_path, allowed=["controller"]) as served:
        address = AgentAddress(name="edge-1", url=served.url)
        context = RenewedContext(served.authority.issue("mallory"), server=False)
        received, reason = await follow_once(address, context, lambda _event: None)
        assert not received
        assert "403" in reason


async def test_connection_ends_when_its_authority_is_replaced(tmp_path: Path) -> None:
    async with serving(MemoryEndpoint("local"), tmp_path, heartbeat=0.02) as served:
        address = AgentAddress(name="edge-1", url=served.url)
        context = RenewedContext(served.authority.issue("controller"), server=False)
        replaced = trio.Event()

        def take(event: AgentEvent) -> None:
            if event.kind is EventKind.HEARTBEAT and not replaced.is_set():
                Authority(tmp_path / "other").replace(served.authority.path)
                replaced.set()

        with trio.fail_after(10):
            received, reason = await follow_once(address, context, take)
        assert received
        assert "CA certificates have changed" in reason


async def test_closed_port_and_server_that_is_not_an_agent_are_failures(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    context = RenewedContext(authority.issue("controller"), server=False)
    address = AgentAddress(name="edge-1", url=f"https://127.0.0.1:{free_port()}")
    assert (await follow_once(address, context, lambda _event: None))[0] is False

    async def nonsense(stream: trio.SSLStream[trio.SocketStream]) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(b"nonsense\r\n\r\n")

    server = RenewedContext(authority.issue("127.0.0.1"), server=True)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(
            partial(trio.serve_ssl_over_tcp, nonsense, 0, server, host="127.0.0.1", https_compatible=True)
        )
        port = listeners[0].transport_listener.socket.getsockname()[1]
        received, reason = await follow_once(AgentAddress(name="x", url=f"https://127.0.0.1:{port}"), context, print)
        assert not received
        assert reason
        nursery.cancel_scope.cancel()


async def test_untrusted_certificate_is_the_reason_at_once(tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "stranger").issue("controller")
    async with serving(MemoryEndpoint("local"), tmp_path) as served:
        address = AgentAddress(name="edge-1", url=served.url)
        trusted = served.authority.issue("controller")
        elsewhere = AgentAddress(name="edge-1", url=served.url, server_name="elsewhere.example")
        unknown_to_controller = msgspec.structs.replace(trusted, authorities=stranger.authorities)
        unknown_to_agent = msgspec.structs.replace(stranger, authorities=trusted.authorities)
        for where, files in ((address, unknown_to_controller), (elsewhere, trusted), (address, unknown_to_agent)):
            with trio.fail_after(CONNECT_LIMIT / 2):
                received, reason = await follow_once(where, RenewedContext(files, server=False), print)
            assert not received
            assert "certificate" in reason.lower() or "unknown ca" in reason.lower(), reason


async def test_server_that_closes_instead_of_answering_ends_the_attempt(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")

    async def close(stream: trio.SSLStream[trio.SocketStream]) -> None:
        async with stream:
            await stream.receive_some()

    server = RenewedContext(authority.issue("127.0.0.1"), server=True)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_ssl_over_tcp, close, 0, server, host="127.0.0.1"))
        port = listeners[0].transport_listener.socket.getsockname()[1]
        address = AgentAddress(name="edge-1", url=f"https://127.0.0.1:{port}")
        with trio.fail_after(CONNECT_LIMIT / 2):
            received, reason = await follow_once(
                address, RenewedContext(authority.issue("controller"), server=False), print
            )
        assert not received
        assert reason
        nursery.cancel_scope.cancel()


async def test_event_with_very_many_levels_ends_the_connection(tmp_path: Path) -> None:
    async def greet(socket: trio_websocket.WebSocketConnection) -> None:
        await socket.send_message('{"x":' + "[" * 20_000)

    received, reason = await follow_scripted(tmp_path, greet)
    assert not received
    assert reason.startswith("not an event")


async def test_an_agent_that_sends_events_without_an_end_is_disconnected(tmp_path: Path) -> None:
    taken: list[AgentEvent] = []

    async def flood(socket: trio_websocket.WebSocketConnection) -> None:
        while True:
            await socket.send_message('{"kind": "hello", "sequence": 1}')

    received, reason = await follow_scripted(tmp_path, flood, taken.append)
    assert not received
    assert "events per second" in reason
    assert BURST <= len(taken) < 2 * BURST


async def follow_scripted(
    root: Path,
    greet: Callable[[trio_websocket.WebSocketConnection], Awaitable[None]],
    take: Callable[[AgentEvent], None] = print,
) -> tuple[bool, str]:
    """Follow an agent that accepts a connection and then does *greet*, until the connection ends."""
    authority = Authority(root / "tls")
    context = RenewedContext(authority.issue("controller"), server=False)
    server = RenewedContext(authority.issue("127.0.0.1"), server=True)

    async def answer(stream: trio.SSLStream[trio.SocketStream]) -> None:
        async with trio.open_nursery() as nursery:
            request = await trio_websocket.wrap_server_stream(nursery, stream)
            socket = await request.accept()
            with suppress(trio_websocket.ConnectionClosed):
                await greet(socket)
                await socket.get_message()

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(
                partial(trio.serve_ssl_over_tcp, answer, 0, server, host="127.0.0.1", https_compatible=True)
            )
            port = listeners[0].transport_listener.socket.getsockname()[1]
            ended = await follow_once(AgentAddress(name="x", url=f"https://127.0.0.1:{port}"), context, take)
            nursery.cancel_scope.cancel()
    return ended
