"""Following agents: what happens unasked makes an endpoint new again, what was asked for does not."""

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest
import trio

from haptic_trio.dataplane.agent.client import AgentAddress
from haptic_trio.dataplane.agent.endpoint import RemoteAgent
from haptic_trio.dataplane.agent.endpoints import CONNECT_LIMIT, RemoteAgents, follow_once, is_suspicious
from haptic_trio.dataplane.agent.messages import AgentEvent, EventKind
from haptic_trio.dataplane.agent.tls import RenewedContext
from haptic_trio.dataplane.sync import sync_endpoint
from tests.support.agents import Authority, Serving, serving, serving_haproxy
from tests.support.endpoints import MemoryEndpoint
from tests.support.haproxy import answering, wait_for_body
from tests.support.ports import free_port


@pytest.mark.parametrize(
    ("event", "known", "suspicious"),
    [
        (AgentEvent(kind=EventKind.HELLO, sequence=0, generation="a"), "a", False),
        (AgentEvent(kind=EventKind.HELLO, sequence=0, generation="b"), "a", True),
        (AgentEvent(kind=EventKind.HELLO, sequence=0, generation=""), "", True),
        (AgentEvent(kind=EventKind.HEARTBEAT, sequence=0, generation="b"), "a", False),
        (AgentEvent(kind=EventKind.GENERATION, sequence=1, generation="b", deployed=True), "a", False),
        (AgentEvent(kind=EventKind.STARTED, sequence=1, generation="a", deployed=True), "a", False),
        (AgentEvent(kind=EventKind.STARTED, sequence=1, generation="a"), "a", True),
        (AgentEvent(kind=EventKind.CRASHED, sequence=1, generation="a"), "a", True),
        (AgentEvent(kind=EventKind.DRIFT, sequence=1, generation=""), "a", True),
        (AgentEvent(kind=EventKind.RESYNC, sequence=1, generation="a"), "a", True),
    ],
)
def test_what_calls_for_another_look(event: AgentEvent, known: str, suspicious: bool) -> None:
    assert is_suspicious(event, known) is suspicious


class Follower:
    """Takes events, and hands them on in order."""

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
async def test_deployments_crashes_and_changes_by_hand_are_told(instance_root: Path, haproxy_binary: Path) -> None:
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


async def test_silence_is_broken_by_heartbeats(tmp_path: Path) -> None:
    async with serving(MemoryEndpoint("local"), tmp_path, heartbeat=0.02) as served, following(served) as follower:
        assert (await follower.next(EventKind.HEARTBEAT)).sequence == 0
        await follower.next(EventKind.HEARTBEAT)


async def test_a_listener_who_may_not_is_refused(tmp_path: Path) -> None:
    async with serving(MemoryEndpoint("local"), tmp_path, allowed=["controller"]) as served:
        address = AgentAddress(name="edge-1", url=served.url)
        context = RenewedContext(served.authority.issue("mallory"), server=False)
        heard, why = await follow_once(address, context, lambda _event: None)
        assert not heard
        assert "403" in why


async def test_a_listener_whose_authority_was_replaced_hears_no_more(tmp_path: Path) -> None:
    async with serving(MemoryEndpoint("local"), tmp_path, heartbeat=0.02) as served:
        address = AgentAddress(name="edge-1", url=served.url)
        context = RenewedContext(served.authority.issue("controller"), server=False)
        replaced = trio.Event()

        def take(event: AgentEvent) -> None:
            if event.kind is EventKind.HEARTBEAT and not replaced.is_set():
                Authority(tmp_path / "other").replace(served.authority.path)
                replaced.set()

        with trio.fail_after(10):
            heard, why = await follow_once(address, context, take)
        assert heard
        assert "authorities have changed" in why


async def test_an_agent_that_is_not_there_or_no_agent_is_said_so(tmp_path: Path) -> None:
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
        heard, why = await follow_once(AgentAddress(name="x", url=f"https://127.0.0.1:{port}"), context, print)
        assert not heard
        assert why
        nursery.cancel_scope.cancel()


