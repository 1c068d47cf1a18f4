"""An HTTP/3 client for tests: aioquic decides what to send and when, this has the UDP socket and the clock."""

import ssl
from collections.abc import Mapping
from typing import Any

import trio
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, H3Event, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import ConnectionTerminated, HandshakeCompleted, StreamReset
from aioquic.tls import SessionTicket, load_pem_private_key, load_pem_x509_certificates
from cryptography.hazmat.primitives.serialization import Encoding

from tests.support.traffic.servers import PATIENCE, Answer, dns_names

NO_ERROR = "0x100"
"""How HTTP/3 says that a connection ended in good order (RFC 9114, 8.1)."""
_LARGEST_DATAGRAM = 65536


class Http3Error(Exception):
    """The connection ended, or none came about; a new one may fare better."""


class Http3Client:
    """One connection, which `run_http3` keeps going."""

    def __init__(self, socket: trio.socket.SocketType, configuration: QuicConfiguration) -> None:
        self._socket = socket
        self.tickets: list[SessionTicket] = []
        """What later connections may resume this one's TLS session by."""
        self.has_resumed = False
        """Whether this one has resumed a TLS session."""
        self._quic = QuicConnection(configuration=configuration, session_ticket_handler=self.tickets.append)
        self._http = H3Connection(self._quic)
        self._answers: dict[int, _Answer] = {}
        self._waiting = trio.CancelScope()
        self._is_ready = False
        self._ended = trio.Event()
        self._reason = ""

    async def run(self, address: Any, *, task_status: trio.TaskStatus["Http3Client"]) -> None:
        """Keep the connection going until it ends; started() means that the handshake is through."""
        self._quic.connect(address, now=trio.current_time())
        await self._send()
        while not self._ended.is_set():
            was_ready = self._is_ready
            with trio.CancelScope(deadline=self._deadline()) as self._waiting:
                await self._receive()
            if self._waiting.cancelled_caught:
                self._quic.handle_timer(now=trio.current_time())
            self._take_events()
            await self._send()
            if self._is_ready and not was_ready:
                task_status.started(self)
        if not self._is_ready:
            raise Http3Error(self._reason)

    async def ask(self, host: str, path: str = "/", *, headers: Mapping[str, str] | None = None) -> Answer:
        """Send one GET; raises Http3Error where the connection ends before the answer does."""
        pseudo = {":method": "GET", ":scheme": "https", ":authority": host, ":path": path}
        return await self.send({**pseudo, **(headers or {})})

    async def send(self, request: Mapping[str, str], *, end: bool = True) -> Answer:
        """Send the fields of a request, pseudo-header fields first; without *end* its body never comes.

        Raises what `ask` does.
        """
        if self._ended.is_set():
            raise Http3Error(self._reason)
        stream = self._quic.get_next_available_stream_id()
        answer = self._answers[stream] = _Answer()
        fields = [(name.lower().encode(), value.encode()) for name, value in request.items()]
        self._http.send_headers(stream, fields, end_stream=end)
        await self._send()
        with trio.fail_after(PATIENCE):
            await answer.complete.wait()
        del self._answers[stream]
        if not answer.is_whole:
            raise Http3Error(self._reason)
        return answer.read()

    async def wait_ended(self) -> str:
        """Return why the connection ended, once it has: the server's code, and what it said."""
        with trio.fail_after(PATIENCE):
            await self._ended.wait()
        return self._reason

    @property
    def names(self) -> set[str]:
        """The DNS names of the certificate that the server showed."""
        certificate = self._quic.tls._peer_certificate
        assert certificate is not None
        return dns_names(certificate.public_bytes(Encoding.DER))

    def _deadline(self) -> float:
        timer = self._quic.get_timer()
        return float("inf") if timer is None else timer

    async def _receive(self) -> None:
        try:
            data, address = await self._socket.recvfrom(_LARGEST_DATAGRAM)
        except ConnectionRefusedError:
            # No process has the port at the moment. The timer tries again.
            return
        self._quic.receive_datagram(data, address, now=trio.current_time())

    async def _send(self) -> None:
        for data, _address in self._quic.datagrams_to_send(now=trio.current_time()):
            try:
                await self._socket.send(data)
            except ConnectionRefusedError:
                break
        # What was sent may have to be sent again sooner than was known when the waiting began.
        self._waiting.deadline = self._deadline()

    def _take_events(self) -> None:
        while (event := self._quic.next_event()) is not None:
            if isinstance(event, HandshakeCompleted):
                self._is_ready, self.has_resumed = True, event.session_resumed
            elif isinstance(event, ConnectionTerminated):
                self._end(f"{event.error_code:#x} {event.reason_phrase}".strip())
            elif isinstance(event, StreamReset) and event.stream_id in self._answers:
                self._answers[event.stream_id].complete.set()
            for found in self._http.handle_event(event):
                self._take(found)

    def _take(self, event: H3Event) -> None:
        if not isinstance(event, HeadersReceived | DataReceived) or event.stream_id not in self._answers:
            return
        answer = self._answers[event.stream_id]
        if isinstance(event, HeadersReceived):
            answer.fields |= {name.decode(): value.decode() for name, value in event.headers}
        else:
            answer.body += event.data
        if event.stream_ended:
            answer.is_whole = True
            answer.complete.set()

    def _end(self, reason: str) -> None:
        self._reason = reason
        self._ended.set()
        for answer in self._answers.values():
            answer.complete.set()


class _Answer:
    """What has come of an answer so far."""

    def __init__(self) -> None:
        self.fields: dict[str, str] = {}
        self.body = b""
        self.is_whole = False
        self.complete = trio.Event()

    def read(self) -> Answer:
        headers = {name: value for name, value in self.fields.items() if not name.startswith(":")}
        return Answer(int(self.fields[":status"]), self.body.decode(), headers)


async def run_http3(
    port: int,
    server_name: str,
    *,
    authority: bytes | None = None,
    pair: tuple[bytes, bytes] | None = None,
    ticket: SessionTicket | None = None,
    host: str = "127.0.0.1",
    task_status: trio.TaskStatus[Http3Client],
) -> None:
    """Connect to *port* of *host* as a client that wants *server_name*, until the connection ends.

    started() hands the client out, connected. The server's certificate has to
    be of *authority* (PEM); without one, any will do. *pair* is the client's
    own certificate and its key (PEM), *ticket* one of another connection. Raises Http3Error where no connection
    comes about.
    """
    configuration = QuicConfiguration(
        alpn_protocols=["h3"],
        server_name=server_name,
        cadata=authority,
        verify_mode=ssl.CERT_NONE if authority is None else ssl.CERT_REQUIRED,
        idle_timeout=PATIENCE,
        session_ticket=ticket,
    )
    if pair is not None:
        configuration.certificate = load_pem_x509_certificates(pair[0])[0]
        configuration.private_key = load_pem_private_key(pair[1])
    family = trio.socket.AF_INET6 if ":" in host else trio.socket.AF_INET
    with trio.socket.socket(family, trio.socket.SOCK_DGRAM) as socket:
        await socket.connect((host, port))
        await Http3Client(socket, configuration).run(socket.getpeername(), task_status=task_status)
