"""Small HTTP servers that say who they are, and a client that sends exactly what a test says."""

import http.client
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
from cryptography import x509

PATIENCE = 20.0
"""Seconds for which a client waits for each part of an answer, however busy the machine is."""


class Answer(msgspec.Struct, frozen=True):
    """What came back."""

    status: int
    body: str
    headers: dict[str, str]
    """By lower-case name."""


class QuietHandler(BaseHTTPRequestHandler):
    """Answers requests, and says nothing of that."""

    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        """Answer the request in hand."""
        raise NotImplementedError

    def do_GET(self) -> None:
        self.answer()

    def do_POST(self) -> None:
        self.answer()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
        """Say nothing."""


class _Named(QuietHandler):
    who = ""

    def answer(self) -> None:
        seen = "\n".join(f"{name.lower()}: {value}" for name, value in self.headers.items())
        body = f"{self.who}\n{self.path}\n{seen}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Server(ThreadingHTTPServer):
    # A connection that HAProxy keeps is no reason to wait at the end.
    daemon_threads = True
    # The machine may be too busy to take connections at once.
    request_queue_size = 128

    def __init__(self, host: str, handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext | None) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, 0), handler)
        if tls is not None:
            # The handshake belongs to the thread of its connection.
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client may disconnect, or reject the certificate, at any moment."""


@contextmanager
def answering(
    handler: type[BaseHTTPRequestHandler], *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> Iterator[int]:
    """Run a server whose connections *handler* answers, a thread for each, and yield its port; over *tls* if given."""
    server = _Server(host, handler, tls)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def serving(*names: str, host: str = "127.0.0.1") -> Iterator[dict[str, int]]:
    """Run one server for each of *names* and yield their ports; the body of an answer begins with the name."""
    with ExitStack() as stack:
        handlers = {name: type("Handler", (_Named,), {"who": name}) for name in names}
        yield {name: stack.enter_context(answering(handler, host=host)) for name, handler in handlers.items()}


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
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as plain:
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
        socket.create_connection(("127.0.0.1", port), PATIENCE) as plain,
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
