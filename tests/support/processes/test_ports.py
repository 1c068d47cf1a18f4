"""A port that a test reserved stays its own until it listens there."""

import socket

import pytest
import trio

from tests.support.processes.ports import KEPT, free_port


async def test_reserved_port_refuses_connections_until_a_process_listens() -> None:
    port = free_port()
    with pytest.raises(OSError, match="all attempts to connect"):
        await trio.open_tcp_stream("127.0.0.1", port)

    (listener,) = await trio.open_tcp_listeners(port, host="127.0.0.1")
    async with listener, await trio.open_tcp_stream("127.0.0.1", port), await listener.accept():
        pass


def test_port_that_was_given_is_in_use_for_those_who_do_not_name_it_on_purpose() -> None:
    port = free_port()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))


def test_no_port_is_given_twice_while_it_is_kept() -> None:
    assert len({free_port() for _ in range(KEPT)}) == KEPT
