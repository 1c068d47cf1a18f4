"""A client that is no longer trusted is rejected, however a change of authorities is applied."""

import http.client
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import trio
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from haptic_trio.dataplane.binary import probe_version
from haptic_trio.dataplane.local.instance import LocalAgent
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.haproxy.model import FileKind, Generation, make_file
from tests.support.processes.haproxy import build_generation, instances
from tests.support.processes.ports import free_port

pytestmark = pytest.mark.haproxy

SITES, ONE, TWO = trustme.CA(), trustme.CA(), trustme.CA()
SITE, OTHER = (SITES.issue_cert(host).private_key_and_cert_chain_pem.bytes() for host in ("must.test", "a.test"))
VERIFIED = "ca-file ssl/clients.pem crl-file ssl/revoked.pem verify optional"
JOE, EVE = ONE.issue_cert("joe@example.com", common_name="joe"), TWO.issue_cert("eve@example.com", common_name="eve")


@cache
def revocations(authority: trustme.CA, *certificates: trustme.LeafCert) -> bytes:
    """Return the list of certificates that *authority* has revoked; the same one each time, or all changes reload."""
    now = datetime.now(UTC)
    issuer = x509.load_pem_x509_certificate(authority.cert_pem.bytes()).subject
    builder = x509.CertificateRevocationListBuilder(issuer, now - timedelta(days=1), now + timedelta(days=1))
    for certificate in certificates:
        serial = x509.load_pem_x509_certificate(certificate.cert_chain_pems[0].bytes()).serial_number
        revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
        builder = builder.add_revoked_certificate(revoked)
    key = load_pem_private_key(authority.private_key_pem.bytes(), None)
    return builder.sign(key, SHA256()).public_bytes(Encoding.PEM)  # type: ignore[arg-type]


class Site:
    """A host that asks clients for certificates, and an endpoint behind it."""

    def __init__(self, agent: LocalAgent, endpoint: int) -> None:
        self._agent = agent
        self._endpoint = endpoint
        self._port = free_port()

    def _generation(self, options: str, files: Mapping[str, bytes]) -> Generation:
        text = f"""\
global
  maxconn 100
  ssl-default-bind-options no-tls-tickets ssl-min-ver TLSv1.2
defaults
  mode http
  timeout connect 5s
  timeout client 5s
  timeout server 5s
frontend f
  bind 127.0.0.1:{self._port} ssl crt-list ssl/all.list
  http-request return status 200 content-type text/plain lf-string %[ssl_c_s_dn(cn)] unless {{ path /endpoint }}
  default_backend endpoints
backend endpoints
  option http-server-close
  retries 0
  server s1 127.0.0.1:{self._endpoint} ssl verify required ca-file ssl/endpoints.pem sni str(must.test)
"""
        contents = {
            # Only authorities that are in use already can be named at runtime.
            "ssl/all.list": f"ssl/other.pem [{VERIFIED}]\nssl/site.pem [{options}] must.test\n".encode(),
            "ssl/other.pem": OTHER,
            "ssl/site.pem": SITE,
            "ssl/clients.pem": ONE.cert_pem.bytes() + TWO.cert_pem.bytes(),
            "ssl/revoked.pem": revocations(ONE) + revocations(TWO),
            "ssl/endpoints.pem": SITES.cert_pem.bytes(),
            **files,
        }
        kinds = {".pem": FileKind.CERT, ".list": FileKind.CRT_LIST}
        return build_generation(text, [make_file(kinds[Path(path).suffix], path, contents[path]) for path in contents])

    async def bring(self, options: str = VERIFIED, **files: bytes) -> bool:
        """Go on with *options* for the host, and *files* in place of those at first; whether that took a reload."""
        contents = {f"ssl/{name}.pem": text for name, text in files.items()}
        return (await sync_endpoint(self._agent, self._generation(options, contents))).reloaded

    async def ask(
        self, client: ssl.SSLContext, session: ssl.SSLSession | None = None, path: str = "/"
    ) -> tuple[str, ssl.SSLSession | None]:
        """Return status and body of an answer, empty where there is none, and the TLS session."""
        return await trio.to_thread.run_sync(self._ask, client, session, path)

    def _ask(
        self, client: ssl.SSLContext, session: ssl.SSLSession | None, path: str
    ) -> tuple[str, ssl.SSLSession | None]:
        try:
            with (
                socket.create_connection(("127.0.0.1", self._port), 10) as plain,
                client.wrap_socket(plain, server_hostname="must.test", session=session) as connection,
            ):
                connection.sendall(f"GET {path} HTTP/1.1\r\nHost: must.test\r\n\r\n".encode())
                response = http.client.HTTPResponse(connection)
                response.begin()
                body = response.read().decode()
                return f"{response.status} {body}" if response.status == 200 else str(
                    response.status
                ), connection.session
        except (OSError, http.client.HTTPException):
            return "", None


