"""Server of ASGI applications: a client ends its own connection alone, whatever it sends."""

import socket
import ssl
import stat
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing
import trustme
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.asgi.server import open_socket, serve_asgi
from haptic_trio.asgi.wire import Limits
from tests.asgi.attacks import ATTACKS, HANDSHAKE, HEALTH, POST, frame
from tests.asgi.site import Site, served

_BEGINNINGS = st.sampled_from([b"", HEALTH, POST, HANDSHAKE, HANDSHAKE + b"\r\n", POST + b"Content-Length: 9\r\n\r\n"])


async def test_no_bytes_of_a_client_end_the_server() -> None:
    async with served() as site:
        for name, data in ATTACKS:
            await site.ask(data)
            assert await site.is_healthy(), name


@given(st.lists(st.tuples(_BEGINNINGS, st.binary(max_size=200)), max_size=3))
def test_no_other_bytes_do(parts: list[tuple[bytes, bytes]]) -> None:
    async def attack() -> None:
        async with served() as site:
            await site.ask(b"".join(beginning + rest for beginning, rest in parts))
            assert await site.is_healthy()

    trio.run(attack)


async def test_a_connection_that_is_reset_affects_no_other() -> None:
    async with served() as site:
        for data in (HEALTH + b"\r\n", POST + b"Content-Length: 5\r\n\r\nabc", HANDSHAKE + b"\r\n", b"GET /large HT"):
            with socket.create_connection(("127.0.0.1", site.port)) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                client.sendall(data)
            assert await site.is_healthy()


async def test_a_bug_of_the_application_is_an_answer_and_the_server_goes_on() -> None:
    async with served() as site:
        assert (await site.ask(b"GET /bug HTTP/1.1\r\nHost: x\r\n\r\n")).startswith(b"HTTP/1.1 500 ")
        assert await site.is_healthy()


async def test_beyond_the_limit_the_longest_idle_connection_makes_room() -> None:
    async with served(Limits(connections=2, idle=3600)) as site, site.connection() as first:
        await first.send_all(b"GET /hea")
        async with site.connection() as second:
            await second.send_all(HEALTH + b"\r\n")
            assert await second.receive_some(1) == b"H"
            assert await site.is_healthy()
            assert await first.receive_some(1) == b""
            await second.send_all(HEALTH + b"\r\n")
            assert b"healthy" in await second.receive_some(1000)


async def test_connections_that_never_send_a_request_do_not_keep_others_out() -> None:
    async with served(Limits(connections=8, idle=3600)) as site, trio.open_nursery() as nursery:

        async def occupy() -> None:
            async with site.connection() as stream:
                await stream.send_all(b"G")
                await trio.sleep_forever()

        for _ in range(40):
            nursery.start_soon(occupy)
        for _ in range(5):
            assert await site.is_healthy()
        nursery.cancel_scope.cancel()


async def test_sessions_without_an_end_do_not_keep_others_out() -> None:
    async with served(Limits(connections=8, idle=3600)) as site, trio.open_nursery() as nursery:

        async def occupy(task_status: trio.TaskStatus[None]) -> None:
            async with site.connection() as stream:
                await stream.send_all(HANDSHAKE + b"\r\n")
                await stream.receive_some()
                task_status.started()
                while await stream.receive_some():
                    pass

        for _ in range(8):
            await nursery.start(occupy)
        async with site.connection() as slow:
            await slow.send_all(b"GET /healthz HTT")
            # Each of these takes the place of a session, not of the one that is about to send its request.
            for _ in range(20):
                await nursery.start(occupy)
                assert await site.is_healthy()
            await slow.send_all(b"P/1.1\r\nHost: x\r\n\r\n")
            assert await slow.receive_some(12) == b"HTTP/1.1 200"
        nursery.cancel_scope.cancel()


