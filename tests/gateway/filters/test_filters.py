"""Filters change a request and its response, and send copies of the request to mirrors."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from haptic_trio.k8s.resource import Resource
from tests.gateway.objects import gateway, made, route, rule
from tests.gateway.serving import endpoints, served
from tests.support.kubernetes import ingress, path
from tests.support.kubernetes import rule as kubernetes_rule
from tests.support.processes.ports import free_port
from tests.support.traffic.servers import ask, serving

MOST_COPIES_OF_NAMESPACE = 32
"""In each thread, as `gateway-filters.lua` has it."""


def leading_to(name: str, port: int, namespace: str = "web") -> list[Resource]:
    """Return a Service that leads to *port* of this machine."""
    found = [made("Service", name, version="v1", spec={"ports": [{"port": 80}]}), endpoints(name, ("", port))]
    for one in found:
        one["metadata"]["namespace"] = namespace
    return found


def mirroring(*names: str) -> list[dict[str, Any]]:
    """Return filters that mirror requests to the Services *names*."""
    return [{"type": "RequestMirror", "requestMirror": {"backendRef": {"name": name, "port": 80}}} for name in names]


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
def test_copies_without_an_answer_leave_descriptors_for_clients(tmp_path: Path) -> None:
    port = free_port()
    with serving("web") as running, socket.create_server(("127.0.0.1", 0), backlog=4096) as mirror:
        mirror.settimeout(1)
        objects = [
            gateway("gw", {"name": "web", "port": port, "protocol": "HTTP"}),
            *leading_to("web", running["web"]),
            *leading_to("copy", mirror.getsockname()[1]),
            route("web", rule("/", to="web", filters=mirroring(*["copy"] * 4))),
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
    assert 4 <= len(accepted) <= MOST_COPIES_OF_NAMESPACE * threads


@pytest.mark.haproxy
def test_mirrors_that_never_answer_leave_copies_for_other_namespaces(tmp_path: Path) -> None:
    port = free_port()
    everybody = {"namespaces": {"from": "All"}}
    names = [f"mute-{number}" for number in range(4)]
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(serving("web"))
        mirror, *mutes = (
            stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=4096)) for _ in range(1 + len(names))
        )
        mirror.settimeout(5)
        objects = [
            gateway("gw", {"name": "web", "port": port, "protocol": "HTTP", "allowedRoutes": everybody}),
            *leading_to("web", running["web"]),
            *leading_to("copy", mirror.getsockname()[1]),
            route("web", rule("/", to="web", filters=mirroring("copy")), hostnames=["victim.test"]),
            *leading_to("web", running["web"], "attacker"),
            *(
                one
                for name, mute in zip(names, mutes, strict=True)
                for one in leading_to(name, mute.getsockname()[1], "attacker")
            ),
            route(
                "attack",
                rule("/", to="web", filters=mirroring(*names)),
                hostnames=["attacker.test"],
                namespace="attacker",
                parents=[{"name": "gw", "namespace": "web"}],
            ),
        ]
        with served(tmp_path, port, *objects):
            for _ in range(100 * len(os.sched_getaffinity(0))):
                assert ask(port, "attacker.test").status == 200
            # Each is mirrored, whichever thread it comes to.
            for _ in range(16):
                assert ask(port, "victim.test").status == 200
                connection, _ = mirror.accept()
                with connection:
                    connection.settimeout(5)
                    assert connection.recv(16).startswith(b"GET / HTTP/1.1")


@pytest.mark.haproxy
def test_copies_whose_answers_do_not_end_hold_no_more_descriptors_than_others(tmp_path: Path) -> None:
    port = free_port()
    threads = len(os.sched_getaffinity(0))
    with serving("web") as running, dripping() as (mirror, accepted):
        objects = [
            gateway("gw", {"name": "web", "port": port, "protocol": "HTTP"}),
            *leading_to("web", running["web"]),
            *leading_to("copy", mirror),
            route("web", rule("/", to="web", filters=mirroring(*["copy"] * 4))),
        ]
        with served(tmp_path, port, *objects):
            for _ in range(40 * threads):
                assert ask(port, "a.test").status == 200

    assert 4 <= len(accepted) <= MOST_COPIES_OF_NAMESPACE * threads


@contextlib.contextmanager
def dripping() -> Iterator[tuple[int, list[socket.socket]]]:
    """Run a server that begins an answer on every connection and never ends it; yields its port and its connections."""
    connections: list[socket.socket] = []
    is_over = threading.Event()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=4096))

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connections.append(stack.enter_context(server.accept()[0]))
                    connections[-1].sendall(b"HTTP/1.1 200 OK\r\n\r\n")

        def drip() -> None:
            while not is_over.wait(0.5):
                for connection in tuple(connections):
                    with contextlib.suppress(OSError):
                        connection.sendall(b"a")

        workers = [threading.Thread(target=accept), threading.Thread(target=drip)]
        for worker in workers:
            worker.start()
        try:
            yield server.getsockname()[1], connections
        finally:
            is_over.set()
            server.shutdown(socket.SHUT_RDWR)
            for worker in workers:
                worker.join()


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


@pytest.mark.haproxy
def test_an_ingress_redirects_no_request_of_a_gateway(tmp_path: Path) -> None:
    port = free_port()
    elsewhere = {"type": "RequestRedirect", "requestRedirect": {"hostname": "answered.test"}}
    of_gateway = {"matches": [], "filters": [elsewhere]}
    attack = ingress("evil", kubernetes_rule("shop.test", path("/", "web")), tls=[{"hosts": ["shop.test"]}])
    objects = [
        gateway("gw", {"name": "web", "port": port, "protocol": "HTTP"}),
        route("shop", of_gateway, hostnames=["shop.test"]),
        attack,
    ]
    with served(tmp_path, port, *objects, libraries=("ingress",), sslRedirect=True, httpPort=free_port()) as rendered:
        assert "shop.test yes" in rendered.files["maps/tls-host.map"].content.decode()
        assert ask(port, "shop.test").headers["location"] == f"http://answered.test:{port}/"
