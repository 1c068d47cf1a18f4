"""What filters do to a request, to its answer, and to a copy of it."""

import contextlib
import os
import socket
import time
from pathlib import Path

import pytest

from haptic_trio.k8s.resource import Resource
from tests.gateway.objects import gateway, made, route, rule
from tests.gateway.serving import endpoints, served
from tests.support.ports import free_port
from tests.support.traffic import ask, serving


def leading_to(name: str, port: int) -> list[Resource]:
    """Return a Service that leads to *port* of this machine."""
    return [made("Service", name, version="v1", spec={"ports": [{"port": 80}]}), endpoints(name, ("", port))]


@pytest.mark.haproxy
def test_a_copy_of_the_request_goes_to_the_mirror(tmp_path: Path) -> None:
    port = free_port()
    filters = [
        {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "x-a", "value": "b, %c"}]}},
        {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "copy", "port": 80}}},
    ]
    with serving("web") as running, socket.create_server(("127.0.0.1", 0)) as mirror:
        mirror.settimeout(5)
        objects = [
            gateway("gw", {"name": "web", "port": port, "protocol": "HTTP"}),
            *leading_to("web", running["web"]),
            *leading_to("copy", mirror.getsockname()[1]),
            route("web", rule("/", to="web", filters=filters)),
        ]
        with served(tmp_path, port, *objects):
            answer = ask(port, "a.test", "/here?q=1")
            connection, _ = mirror.accept()
            with connection:
                connection.settimeout(5)
                received = b""
                while b"\r\n\r\n" not in received:
                    received += connection.recv(4096)

    assert answer.body.startswith("web\n/here?q=1\n")
    assert "x-a: b, %c" in answer.body
    lines = received.decode().lower().split("\r\n")
    assert lines[0] == "get /here?q=1 http/1.1"
    assert {"host: a.test", "x-a: b, %c", "content-length: 0", "connection: close"} <= set(lines)


@pytest.mark.haproxy
def test_copies_that_nobody_answers_leave_descriptors_for_clients(tmp_path: Path) -> None:
    port = free_port()
    copy = {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "copy", "port": 80}}}
    with serving("web") as running, socket.create_server(("127.0.0.1", 0), backlog=4096) as mirror:
        mirror.settimeout(1)
        objects = [
            gateway("gw", {"name": "web", "port": port, "protocol": "HTTP"}),
            *leading_to("web", running["web"]),
            *leading_to("copy", mirror.getsockname()[1]),
            route("web", rule("/", to="web", filters=[copy] * 4)),
        ]
        threads = len(os.sched_getaffinity(0))
        with served(tmp_path, port, *objects):
            for _ in range(40 * threads):
                assert ask(port, "a.test").status == 200
            accepted = _accepted(mirror)
            # What is left of each copy is over, so there is room for others once HAProxy has seen it.
            for connection in accepted:
                connection.close()
            again: list[socket.socket] = []
            deadline = time.monotonic() + 30
            while len(again) < 4:
                assert time.monotonic() < deadline
                assert ask(port, "a.test").status == 200
                again += _accepted(mirror)

    for connection in again:
        connection.close()
    assert 4 <= len(accepted) <= 64 * threads


def _accepted(server: socket.socket) -> list[socket.socket]:
    """Return the connections to *server*, once there are no more."""
    found = []
    with contextlib.suppress(TimeoutError):
        while True:
            found.append(server.accept()[0])
    return found


@pytest.mark.haproxy
def test_answers_have_what_the_rule_and_the_backend_add(tmp_path: Path) -> None:
    port = free_port()
    changes = {"set": [{"name": "x-rule", "value": "%[env(HOME)]"}], "remove": ["server"]}
    filters = [
        {"type": "CORS", "cors": {"allowOrigins": ["https://*.test"], "exposeHeaders": ["x-rule"]}},
        {"type": "ResponseHeaderModifier", "responseHeaderModifier": changes},
    ]
    own = [{"type": "ResponseHeaderModifier", "responseHeaderModifier": {"add": [{"name": "x-own", "value": "1, 2"}]}}]
    found = rule("/", filters=filters)
    found["backendRefs"] = [{"name": "web", "port": 80, "filters": own}]
    with serving("web") as running:
        objects = [
            gateway("gw", {"name": "web", "port": port, "protocol": "HTTP"}),
            *leading_to("web", running["web"]),
            route("web", found),
        ]
        with served(tmp_path, port, *objects):
            known = ask(port, "a.test", headers={"Origin": "https://b.test"})
            unknown = ask(port, "a.test", headers={"Origin": "https://b.example"})

    assert (known.headers["x-rule"], known.headers["x-own"]) == ("%[env(HOME)]", "1, 2")
    assert "server" not in known.headers
    assert known.headers["access-control-allow-origin"] == "https://b.test"
    assert known.headers["access-control-expose-headers"] == "x-rule"
    assert "access-control-allow-origin" not in unknown.headers
    assert unknown.headers["x-own"] == "1, 2"
