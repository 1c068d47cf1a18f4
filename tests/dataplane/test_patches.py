"""Servers and backends that come and go in a running instance, with traffic through them."""

import contextlib
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from haptic_trio.dataplane.binary import probe_version
from haptic_trio.dataplane.local.instance import LocalAgent
from haptic_trio.dataplane.local.master import MasterClient
from haptic_trio.dataplane.local.process import read_record
from haptic_trio.dataplane.local.runtime import RuntimeClient
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.haproxy.model import FileKind, Generation, make_file
from haptic_trio.haproxy.runtime.replies import ServerState, parse_servers_state
from tests.support.processes.haproxy import (
    BASE,
    backend,
    bodies_of,
    build_generation,
    fetch,
    instances,
    kill_and_wait_for_next,
    wait_for_body,
)
from tests.support.processes.ports import free_port

pytestmark = pytest.mark.haproxy

RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def site(port: int, servers: Iterable[int], *, more: str = "", entries: str = "", options: str = "") -> Generation:
    """Return a generation that forwards to *servers*, ports of the loopback interface, named by their place."""
    lines = "".join(f"    server s{place} 127.0.0.1:{one} {options}\n" for place, one in enumerate(servers, 1))
    profile = BASE.replace("defaults", "defaults http")
    text = f"{profile}\nfrontend web from http\n    bind 127.0.0.1:{port}\n"
    text += "    use_backend %[req.hdr(host),map(hosts.map)]\n    default_backend app\n"
    text += f"\nbackend app from http\n{lines}\n{more}"
    return build_generation(text, [make_file(FileKind.MAP, "hosts.map", entries)])


async def servers_of(root: Path) -> tuple[ServerState, ...]:
    """Return the servers that the process of the instance in *root* has."""
    record = read_record(root / "instances/local-1/process.json")
    assert record is not None
    client = RuntimeClient(Path(record.sockets) / "admin.sock", endpoint="local-1")
    return parse_servers_state(await client.ask("show servers state\n"))


async def sync_without_reload(agent: LocalAgent, generation: Generation) -> None:
    result = await sync_endpoint(agent, generation)
    assert result.changed
    assert not result.reloaded, result.reasons


@asynccontextmanager
async def keeping_alive() -> AsyncIterator[int]:
    """Serve requests on a port of the loopback interface, any number on one connection."""

    async def serve(stream: trio.SocketStream) -> None:
        # A connection that it keeps idle HAProxy resets.
        with contextlib.suppress(trio.BrokenResourceError):
            async for chunk in stream:
                await stream.send_all(RESPONSE * chunk.count(b"\r\n\r\n"))

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


async def test_worker_of_a_reload_by_another_program_is_not_patched(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,), backend("a") as one, backend("b") as two:
        await sync_endpoint(agent, site(port, [one]))
        await sync_without_reload(agent, site(port, [one, two]))
        record = read_record(instance_root / "instances/local-1/process.json")
        assert record is not None
        assert (await MasterClient(Path(record.sockets) / "master.sock", endpoint="x").reload(limit=10)).loaded
        result = await sync_endpoint(agent, site(port, [one, two], entries="other.org app\n"))
        assert result.reloaded
        assert "reloaded by another program" in result.reasons[0]
        assert await bodies_of(port) == {"a", "b"}
        # From then on it is known again.
        await sync_without_reload(agent, site(port, [two]))


async def test_traffic_follows_servers_that_come_and_go(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,), backend("a") as one, backend("b") as two:
        await sync_endpoint(agent, site(port, [one]))
        assert await fetch(port) == (200, "a")
        await sync_without_reload(agent, site(port, [one, two]))
        assert await bodies_of(port) == {"a", "b"}
        await sync_without_reload(agent, site(port, [two]))
        assert await bodies_of(port) == {"b"}
        assert [server.server for server in await servers_of(instance_root)] == ["s1"]
        assert (await agent.describe()).reloads == 0


