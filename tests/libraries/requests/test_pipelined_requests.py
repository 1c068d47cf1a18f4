"""Many requests that a client sends at once on few connections: how many HAProxy begins before it looks for others."""

import csv
import re
import socket
import socketserver
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Thread

import msgspec
import pytest
from h2.connection import H2Connection

from haptic_trio.dataplane.binary import find_haproxy, probe_version
from tests.haproxy.conftest import running_haproxy
from tests.libraries.tenants.tenants import HI
from tests.support.components.rendering import library_config, render_config
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service
from tests.support.processes.newer_haproxy import haproxy_3
from tests.support.processes.ports import free_port

__all__ = ["haproxy_3"]

CONNECTIONS = 8
FRAMES = 20_000
COSTLY = "/" + "%25" * 1350 + ";"
"""A path of which HAProxy makes several others."""


@pytest.mark.haproxy
def test_haproxy_looks_for_others_after_few_of_the_requests_that_a_client_has_sent_at_once() -> None:
    request = f"GET {COSTLY} HTTP/1.1\r\nHost: a.test\r\n\r\n".encode()
    # Without the limit, 2.8 begins more than 40 of them.
    assert requests_of_a_pass(request * 1_000, 200) < 20


@pytest.mark.haproxy
@pytest.mark.usefixtures("haproxy_3")
def test_haproxy_looks_for_others_after_few_of_the_http2_requests_that_a_client_begins_and_resets_at_once() -> None:
    skip_without_limit_on_frames()
    # Without the limit, it begins more than 60.
    assert requests_of_a_pass(resets(5_000), 5_000) < 20


@pytest.mark.haproxy
@pytest.mark.usefixtures("haproxy_3")
def test_haproxy_looks_for_others_after_few_of_the_frames_that_http2_servers_send_at_once() -> None:
    skip_without_limit_on_frames()
    port = free_port()
    config = library_config(
        "base", "ssl", "ingress", "haproxy-ingress-annotations", bindAddress="127.0.0.1", httpPort=port
    )
    with flooding() as server, ExitStack() as stack:
        objects = (
            ingress("web", rule(None, path("/", "web")), annotations={f"{HI}backend-protocol": "h2"}),
            service("web"),
            endpoint_slice("web", endpoint("127.0.0.1"), ports=server),
        )
        rendered = render_config(config, objects)
        text = rendered.text.replace("global\n", "global\n    nbthread 1\n", 1)
        files = {name: content.encode() for name, content in rendered.files.items()}
        ask, _ = stack.enter_context(running_haproxy(find_haproxy(), lambda _: (text, files)))
        for _ in range(CONNECTIONS):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            connection.sendall(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
        before = counts(ask).passes
        while settings_of_servers(ask) < CONNECTIONS * FRAMES:
            pass
        frames_of_a_pass = CONNECTIONS * FRAMES / (counts(ask).passes - before)

    # Without the limit, it reads more than 5,000.
    assert frames_of_a_pass < CONNECTIONS * 110


def skip_without_limit_on_frames() -> None:
    """Skip the test for versions of HAProxy that have no limit."""
    number = probe_version(find_haproxy()).number
    if number[:2] in {(3, 0), (3, 1), (3, 3)} or number < (3, 2, 16):
        pytest.skip("this HAProxy has no limit on frames")


class _Flood(socketserver.BaseRequestHandler):
    """Answers a request over HTTP/2 with `FRAMES` frames of settings, and reads what comes back."""

    def handle(self) -> None:
        self.request.recv(65_536)
        self.request.sendall(bytes.fromhex("000000040000000000") * FRAMES)
        while self.request.recv(65_536):
            pass


@contextmanager
def flooding() -> Iterator[int]:
    """Run such a server until the block ends, and yield its port."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Flood) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def settings_of_servers(ask: Callable[[str], str]) -> int:
    """Ask HAProxy how many frames of settings it has read from servers."""
    rows = csv.DictReader(ask("show stat").removeprefix("# ").splitlines())
    return sum(int(row["h2_settings_rcvd"] or 0) for row in rows if row["svname"] == "BACKEND")


def requests_of_a_pass(data: bytes, number: int) -> float:
    """Return how many requests HAProxy begins, on average, between two looks at its connections.

    Each of `CONNECTIONS` connections sends *data*, as much as fits in the
    buffers of the kernel; it must make *number* requests at least. HAProxy
    has one thread, and counts by itself.
    """
    port = free_port()
    config = library_config("base", "ssl", "ingress", bindAddress="127.0.0.1", httpPort=port)
    rendered = render_config(config, [])
    text = rendered.text.replace("global\n", "global\n    nbthread 1\n", 1)
    files = {name: content.encode() for name, content in rendered.files.items()}
    with running_haproxy(find_haproxy(), lambda _: (text, files)) as (ask, _), ExitStack() as stack:
        for _ in range(CONNECTIONS):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            connection.setblocking(False)
            connection.send(data)
        before = after = counts(ask)
        while after.requests < before.requests + number:
            after = counts(ask)
    return (after.requests - before.requests) / (after.passes - before.passes)


class Counts(msgspec.Struct, frozen=True):
    """What HAProxy has done since its start."""

    requests: int
    passes: int
    """How often it has looked at its connections."""


def counts(ask: Callable[[str], str]) -> Counts:
    """Ask HAProxy for its counts."""
    said = ask("show info; show activity")
    found = [re.search(rf"^{name}: (\d+)", said, re.MULTILINE) for name in ("CumReq", "loops")]
    return Counts(*(int(match[1]) for match in found if match))


def resets(count: int) -> bytes:
    """Return an HTTP/2 connection's requests, each of which is reset before it is answered."""
    client = H2Connection()
    client.initiate_connection()
    for number in range(1, 2 * count, 2):
        client.send_headers(number, [(":method", "GET"), (":scheme", "http"), (":authority", "a.test"), (":path", "/")])
        client.reset_stream(number, 8)
    return client.data_to_send()
