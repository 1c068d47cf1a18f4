"""The port of the in-process API server while the server is stopped."""

import socket

import pytest
from trio.testing import wait_all_tasks_blocked

from tests.support.api_server.server import serving


async def test_port_of_a_stopped_server_goes_to_no_other_process() -> None:
    async with serving() as server:
        server.stop()
        await wait_all_tasks_blocked()

        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", server.port))

        await server.start()