def denying(port: int, addresses: str, hosts: str) -> Generation:
    """Return a generation that denies requests from addresses, and others for hosts; what it lets pass is 204."""
    return build_generation(
        f"{BASE}\nfrontend web\n    bind 127.0.0.1:{port}\n    acl bad src -f lists/addresses.txt\n"
        "    http-request deny if bad or { req.hdr(host) -i -m end -f lists/hosts.txt }\n"
        "    http-request return status 204\n",
        [
            make_file(FileKind.FILE, "lists/addresses.txt", addresses),
            make_file(FileKind.FILE, "lists/hosts.txt", hosts),
        ],
    )


async def test_keys_of_lists_take_effect_without_a_reload(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,):
        await sync_endpoint(agent, denying(port, "10.0.0.1\n", ""))
        assert (await fetch(port))[0] == 204
        await sync_without_reload(agent, denying(port, "# us\n10.0.0.1\n127.0.0.0/8\n", ""))
        assert (await fetch(port))[0] == 403
        many = "".join(f".bad{number}.example\n" for number in range(500))
        await sync_without_reload(agent, denying(port, "10.0.0.1\n", many))
        assert (await fetch(port))[0] == 204
        assert (await fetch(port, host="A.BAD499.example"))[0] == 403
        # A key that is there twice is gone once it is in no line.
        await sync_without_reload(agent, denying(port, "10.0.0.1\n", ".example\n.example\n"))
        assert (await fetch(port, host="x.example"))[0] == 403
        await sync_without_reload(agent, denying(port, "10.0.0.1\n", ".test\n"))
        assert (await fetch(port, host="x.example"))[0] == 204
        await kill_and_wait_for_next(agent)
        assert (await agent.repair()).found == {}
        assert (await fetch(port, host="x.test"))[0] == 403


async def test_a_host_name_in_a_list_of_addresses_is_left_to_a_reload(
    instance_root: Path, haproxy_binary: Path
) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,):
        await sync_endpoint(agent, denying(port, "10.0.0.1\n", ""))

        result = await sync_endpoint(agent, denying(port, "localhost\n10.0.0.2\n", ""))

        assert result.reloaded
        assert "not a valid" in result.reasons[0]
        assert (await agent.repair()).found == {}


async def test_restarted_process_has_the_added_objects(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,), backend("a") as one:
        await sync_endpoint(agent, site(port, []))
        await sync_without_reload(agent, site(port, [one]))
        await kill_and_wait_for_next(agent)
        await wait_for_body(port, "a")


async def test_idle_connections_do_not_keep_a_server(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,), keeping_alive() as one, backend("b") as two:
        await sync_endpoint(agent, site(port, [two, one]))
        async with await trio.open_tcp_stream("127.0.0.1", port) as client:
            for _ in range(4):
                await client.send_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                assert (await client.receive_some()).startswith(b"HTTP/1.1 200")
            await sync_without_reload(agent, site(port, [two]))
        assert [server.server for server in await servers_of(instance_root)] == ["s1"]


async def test_a_server_in_use_stays_in_maintenance_until_it_can_go(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,), backend("b") as two, backend("c") as three:
        with trio.socket.socket() as slow:
            await slow.bind(("127.0.0.1", 0))
            slow.listen()
            await sync_endpoint(agent, site(port, [two, slow.getsockname()[1]]))
            async with await trio.open_tcp_stream("127.0.0.1", port) as client:
                accepted = await ask_until_accepted(client, slow)
                smaller = site(port, [two])
                await sync_without_reload(agent, smaller)
                # It is in no file, and nothing new comes to it.
                assert await agent.fetch_running() == smaller
                states = {server.server: server.state for server in await servers_of(instance_root)}
                assert states == {"s1": "ready", "s2": "maint"}
                assert await bodies_of(port) == {"b"}
                with accepted:
                    await accepted.send(RESPONSE)
                assert (await client.receive_some()).endswith(b"ok")
            # The next patch needs the name, and finds it free.
            await sync_without_reload(agent, site(port, [two, three]))
            assert await bodies_of(port) == {"b", "c"}


