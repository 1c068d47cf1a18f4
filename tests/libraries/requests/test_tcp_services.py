"""TCP services of the administrator's ConfigMap, in the notation of ingress-nginx, with real connections."""

import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trustme

from haptic_trio.gateway.listeners.port_rules import OF_TCP_SERVICES, PortRules
from haptic_trio.k8s.resource import Resource
from haptic_trio.templating.filters.tcp_services import TcpService, tcp_services
from tests.libraries.conftest import Cluster
from tests.support.components.rendering import Rendered
from tests.support.kubernetes import endpoint, endpoint_slice, service, tls_secret
from tests.support.processes.ports import free_port
from tests.support.traffic.servers import PATIENCE, socket_answers

LIBRARIES = ("base", "ssl", "tcp-services")


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@contextmanager
def greeting(name: str) -> Iterator[int]:
    """Run a server that speaks first, as MySQL and SMTP do, and returns each line; yields its port."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(f"{name}\n".encode())
            for line in self.rfile:
                self.wfile.write(line)

    with _Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def talk(port: int, text: bytes, lines: int, tls: ssl.SSLContext | None = None) -> list[bytes]:
    """Send *text* on a new connection, and return the first *lines* of the answer, fewer if the connection ends."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as plain:
        connection = tls.wrap_socket(plain, server_hostname="db.example.com") if tls else plain
        with connection, connection.makefile("rb") as answer:
            try:
                connection.sendall(text)
                return [line for _ in range(lines) if (line := answer.readline())]
            except ConnectionError:
                return []


