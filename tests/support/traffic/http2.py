"""An HTTP/2 client that sends exactly the fields that a test says, over TCP or TLS."""

import socket
import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import h2.connection
import h2.events
from h2.config import H2Configuration

from tests.support.traffic.servers import PATIENCE, Answer


class Http2Client:
    """One connection, and one request on it at a time."""

    def __init__(self, connection: socket.socket, *, goes_on: bool = False) -> None:
        self._socket = connection
        self._goes_on = goes_on
        settings = H2Configuration(
            client_side=True, header_encoding=None, validate_outbound_headers=False, normalize_outbound_headers=False
        )
        self._http = h2.connection.H2Connection(settings)
        self._http.initiate_connection()
        self._stream = 0
        self._answer: dict[str, str] = {}
        self._body = b""
        self._received = b""
        self._is_over = False

    def send(self, fields: Iterable[tuple[str, str]], *, end: bool = True) -> None:
        """Begin a request with *fields*, the pseudo-header fields first; without *end* data may follow."""
        self._stream = self._http.get_next_available_stream_id()
        self._answer, self._body, self._is_over = {}, b"", False
        self._http.send_headers(self._stream, [(n.encode(), v.encode()) for n, v in fields], end_stream=end)
        self._flush()

    def send_data(self, data: bytes) -> None:
        """Send *data* on the stream of the request."""
        self._http.send_data(self._stream, data)
        self._flush()

    def end(self) -> None:
        """End the body of the request, also if it is shorter than announced, and the server has reset the stream."""
        self._socket.sendall(b"\0\0\0\0\1" + self._stream.to_bytes(4))

    def answer(self) -> Answer:
        """Return the answer once the stream has ended; status 0 is a stream that the server reset."""
        while not self._is_over:
            self._receive()
        return Answer(int(self._answer.get(":status", "0")), self._body.decode(), self._answer)

    def wait_status(self) -> int:
        """Return the status of the answer, whose data may follow."""
        while not self._answer and not self._is_over:
            self._receive()
        return int(self._answer.get(":status", "0"))

    def wait_data(self, text: bytes) -> None:
        """Return once the data of the answer has *text* in it."""
        while text not in self._body:
            assert not self._is_over, self._body
            self._receive()

    def _flush(self) -> None:
        self._socket.sendall(self._http.data_to_send())

    def _receive(self) -> None:
        received = self._socket.recv(65536)
        self._is_over = not received
        self._received += received
        # Frame by frame: a client that goes on takes those that follow the end of the connection, too.
        while len(self._received) >= 9 + int.from_bytes(self._received[:3]):
            size = 9 + int.from_bytes(self._received[:3])
            frame, self._received = self._received[:size], self._received[size:]
            for event in self._http.receive_data(frame):
                self._take(event)
        self._flush()

    def _take(self, event: Any) -> None:
        if isinstance(event, h2.events.ConnectionTerminated) and self._goes_on:
            self._http.state_machine.state = h2.connection.ConnectionState.CLIENT_OPEN
        elif isinstance(event, h2.events.ConnectionTerminated):
            self._is_over = True
        if getattr(event, "stream_id", None) != self._stream:
            return
        if isinstance(event, h2.events.ResponseReceived):
            self._answer = {name.decode(): value.decode() for name, value in event.headers}
        elif isinstance(event, h2.events.DataReceived):
            self._body += event.data
            self._http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded | h2.events.StreamReset):
            self._is_over = True


@contextmanager
def connect_http2(
    port: int, *, tls: ssl.SSLContext | None = None, server_name: str | None = None, goes_on: bool = False
) -> Iterator[Http2Client]:
    """Connect to *port* of this machine until the block ends; without *tls* the server is known to speak HTTP/2.

    A client that *goes_on* sends further requests on a connection for which the server wants no more of them.
    """
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as plain:
        if tls is None:
            yield Http2Client(plain, goes_on=goes_on)
        else:
            tls.set_alpn_protocols(["h2"])
            with tls.wrap_socket(plain, server_hostname=server_name) as connection:
                yield Http2Client(connection, goes_on=goes_on)


def get(host: str, path: str = "/", **headers: str) -> list[tuple[str, str]]:
    """Return the fields of a GET; a `_` in the name of a header is a `-`."""
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return [(":method", "GET"), (":scheme", "https"), (":authority", host), (":path", path), *named]