async def test_a_flood_from_one_address_does_not_disconnect_clients_at_other_addresses() -> None:
    async with served(Limits(connections=8, idle=3600)) as site, trio.open_nursery() as nursery:
        probe = await trio.open_tcp_stream("127.0.0.1", site.port, local_address="127.0.0.2")
        async with probe:
            await probe.send_all(b"GET /healthz HTT")
            # None of these sends a request, as the probe, which has been waiting the longest.
            for _ in range(20):
                connection = await nursery.start(_keep_open, site)
                await connection.send_all(b"G")
            await probe.send_all(b"P/1.1\r\nHost: x\r\n\r\n")
            assert await probe.receive_some(12) == b"HTTP/1.1 200"
        nursery.cancel_scope.cancel()


async def _keep_open(site: Site, task_status: trio.TaskStatus[trio.abc.Stream]) -> None:
    async with site.connection() as stream:
        task_status.started(stream)
        await trio.sleep_forever()


async def test_a_unix_socket_has_the_rights_of_the_umask(tmp_path: Path, nursery: trio.Nursery) -> None:
    path = tmp_path / "socket"
    for _ in range(2):
        # The second time, the socket of a former process is in the way.
        async with trio.open_nursery() as one:
            serve = partial(serve_asgi, Site().app(), f"unix:{path}", limits=Limits(), umask=0o177)
            assert await one.start(serve) == [f"http://unix:{path}"]
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            one.cancel_scope.cancel()


def test_a_port_that_is_taken_is_an_error() -> None:
    with open_socket("127.0.0.1:0") as bound, pytest.raises(OSError, match="in use"):
        open_socket(f"127.0.0.1:{bound.getsockname()[1]}")


def test_every_address_of_ipv6_is_also_one_of_ipv4() -> None:
    with open_socket("[::]:0") as bound, socket.create_connection(("127.0.0.1", bound.getsockname()[1])) as client:
        assert client.getpeername()[0] == "127.0.0.1"


MOST_IN_ONE_STEP = 2
"""The other task runs before or after the client whose turn it is."""


async def test_another_task_runs_between_any_two_parts_of_what_clients_send() -> None:
    head = b"POST /counted HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with served() as site, trio.open_nursery() as nursery:
        nursery.start_soon(site.run_beside)
        async with trio.open_nursery() as clients:
            for _ in range(4):
                clients.start_soon(site.ask, head + b"1\r\nx\r\n" * 500 + b"0\r\n\r\n")
                clients.start_soon(site.ask, b"GET /counted HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
                clients.start_soon(site.ask, HANDSHAKE + b"\r\n" + frame(1, b"x") * 100)
        nursery.cancel_scope.cancel()
    assert site.work.total() > 4 * (500 + 50 + 100)
    assert max(site.work.values()) <= MOST_IN_ONE_STEP


async def test_another_task_runs_between_any_two_parts_of_a_body_that_is_not_read() -> None:
    request = b"POST /none HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 500
    async with served() as site, trio.open_nursery() as nursery:
        nursery.start_soon(site.run_beside)
        before = site.passes
        assert (await site.ask(request + b"0\r\n\r\n" + b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n")).count(b" 404 ") == 2
        assert site.passes - before > 500
        nursery.cancel_scope.cancel()


async def test_another_task_runs_between_any_two_tls_handshakes() -> None:
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)

    async with served(context=server) as site, trio.open_nursery() as nursery:
        # In the middle of a handshake, before the private key is used.
        server.sni_callback = lambda *_names: site.note_work()
        streams = [await trio.open_tcp_stream("127.0.0.1", site.port) for _ in range(20)]
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(site.run_beside)
        async with trio.open_nursery() as clients:
            for stream in streams:
                clients.start_soon(trio.SSLStream(stream, client, server_hostname="localhost").do_handshake)
        for stream in streams:
            await trio.aclose_forcefully(stream)
        nursery.cancel_scope.cancel()
    assert site.work.total() == 20
    assert max(site.work.values()) <= MOST_IN_ONE_STEP