def config_map(data: dict[str, str], namespace: str = "edge") -> Resource:
    metadata = {"name": "tcp-services", "namespace": namespace, "uid": f"uid-{namespace}"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def database(port: int, name: str = "db", namespace: str = "shop") -> list[Resource]:
    return [
        service(name, {"name": "sql", "port": 5432}, namespace=namespace),
        endpoint_slice(name, endpoint("127.0.0.1"), ports={"sql": port}, namespace=namespace),
    ]


def serve(cluster: Cluster, *objects: Resource, ports: list[Any], **context: Any) -> Rendered:
    settings = {"tcpServices": "edge/tcp-services", "tcpServicePorts": ports, **context}
    return cluster.serve(*objects, libraries=LIBRARIES, **settings)


@pytest.mark.haproxy
def test_connections_reach_the_service_by_the_name_or_number_of_its_port(cluster: Cluster) -> None:
    named, numbered = free_port(), free_port()
    with greeting("db") as running:
        data = {str(named): "shop/db:sql", str(numbered): "shop/db:5432"}
        serve(cluster, config_map(data), *database(running), ports=[named, numbered])

        for port in (named, numbered):
            assert talk(port, b"select\n", 2) == [b"db\n", b"select\n"]


@pytest.mark.haproxy
def test_the_proxy_protocol_is_taken_from_clients_and_sent_to_the_service(cluster: Cluster) -> None:
    decoding, encoding, both = free_port(), free_port(), free_port()
    head = b"PROXY TCP4 192.0.2.7 192.0.2.1 4000 5432\r\n"
    with greeting("db") as running:
        data = {
            str(decoding): "shop/db:sql:PROXY",
            str(encoding): "shop/db:sql::PROXY",
            str(both): "shop/db:sql:PROXY:PROXY",
        }
        serve(cluster, config_map(data), *database(running), ports=[decoding, encoding, both])

        assert talk(decoding, head + b"select\n", 2) == [b"db\n", b"select\n"]
        assert talk(decoding, b"select\n" * 20, 2) == []
        greeted, sent, line = talk(encoding, b"select\n", 3)
        assert (greeted, line) == (b"db\n", b"select\n")
        assert sent.startswith(b"PROXY TCP4 127.0.0.1 127.0.0.1 ")
        assert talk(both, head + b"select\n", 3) == [b"db\n", head, b"select\n"]


@pytest.mark.haproxy
def test_tls_is_terminated_with_the_certificate_of_the_secret(cluster: Cluster) -> None:
    port, without = free_port(), free_port()
    authority = trustme.CA()
    pair = authority.issue_cert("db.example.com")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    chain = b"".join(blob.bytes() for blob in pair.cert_chain_pems)
    with greeting("db") as running:
        rendered = serve(
            cluster,
            config_map({str(port): "shop/db:sql:::shop/pair", str(without): "shop/db:sql:::shop/absent"}),
            *database(running),
            tls_secret("pair", chain, pair.private_key_pem.bytes(), namespace="shop"),
            ports=[port, without],
        )

        assert talk(port, b"select\n", 2, tls=context) == [b"db\n", b"select\n"]
        # Without its certificate a port is closed, not served in the clear.
        assert not socket_answers(without)
        assert rendered.rejections == ()


@pytest.mark.haproxy
def test_only_the_named_config_map_and_allowed_ports_count(cluster: Cluster) -> None:
    open_port, other, forbidden = free_port(), free_port(), free_port()
    with greeting("db") as running:
        serve(
            cluster,
            config_map({str(open_port): "shop/db:sql", str(forbidden): "shop/db:sql"}),
            config_map({str(other): "shop/db:sql"}, namespace="tenant"),
            *database(running),
            ports=[open_port, other],
        )

        assert talk(open_port, b"", 1) == [b"db\n"]
        assert not socket_answers(other)
        assert not socket_answers(forbidden)


@pytest.mark.haproxy
def test_clients_that_the_administrator_denies_reach_no_tcp_service(cluster: Cluster) -> None:
    port = free_port()
    with greeting("db") as running:
        serve(
            cluster,
            config_map({str(port): "shop/db:sql"}),
            *database(running),
            ports=[port],
            deniedSources=["127.0.0.0/8"],
        )

        assert talk(port, b"select\n", 1) == []


@pytest.mark.haproxy
def test_a_broken_service_or_secret_costs_its_own_entries_alone(cluster: Cluster) -> None:
    port, broken, secured, absent = (free_port() for _ in range(4))
    with greeting("db") as running:
        data = {
            str(port): "shop/db:sql",
            str(broken): "tenant/db:sql",
            str(secured): "shop/db:sql:::tenant/pair",
            str(absent): "tenant/none:1",
            "any": "shop/db:sql",
        }
        bad = service("db", {"name": "sql", "port": 5432}, namespace="tenant")
        slices = endpoint_slice(
            "db", endpoint("127.0.0.1\n    server x 192.0.2.1:1"), ports={"sql": 1}, namespace="tenant"
        )
        rendered = serve(
            cluster,
            config_map(data),
            *database(running),
            *(bad, slices, tls_secret("pair", "no certificate", "no key", namespace="tenant")),
            ports=[port, broken, secured, absent],
        )

        assert set(rendered.rejected) == {"Service tenant/db", "Secret tenant/pair"}
        assert talk(port, b"select\n", 2) == [b"db\n", b"select\n"]
        assert talk(broken, b"select\n", 1) == []
        assert talk(absent, b"select\n", 1) == []
        assert not socket_answers(secured)


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("05432", "shop/db:sql", "its key is not a port"),
        ("70000", "shop/db:sql", "its key is not a port"),
        ("5433", "shop/db:sql", "the administrator does not allow port 5433"),
        ("5555", "shop/db:sql", "port 5555 is reserved"),
        ("5432", "db:sql", "does not name a Service and its port"),
        ("5432", "shop/db", "does not name a Service and its port"),
        ("5432", "shop/db:sql\n", ""),
        ("5432", "shop/db x:sql", "does not name a Service and its port"),
        ("5432", "shop/db:sql:proxy", "not PROXY or empty"),
        ("5432", "shop/db:sql::PROXY-V3", "not PROXY, PROXY-V1, PROXY-V2 or empty"),
        ("5432", "shop/db:sql:::pair", "not supported"),
        ("5432", "shop/db:sql:::shop/pair:1s", "not supported"),
        ("5432", "shop/db:sql:::shop/pair::shop/authority", "not supported"),
        ("5432", None, "does not name a Service and its port"),
    ],
)
def test_an_entry_that_cannot_be_served_says_why(key: str, value: str | None, problem: str) -> None:
    [entry] = tcp_services({key: value}, [5432, "5500-5600"], [5555, 0])

    assert problem in entry.problem
    assert bool(entry.problem) is bool(problem)


def test_entries_are_in_the_order_of_their_ports() -> None:
    found = tcp_services({"10000": "a/b:c", "9": "shop/db:1:PROXY:PROXY-V2:shop/pair"}, ["1-65535"], [])

    assert found[0] == TcpService(
        "9", 9, "shop", "db", "1", accepts_proxy=True, sends_proxy="v2", secret=("shop", "pair")
    )
    assert [entry.port for entry in found] == [9, 10_000]


def test_no_listener_of_a_gateway_gets_a_port_of_tcp_services() -> None:
    rules = PortRules.of_settings({"tcpServicePorts": [5432, "9000-9099"]})

    assert [rules.rejection(port) for port in (5432, 9050)] == [OF_TCP_SERVICES] * 2
    assert rules.rejection(80) == ""
