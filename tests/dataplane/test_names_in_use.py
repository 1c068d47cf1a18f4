"""A server that is in use cannot be replaced under its name without a reload: that waits, and others do not."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from haptic_trio.dataplane.agent.api import reject
from haptic_trio.dataplane.endpoint import DriftReport, PatchRejectedError
from haptic_trio.dataplane.names_in_use import NamesInUseError, backends_in_use
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.haproxy.model import Generation
from haptic_trio.haproxy.plan.operations import DeleteBackend, DeleteServer
from tests.dataplane.test_patches import RESPONSE, ask_until_accepted, servers_of
from tests.support.processes.haproxy import BASE, build_generation, instances, kill_and_wait_for_next
from tests.support.processes.ports import free_port

ATTACKER = frozenset({"attacker"})


def site(port: int, slow: int, options: str, *, others: int = 1, servers: int = 2) -> Generation:
    """Return a generation with a backend of an attacker, whose servers have *options*, and one of a victim."""
    mine = [
        f"    server s{one} 127.0.0.1:{slow} {options if one < 3 else 'weight 0'}\n" for one in range(1, servers + 1)
    ]
    theirs = [f"    server s{one} 127.0.0.1:1\n" for one in range(1, others + 1)]
    return build_generation(
        f"{BASE.replace('defaults', 'defaults http')}frontend web from http\n    bind 127.0.0.1:{port}\n"
        f"    default_backend attacker_web_80\nbackend attacker_web_80 from http\n{''.join(mine)}"
        f"backend victim_web_80 from http\n{''.join(theirs)}"
    )


@asynccontextmanager
async def held_open(port: int, slow: trio.socket.SocketType) -> AsyncIterator[None]:
    """Have a request to *port* wait for its answer by the server *slow* until the block ends."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as client:
        with await ask_until_accepted(client, slow) as accepted:
            yield
            await accepted.send(RESPONSE)


@asynccontextmanager
async def slow_server() -> AsyncIterator[tuple[trio.socket.SocketType, int]]:
    with trio.socket.socket() as slow:
        await slow.bind(("127.0.0.1", 0))
        slow.listen()
        yield slow, slow.getsockname()[1]


@pytest.mark.haproxy
async def test_servers_that_a_tenant_keeps_in_use_cause_no_reload_that_is_not_permitted(
    instance_root: Path, haproxy_binary: Path
) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,), slow_server() as (slow, place):
        before = site(port, place, "maxconn 50", servers=3)
        await sync_endpoint(agent, before)
        async with held_open(port, slow):
            results = [
                await sync_endpoint(agent, site(port, place, "maxconn 51", servers=3, others=2), may_reload=False),
                await sync_endpoint(agent, site(port, place, "maxconn 52", servers=3, others=3), slowed=ATTACKER),
            ]

            assert [result.reloaded for result in results] == [False, False]
            assert (await agent.describe()).reloads == 0
            assert {result.causes for result in results} == {ATTACKER}
            assert all("in use in attacker_web_80" in result.held[0] for result in results)
            # Changes of others do not wait, and what runs is what is recorded.
            running = await agent.fetch_running()
            assert running is not None
            assert running.text == site(port, place, "maxconn 50", servers=3, others=3).text
            assert await agent.repair() == DriftReport()
            found = {(one.backend, one.server): one.state for one in await servers_of(instance_root)}
            assert set(found.values()) == {"ready"}
            assert len(found) == 6

            last = await sync_endpoint(agent, site(port, place, "maxconn 52", servers=3, others=3))
            assert (last.reloaded, last.causes) == (True, ATTACKER)
        await kill_and_wait_for_next(agent)
        assert await agent.repair() == DriftReport()


@pytest.mark.haproxy
async def test_a_removed_server_that_is_in_use_leaves_its_name_to_no_other_one(
    instance_root: Path, haproxy_binary: Path
) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,), slow_server() as (slow, place):
        await sync_endpoint(agent, site(port, place, "maxconn 50", servers=1))
        async with held_open(port, slow):
            assert not (await sync_endpoint(agent, site(port, place, "", servers=0))).reloaded
            again = site(port, place, "maxconn 51", servers=1, others=2)
            result = await sync_endpoint(agent, again, may_reload=False)

            assert (result.reloaded, result.causes, result.operations) == (False, ATTACKER, 2)
            assert await agent.fetch_running() == site(port, place, "", servers=0, others=2)
        # Once it is no longer in use, no reload is needed.
        result = await sync_endpoint(agent, again, may_reload=False)
        assert (result.reloaded, result.held) == (False, ())
        assert await agent.fetch_running() == again


def test_an_error_names_the_backends_also_as_the_text_of_an_agent() -> None:
    names = [f"n_{number:02}_80" for number in range(30)]
    error = NamesInUseError("local-1", [DeleteServer("gateway::a_b_80", "s1"), *map(DeleteBackend, names)])
    remote = PatchRejectedError("pod-1", f"{reject(error).answer.message}; activate instead")
    expected = ("gateway::a_b_80", *names[:19])
    assert (backends_in_use(error), backends_in_use(remote)) == (expected, expected)


def test_other_rejections_name_none() -> None:
    assert backends_in_use(PatchRejectedError("local-1", "'add server a_b_80/s1 127.0.0.1:1': No such backend.")) == ()
