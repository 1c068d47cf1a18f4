"""Many requests that a client sends at once on few connections, and a request of another client between them."""

import socket
import statistics
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest

from haptic_trio.config.model import Config, Snippet
from tests.support.components.rendering import library_config, render_config
from tests.support.processes.ports import free_port
from tests.support.traffic.proxy import running
from tests.support.traffic.raw import exchange

CONNECTIONS = 8
COSTLY = "/" + "%25" * 1350 + ";"
"""A path of which HAProxy makes several others."""


@pytest.mark.haproxy
def test_a_request_waits_for_few_of_the_requests_that_others_have_sent_at_once(tmp_path: Path) -> None:
    port = free_port()
    # HAProxy's number of the request.
    answer = '    http-request return status 200 content-type text/plain lf-string "%rt" if { always_true }\n'
    user = Config(template_snippets={"frontend-routing-user": Snippet(template=answer)})
    config = library_config("base", "ssl", "ingress", user=user, bindAddress="127.0.0.1", httpPort=port)
    rendered = render_config(config, [])
    text = rendered.text.replace("global\n", "global\n    nbthread 1\n", 1)
    request = f"GET {COSTLY} HTTP/1.1\r\nHost: a.test\r\n\r\n".encode()
    with running(tmp_path, text, rendered.files, port=port), ExitStack() as stack:
        for _ in range(CONNECTIONS):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            connection.setblocking(False)
            # As much as fits in the buffers of the kernel: many more requests than the other ones here wait for.
            connection.send(request * 1_000)
        numbers = [int(exchange(port, "GET / HTTP/1.1", "Host: b.test").body) for _ in range(8)]

    # Without the limit, each of the requests waits for about 180 others.
    assert statistics.median(later - former for former, later in pairwise(numbers)) < 60
