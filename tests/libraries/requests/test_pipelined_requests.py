"""Many requests that a client sends at once on few connections, and a request of another client between them."""

import socket
import statistics
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from h2.connection import H2Connection

from haptic_trio.config.model import Config, Snippet
from haptic_trio.dataplane.binary import find_haproxy, probe_version
from tests.support.components.rendering import Rendered, library_config, render_config
from tests.support.processes.newer_haproxy import haproxy_3
from tests.support.processes.ports import free_port
from tests.support.traffic.proxy import running
from tests.support.traffic.raw import exchange

__all__ = ["haproxy_3"]

CONNECTIONS = 8
COSTLY = "/" + "%25" * 1350 + ";"
"""A path of which HAProxy makes several others."""


@pytest.mark.haproxy
def test_a_request_waits_for_few_of_the_requests_that_others_have_sent_at_once(tmp_path: Path) -> None:
    port = free_port()
    rendered = numbering(port)
    request = f"GET {COSTLY} HTTP/1.1\r\nHost: a.test\r\n\r\n".encode()
    with running(tmp_path, rendered.text, rendered.files, port=port), ExitStack() as stack:
        send_at_once(stack, port, request * 1_000)
        # Without the limit, each of the requests waits for about 180 others.
        assert typical_distance(port) < 60


@pytest.mark.haproxy
@pytest.mark.usefixtures("haproxy_3")
def test_a_request_waits_for_few_of_the_http2_requests_that_others_begin_and_reset_at_once(
    tmp_path: Path,
) -> None:
    number = probe_version(find_haproxy()).number
    if number[:2] in {(3, 0), (3, 1), (3, 3)} or number < (3, 2, 16):
        pytest.skip("this HAProxy has no limit on frames")
    port = free_port()
    rendered = numbering(port)
    with running(tmp_path, rendered.text, rendered.files, port=port), ExitStack() as stack:
        send_at_once(stack, port, resets(5_000))
        assert typical_distance(port) < 60


def numbering(port: int) -> Rendered:
    """Render a configuration of one thread that answers each request with HAProxy's number of it."""
    answer = '    http-request return status 200 content-type text/plain lf-string "%rt" if { always_true }\n'
    user = Config(template_snippets={"frontend-routing-user": Snippet(template=answer)})
    config = library_config("base", "ssl", "ingress", user=user, bindAddress="127.0.0.1", httpPort=port)
    rendered = render_config(config, [])
    return msgspec.structs.replace(rendered, text=rendered.text.replace("global\n", "global\n    nbthread 1\n", 1))


def send_at_once(stack: ExitStack, port: int, data: bytes) -> None:
    """Send *data* on each of the connections: as much as fits in the buffers of the kernel."""
    for _ in range(CONNECTIONS):
        connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        connection.setblocking(False)
        connection.send(data)


def typical_distance(port: int) -> float:
    """Return how many requests of others HAProxy begins between one of our own and the next one."""
    numbers = [int(exchange(port, "GET / HTTP/1.1", "Host: b.test").body) for _ in range(8)]
    return statistics.median(later - former for former, later in pairwise(numbers))


def resets(count: int) -> bytes:
    """Return an HTTP/2 connection's requests, each of which is reset before it is answered."""
    client = H2Connection()
    client.initiate_connection()
    for number in range(1, 2 * count, 2):
        client.send_headers(number, [(":method", "GET"), (":scheme", "http"), (":authority", "a.test"), (":path", "/")])
        client.reset_stream(number, 8)
    return client.data_to_send()
