"""Server of ASGI applications: a client ends its own connection alone, whatever it sends."""

import socket
import stat
from functools import partial
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.asgi.server import open_socket, serve_asgi
from haptic_trio.asgi.wire import Limits
from tests.asgi.attacks import ATTACKS, HANDSHAKE, HEALTH, POST
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