def client(certificate: trustme.LeafCert | None, *, newest: bool = True) -> ssl.SSLContext:
    """Return a client that shows *certificate*, or none; not *newest* is TLS 1.2."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if not newest:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if certificate is not None:
        certificate.configure_cert(context)
    return context


async def until(answer: str, ask: Callable[[], Awaitable[tuple[str, ssl.SSLSession | None]]]) -> None:
    """Wait until *ask* gives *answer*: a worker that is on its way out may take a few connections yet."""
    with trio.fail_after(30):
        while (await ask())[0] != answer:  # noqa: ASYNC110  the fact is one of HAProxy
            await trio.sleep(0.02)


@contextmanager
def endpoint() -> Iterator[int]:
    """Serve by TLS, and give the port."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"endpoint")

        def log_message(self, *_arguments: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    SITES.issue_cert("must.test").configure_cert(context)
    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@asynccontextmanager
async def running(root: Path, binary: Path, endpoint: int = 1) -> AsyncIterator[Site]:
    """Have HAProxy serve a site."""
    async with instances(root, binary, on_exit="stop") as (agent,):
        site = Site(agent, endpoint)
        await site.bring()
        yield site


@pytest.mark.parametrize("newest", [False, True])
async def test_clients_of_a_removed_authority_get_in_neither_by_a_handshake_nor_by_a_session(
    instance_root: Path, haproxy_binary: Path, newest: bool
) -> None:
    async with running(instance_root, haproxy_binary) as site:
        joe, eve = client(JOE, newest=newest), client(EVE, newest=newest)
        answer, session = await site.ask(joe)
        assert answer == "200 joe"
        assert (await site.ask(joe, session))[0] == "200 joe"

        reloaded = await site.bring(clients=TWO.cert_pem.bytes())

        assert reloaded is (probe_version(haproxy_binary).number < (3, 2))
        await until("", partial(site.ask, joe))
        await until("", partial(site.ask, joe, session))
        await until("200 eve", partial(site.ask, eve))


@pytest.mark.parametrize("newest", [False, True])
async def test_sessions_without_a_client_certificate_end_once_one_is_required(
    instance_root: Path, haproxy_binary: Path, newest: bool
) -> None:
    async with running(instance_root, haproxy_binary) as site:
        await site.bring("alpn http/1.1")
        stranger, joe = client(None, newest=newest), client(JOE, newest=newest)
        await until("200 ", partial(site.ask, stranger))
        _answer, session = await site.ask(stranger)

        await site.bring(VERIFIED.replace("optional", "required"))

        await until("", partial(site.ask, stranger))
        await until("", partial(site.ask, stranger, session))
        await until("200 joe", partial(site.ask, joe))


async def test_client_with_a_revoked_certificate_gets_in_neither_by_a_handshake_nor_by_a_session(
    instance_root: Path, haproxy_binary: Path
) -> None:
    async with running(instance_root, haproxy_binary) as site:
        joe = client(JOE)
        answer, session = await site.ask(joe)
        assert answer == "200 joe"

        await site.bring(revoked=revocations(ONE, JOE) + revocations(TWO))

        await until("", partial(site.ask, joe))
        await until("", partial(site.ask, joe, session))
        await until("200 eve", partial(site.ask, client(EVE)))


async def test_an_endpoint_is_trusted_by_the_authorities_of_now(instance_root: Path, haproxy_binary: Path) -> None:
    with endpoint() as port:
        async with running(instance_root, haproxy_binary, port) as site:
            ask = partial(site.ask, client(JOE), None, "/endpoint")
            assert (await ask())[0] == "200 endpoint"
            await site.bring(endpoints=ONE.cert_pem.bytes())
            await until("503", ask)
            await site.bring()
            await until("200 endpoint", ask)