async def test_a_certificate_that_is_not_trusted_is_said_so_at_once(tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "stranger").issue("controller")
    async with serving(MemoryEndpoint("local"), tmp_path) as served:
        address = AgentAddress(name="edge-1", url=served.url)
        ours = served.authority.issue("controller")
        elsewhere = AgentAddress(name="edge-1", url=served.url, server_name="elsewhere.example")
        unknown_to_us = msgspec.structs.replace(ours, authorities=stranger.authorities)
        unknown_to_it = msgspec.structs.replace(stranger, authorities=ours.authorities)
        for where, files in ((address, unknown_to_us), (elsewhere, ours), (address, unknown_to_it)):
            with trio.fail_after(CONNECT_LIMIT / 2):
                heard, why = await follow_once(where, RenewedContext(files, server=False), print)
            assert not heard
            assert "certificate" in why.lower() or "unknown ca" in why.lower(), why


async def test_a_server_that_closes_instead_of_answering_is_not_waited_for(tmp_path: Path) -> None:
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
            heard, why = await follow_once(address, RenewedContext(authority.issue("controller"), server=False), print)
        assert not heard
        assert why
        nursery.cancel_scope.cancel()


class Published:
    """What was published, newest last."""

    def __init__(self) -> None:
        self.endpoints: list[tuple[RemoteAgent, ...]] = []
        self._more = trio.Event()

    def take(self, endpoints: tuple[RemoteAgent, ...]) -> None:
        self.endpoints.append(endpoints)
        self._more.set()
        self._more = trio.Event()

    async def more(self, than: int) -> tuple[RemoteAgent, ...]:
        """Return what was published after the first *than* times."""
        with trio.fail_after(10):
            while len(self.endpoints) <= than:
                await self._more.wait()
        return self.endpoints[-1]


async def test_agents_that_come_back_are_new_endpoints_under_their_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    endpoint, other = MemoryEndpoint("local"), MemoryEndpoint("local")
    published = Published()
    controller = authority.issue("controller")
    async with trio.open_nursery() as nursery:
        async with serving(other, tmp_path / "b", authority=authority) as second:
            async with serving(endpoint, tmp_path / "a", authority=authority) as first:
                addresses = [AgentAddress(name="one", url=first.url), AgentAddress(name="two", url=second.url)]
                agents = RemoteAgents(addresses, controller)
                before = await nursery.start(agents.run, published.take)
                assert [one.name for one in before] == ["one", "two"]
                # Both say hello, and nothing is known of them.
                await published.more(1)
                for one in published.endpoints[-1]:
                    await one.activate(answering(1, "one"))
                told = len(published.endpoints)
            port = int(first.url.rpartition(":")[2])
            endpoint.running = None
            options_at = f"127.0.0.1:{port}"
            async with serving(endpoint, tmp_path / "a", authority=authority, listen=options_at):
                after = await published.more(told)
                assert [one.name for one in after] == ["one", "two"]
                assert after[0] is not before[0]
                await after[0].activate(answering(1, "two"))
                assert endpoint.text == answering(1, "two").text
        nursery.cancel_scope.cancel()


async def test_an_agent_that_comes_back_with_what_it_had_is_looked_at_again_all_the_same(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    endpoint, published = MemoryEndpoint("local"), Published()
    wanted = answering(1, "one")
    port = free_port()
    listen = f"127.0.0.1:{port}"
    address = AgentAddress(name="one", url=f"https://127.0.0.1:{port}")
    async with trio.open_nursery() as nursery:
        agents = RemoteAgents([address], authority.issue("controller"))
        await nursery.start(agents.run, published.take)
        async with serving(endpoint, tmp_path / "a", authority=authority, listen=listen):
            (before,) = await published.more(0)
            await before.activate(wanted)
            told = len(published.endpoints)
        async with serving(endpoint, tmp_path / "a", authority=authority, listen=listen):
            # What was meant for it meanwhile has failed, and would otherwise wait out its backoff.
            (after,) = await published.more(told)
            assert after is not before
            assert await after.fetch_running() == wanted
        nursery.cancel_scope.cancel()