async def test_a_server_that_is_wanted_again_while_it_is_in_use_is_revived(
    instance_root: Path, haproxy_binary: Path
) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,), backend("b") as two, backend("c") as three:
        with trio.socket.socket() as slow:
            await slow.bind(("127.0.0.1", 0))
            slow.listen()
            options = "maxconn 50 check inter 1h"
            await sync_endpoint(agent, site(port, [two, slow.getsockname()[1]], options=options))
            async with await trio.open_tcp_stream("127.0.0.1", port) as client:
                with await ask_until_accepted(client, slow) as accepted:
                    await sync_without_reload(agent, site(port, [two], options=options))
                    await sync_without_reload(agent, site(port, [two, three], options=f"weight 7 {options}"))
                    assert [
                        (one.server, one.port, one.weight, one.state) for one in await servers_of(instance_root)
                    ] == [
                        ("s1", two, 7, "ready"),
                        ("s2", three, 7, "ready"),
                    ]
                    assert await bodies_of(port) == {"b", "c"}
                    # The backend that used it continues, and no later change deletes it.
                    await accepted.send(RESPONSE)
                    assert (await client.receive_some()).endswith(b"ok")
            await sync_without_reload(agent, site(port, [two, three], options=f"weight 8 {options}"))
            assert [one.weight for one in await servers_of(instance_root)] == [8, 8]


async def test_a_name_that_is_still_taken_by_a_server_with_other_settings_reloads(
    instance_root: Path, haproxy_binary: Path
) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_binary) as (agent,), backend("b") as two, backend("c") as three:
        with trio.socket.socket() as slow:
            await slow.bind(("127.0.0.1", 0))
            slow.listen()
            await sync_endpoint(agent, site(port, [two, slow.getsockname()[1]]))
            async with await trio.open_tcp_stream("127.0.0.1", port) as client:
                with await ask_until_accepted(client, slow):
                    await sync_without_reload(agent, site(port, [two]))
                    added = site(port, [three], more=f"    server s2 127.0.0.1:{three} maxconn 9\n")
                    result = await sync_endpoint(agent, added)
                    assert result.reloaded
                    assert "still in use in app" in result.reasons[0]
            await wait_for_body(port, "c")


async def ask_until_accepted(client: trio.SocketStream, slow: trio.socket.SocketType) -> trio.socket.SocketType:
    """Send requests on *client* until one has reached *slow*, and leave that unanswered."""
    reached: list[trio.socket.SocketType] = []

    async def accept(scope: trio.CancelScope) -> None:
        accepted, _ = await slow.accept()
        await accepted.recv(65536)
        reached.append(accepted)
        scope.cancel()

    async def receive(scope: trio.CancelScope) -> None:
        await client.receive_some()
        scope.cancel()

    with trio.fail_after(5):
        while not reached:
            await client.send_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(accept, nursery.cancel_scope)
                nursery.start_soon(receive, nursery.cancel_scope)
    return reached[0]


@pytest.fixture
def haproxy_adding_backends(haproxy_binary: Path) -> Path:
    """An HAProxy that adds backends at run time."""
    version = probe_version(haproxy_binary)
    if version.number < (3, 4):
        pytest.skip(f"HAProxy {version.text} does not add backends; 3.4 does")
    return haproxy_binary


async def test_a_backend_comes_and_goes_with_its_route(instance_root: Path, haproxy_adding_backends: Path) -> None:
    port = free_port()
    async with instances(instance_root, haproxy_adding_backends) as (agent,), backend("a") as one, backend("n") as two:
        await sync_endpoint(agent, site(port, [one]))
        assert (await agent.describe()).capabilities.backends
        new = f"backend new from http\n    server s1 127.0.0.1:{two}\n"
        for _ in range(3):
            await sync_without_reload(agent, site(port, [one], more=new, entries="new.example new\n"))
            assert await fetch(port, host="new.example") == (200, "n")
            await sync_without_reload(agent, site(port, [one]))
            assert await fetch(port, host="new.example") == (200, "a")
        assert (await agent.describe()).reloads == 0
