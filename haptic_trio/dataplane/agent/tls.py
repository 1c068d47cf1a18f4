"""TLS of the agent's API: certificates that are reloaded when they change, and the identity of the client.

A handshake that finds a changed file reads all files into a new context; open
connections keep the old one. Files that do not match (a rotation in progress)
are ignored: the previous ones stay in use.
"""

import contextvars
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from haptic_trio.errors import HapticError, text_of
from haptic_trio.logs import get_logger

ALPN: Final = ("http/1.1",)


class TlsFilesError(HapticError):
    """Certificate, key or CA certificates cannot be used; a retry helps once the files are repaired."""


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """PEM files of one side of the connection."""

    certificate: Path
    """Own certificate with its chain."""
    key: Path
    authorities: Path
    """CA certificates for the certificate of the other side."""


class OpenFiles(msgspec.Struct, frozen=True, kw_only=True):
    """PEM files of a server that does not request client certificates."""

    certificate: Path
    key: Path


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """Identity of a client, from its certificate."""

    names: frozenset[str]
    """Common name and all subject alternative names."""
    expires: float
    """Seconds since 1970."""
    trust: int
    """Number of changes of the CA certificates before it was verified."""


_CLIENT: contextvars.ContextVar[Client | None] = contextvars.ContextVar("client", default=None)

Stamp = tuple[tuple[int, int, int], ...]


def current_client() -> Client | None:
    """Return the client of this task's connection; None if it has no certificate.

    A server does the handshake in the task of the connection; tasks that it
    starts afterwards inherit the context variable.
    """
    return _CLIENT.get()


class RenewedContext(ssl.SSLContext):
    """SSL context that always uses the newest version of *files*.

    Works where connections are made by `wrap_bio`, as in Trio. Raises
    TlsFilesError if the files cannot be used at first.
    """

    _files: TlsFiles | OpenFiles
    _server: bool
    _stamp: Stamp
    _current: ssl.SSLContext
    _authorities: bytes
    trust: int

    def __new__(cls, _files: TlsFiles | OpenFiles, *, server: bool) -> Self:
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)

    def __init__(self, files: TlsFiles | OpenFiles, *, server: bool) -> None:
        self._files = files
        self._server = server
        self._log = get_logger("tls")
        self.trust = 0
        try:
            self._stamp = _read_stamp(files)
            self._authorities = _read_authorities(files)
            self._current = _make_context(files, server=server)
        except (OSError, ssl.SSLError) as exc:
            raise TlsFilesError(f"{exc} ({', '.join(map(str, _paths(files)))})") from exc

    def renew(self) -> None:
        """Read the files again if one has changed; an error is logged, and the next call retries."""
        try:
            stamp = _read_stamp(self._files)
            if stamp == self._stamp:
                return
            fresh = _make_context(self._files, server=self._server)
            authorities = _read_authorities(self._files)
        except (OSError, ssl.SSLError) as exc:
            self._log.warning("changed certificates cannot be used, the previous ones stay", error=text_of(exc))
            return
        if authorities != self._authorities:
            self.trust += 1
        self._stamp, self._current, self._authorities = stamp, fresh, authorities
        self._log.info("certificates reloaded", certificate=str(self._files.certificate))

    def newest_trust(self) -> int:
        """Return `trust` after reading changed files: there may be no handshake after a change."""
        self.renew()
        return self.trust

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Start a connection with the newest files."""
        self.renew()
        wrapped = self._current.wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        if isinstance(wrapped, _IdentifyingObject):
            wrapped.trust = self.trust
            wrapped.outgoing = outgoing
        return wrapped

    def set_alpn_protocols(self, alpn_protocols: Any) -> None:
        """Do nothing: every new context has the same protocol."""


class _IdentifyingObject(ssl.SSLObject):
    """Records the identity of the client in the task that does the handshake."""

    trust = 0
    outgoing: ssl.MemoryBIO
    _error: ssl.SSLError | None = None

    def do_handshake(self) -> None:
        if self._error is not None:
            raise self._error
        try:
            super().do_handshake()
        except ssl.SSLWantReadError:
            raise
        except ssl.SSLError as exc:
            # The alert for the client is written already, but Trio sends it only before it waits for data.
            self._error = exc
            if self.outgoing.pending:
                raise ssl.SSLWantReadError from exc
            raise
        certificate = self.getpeercert()
        if certificate:
            _CLIENT.set(_read_client(certificate, self.trust))


def _make_context(files: TlsFiles | OpenFiles, *, server: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(files.certificate, files.key)
    if isinstance(files, TlsFiles):
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(files.authorities)
    context.set_alpn_protocols(list(ALPN))
    if server:
        # A resumed session is not verified again.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        context.sslobject_class = _IdentifyingObject
    return context


def _read_client(certificate: Mapping[str, Any], trust: int) -> Client:
    common = {value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"}
    others = {str(value) for _kind, value in certificate.get("subjectAltName", ())}
    expires = ssl.cert_time_to_seconds(certificate["notAfter"])
    return Client(names=frozenset(common | others), expires=float(expires), trust=trust)


def _read_authorities(files: TlsFiles | OpenFiles) -> bytes:
    return files.authorities.read_bytes() if isinstance(files, TlsFiles) else b""


def _paths(files: TlsFiles | OpenFiles) -> tuple[Path, ...]:
    own = files.certificate, files.key
    return (*own, files.authorities) if isinstance(files, TlsFiles) else own


def _read_stamp(files: TlsFiles | OpenFiles) -> Stamp:
    # Secrets mounted by Kubernetes are links; stat follows them.
    return tuple((status.st_ino, status.st_size, status.st_mtime_ns) for status in map(Path.stat, _paths(files)))
