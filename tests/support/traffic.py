"""Small HTTP servers that say who they are, and a client that sends exactly what a test says."""

import http.client
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
from cryptography import x509


class Answer(msgspec.Struct, frozen=True):
    """What came back."""

    status: int
    body: str
    headers: dict[str, str]
    """By lower-case name."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    who = ""

    def do_GET(self) -> None:
        seen = "\n".join(f"{name.lower()}: {value}" for name, value in self.headers.items())
        body = f"{self.who}\n{self.path}\n{seen}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, who: str, host: str) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, 0), type("Handler", (_Handler,), {"who": who}))


@contextmanager
def serving(*names: str, host: str = "127.0.0.1") -> Iterator[dict[str, int]]:
    """Run one server for each of *names* and yield their ports; the body of an answer begins with the name."""
    servers = {name: _Server(name, host) for name in names}
    threads = [threading.Thread(target=server.serve_forever, args=(0.01,)) for server in servers.values()]
    for thread in threads:
        thread.start()
    try:
        yield {name: server.server_address[1] for name, server in servers.items()}
    finally:
        for server in servers.values():
            server.shutdown()
            server.server_close()
        for thread in threads:
            thread.join()


def free_port() -> int:
    """Return a port that nothing listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def ask(
    port: int,
    host: str | None,
    path: str = "/",
    *,
    headers: dict[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    server_name: str | None = None,
) -> Answer:
    """Send one GET on a new connection; *host* None sends no Host header, as HTTP/1.0 allows."""
    with socket.create_connection(("127.0.0.1", port), 5) as plain:
        connection = tls.wrap_socket(plain, server_hostname=server_name or host) if tls else plain
        with connection:
            lines = [f"GET {path} HTTP/1.{0 if host is None else 1}", "Connection: close"]
            lines += [] if host is None else [f"Host: {host}"]
            lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
            connection.sendall("\r\n".join([*lines, "", ""]).encode())
            with http.client.HTTPResponse(connection, method="GET") as response:
                response.begin()
                found = {name.lower(): value for name, value in response.getheaders()}
                return Answer(response.status, response.read().decode(), found)


def names_of(port: int, server_name: str | None) -> set[str]:
    """Return the DNS names in the certificate that is served to a client asking for *server_name*."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), 5) as plain,
        context.wrap_socket(plain, server_hostname=server_name) as connection,
    ):
        return dns_names(connection.getpeercert(binary_form=True) or b"")


def dns_names(der: bytes) -> set[str]:
    """Return the DNS names of a certificate."""
    found = x509.load_der_x509_certificate(der).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return set(found.value.get_values_for_type(x509.DNSName))


def socket_answers(port: int) -> bool:
    """Whether something accepts connections on *port* of the loopback address."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
