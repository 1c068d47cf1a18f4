"""The edge limits the streams of HTTP/2 and the waiting times for clients and servers, as seen on the wire."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.libraries.conftest import Cluster
from tests.libraries.requests.test_edge import edge
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service
from tests.support.traffic.servers import PATIENCE, ask

pytestmark = pytest.mark.haproxy

HERE = "127.0.0.1"
HOST = "a.example.com"
MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE = 3, 4
"""Settings of HTTP/2 (RFC 9113, 6.5.2)."""
REQUEST = f"GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()


@contextmanager
def connected(cluster: Cluster) -> Iterator[socket.socket]:
    with socket.create_connection((HERE, cluster.http_port), PATIENCE) as connection:
        yield connection


def read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        assert part, data
        data += part
    return data


def test_clients_of_http2_receive_their_limits(cluster: Cluster) -> None:
    cluster.serve(http2MaxConcurrentStreams=7, http2InitialWindowSize="128k")

    with connected(cluster) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        head = read(connection, 9)
        body = read(connection, int.from_bytes(head[:3]))

    assert head[3] == 4
    entries = [body[at : at + 6] for at in range(0, len(body), 6)]
    found = {int.from_bytes(entry[:2]): int.from_bytes(entry[2:]) for entry in entries}
    assert (found[MAX_CONCURRENT_STREAMS], found[INITIAL_WINDOW_SIZE]) == (7, 131072)


def test_clients_that_do_not_finish_are_not_waited_for(cluster: Cluster) -> None:
    with edge(cluster, timeoutHttpRequest="500ms", timeoutHttpKeepAlive="50ms"):
        with connected(cluster) as connection:
            connection.sendall(REQUEST[:-2])
            assert connection.recv(12) == b"HTTP/1.1 408"
        with connected(cluster) as connection:
            connection.sendall(REQUEST)
            answer = b"".join(iter(lambda: connection.recv(65536), b""))

    assert answer.startswith(b"HTTP/1.1 200")


def test_servers_that_say_nothing_are_not_waited_for(cluster: Cluster) -> None:
    with socket.create_server((HERE, 0)) as silent:
        cluster.serve(
            ingress("web", rule(HOST, path("/", "web"))),
            service("web"),
            endpoint_slice("web", endpoint(HERE), ports=silent.getsockname()[1]),
            timeoutServer="100ms",
            errorPages={"504": '{"later": true}'},
            errorPageType="application/json",
        )
        answer = ask(cluster.http_port, HOST)

    assert (answer.status, answer.headers["content-type"]) == (504, "application/json")
    assert json.loads(answer.body) == {"later": True}


@pytest.mark.parametrize(("newest", "protocol"), [(False, "HTTP/1.1"), (True, "HTTP/2.0")])
def test_the_log_says_what_a_client_speaks_and_asks(cluster: Cluster, newest: bool, protocol: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as log:
        log.bind((HERE, 0))
        log.settimeout(PATIENCE)
        target = f"{HERE}:{log.getsockname()[1]}"
        settings = {"accessLogTarget": target, "accessLogFormat": "json", "accessLogQuery": True}
        with edge(cluster, accessLog=True, **settings), httpx.Client(http1=not newest, http2=newest) as client:
            client.get(f"http://{HERE}:{cluster.http_port}/x?y=z", headers={"Host": HOST})
            entry: dict[str, Any] = {"path": ""}
            while entry["path"] != "/x":
                line = log.recv(65536).decode()
                entry = json.loads(line[line.index("{") :])

    assert (entry["protocol"], entry["query"], entry["host"]) == (protocol, "y=z", HOST)
