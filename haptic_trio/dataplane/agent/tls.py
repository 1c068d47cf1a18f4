"""TLS of the agent's API: certificates that are reloaded when they change, and the identity of the client.

A handshake that finds a file changed reads all of them anew, into a fresh
context; connections that are open keep what they have begun with. Files that
do not fit together (a rotation is half done) leave the former ones in use.
"""

import contextvars
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from haptic_trio.errors import HapticError
from haptic_trio.logs import get_logger

ALPN: Final = ("http/1.1",)


class TlsFilesError(HapticError):
    """Certificate, key or authorities cannot be used; trying again helps once the files have been mended."""


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Where one side's material is; PEM."""

    certificate: Path
    """Ours, with its chain."""
    key: Path
    authorities: Path
    """Who may have signed the other side's."""


class OpenFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Where the material of a server is that asks clients for no certificate; PEM."""

    certificate: Path
    key: Path


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """The client at the other end of a connection, by its certificate."""

    names: frozenset[str]
    """Common name, and names of any kind that it is an alternative for."""
    expires: float
    """Seconds since 1970."""
    trust: int
    """How often the authorities had changed when it was trusted."""


_CLIENT: contextvars.ContextVar[Client | None] = contextvars.ContextVar("client", default=None)

Stamp = tuple[tuple[int, int, int], ...]


def current_client() -> Client | None:
    """Return the client of the connection that this task belongs to; None when it has shown no certificate.

    A server handshakes in the task of its connection, and whatever that task
    starts afterwards inherits what was found out then.
    """
    return _CLIENT.get()


class RenewedContext(ssl.SSLContext):
    """A context that stands for the newest one made of *files*.

    It serves where connections are wrapped by `wrap_bio`, as in Trio. Raises
    TlsFilesError when the files cannot be used at first.
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
        """Read the files again if one has changed; what cannot be used is logged, and tried again next time."""
        try:
            stamp = _read_stamp(self._files)
            if stamp == self._stamp:
                return
            fresh = _make_context(self._files, server=self._server)
            authorities = _read_authorities(self._files)
        except (OSError, ssl.SSLError) as exc:
            self._log.warning("certificates cannot be read again, the former ones stay", error=str(exc))
            return
        if authorities != self._authorities:
            self.trust += 1
        self._stamp, self._current, self._authorities = stamp, fresh, authorities
        self._log.info("certificates were read again", certificate=str(self._files.certificate))

    def newest_trust(self) -> int:
        """Return `trust` by the files as they are now: no new connection may have come since they changed."""
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
        """Begin a connection with the newest files."""
        self.renew()
        wrapped = self._current.wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        if isinstance(wrapped, _IdentifyingObject):
            wrapped.trust = self.trust
            wrapped.outgoing = outgoing
        return wrapped

    def set_alpn_protocols(self, alpn_protocols: Any) -> None:
        """Do nothing: there is one protocol here, and every new context is told."""


class _IdentifyingObject(ssl.SSLObject):
    """Remembers, in the task that does the handshake, who the client is."""

    trust = 0
    outgoing: ssl.MemoryBIO
    _refusal: ssl.SSLError | None = None

    def do_handshake(self) -> None:
        if self._refusal is not None:
            raise self._refusal
        try:
            super().do_handshake()
        except ssl.SSLWantReadError:
            raise
        except ssl.SSLError as exc:
            # What tells the client why has been written, but Trio sends it only to those from whom it wants to hear.
            self._refusal = exc
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
    # Secrets mounted by Kubernetes are links: what they lead to counts.
    return tuple((status.st_ino, status.st_size, status.st_mtime_ns) for status in map(Path.stat, _paths(files)))
