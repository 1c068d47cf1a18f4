"""TLS at the edge on the wire: versions, ciphers and protocols that are spoken, load balancers in front, stapling."""

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import ocsp
from cryptography.x509.oid import AuthorityInformationAccessOID
from OpenSSL import SSL

from haptic_trio.k8s.resource import Resource
from tests.libraries.conftest import Cluster
from tests.libraries.tls.test_ssl import AUTHORITY, secret, secure
from tests.support.kubernetes import endpoint, endpoint_slice, service, tls_secret
from tests.support.processes.newer_haproxy import haproxy_3
from tests.support.traffic.servers import PATIENCE, QuietHandler, answering, serving

__all__ = ["haproxy_3"]

pytestmark = pytest.mark.haproxy

HERE = "127.0.0.1"
HOST = "a.example.com"


def client(*protocols: str, newest: bool = True) -> ssl.SSLContext:
    """Return a client that offers *protocols* by ALPN; not *newest* speaks TLS 1.2."""
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    if protocols:
        context.set_alpn_protocols(protocols)
    if not newest:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


@contextmanager
def connected(port: int, context: ssl.SSLContext, before: bytes = b"") -> Iterator[ssl.SSLSocket]:
    """Connect, and send what comes *before* TLS."""
    with socket.create_connection((HERE, port), PATIENCE) as plain:
        plain.sendall(before)
        with context.wrap_socket(plain, server_hostname=HOST) as connection:
            yield connection


def serve(cluster: Cluster, *objects: Resource, **settings: Any) -> int:
    cluster.serve(secure("a", HOST, "a"), *(objects or (secret("a", HOST),)), **settings)
    return cluster.https_port


def test_the_modern_profile_is_tls_1_3_alone(cluster: Cluster) -> None:
    port = serve(cluster, tlsProfile="modern")

    with connected(port, client()) as connection:
        assert connection.version() == "TLSv1.3"
    with pytest.raises((ssl.SSLError, ConnectionError)), connected(port, client(newest=False)):
        pass


def test_ciphers_are_those_that_are_set(cluster: Cluster) -> None:
    old, new = "ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_CHACHA20_POLY1305_SHA256"
    port = serve(cluster, sslCiphers=old, sslCipherSuites=new)

    found = {}
    for newest in (False, True):
        with connected(port, client(newest=newest)) as connection:
            found[connection.version()] = (connection.cipher() or ("",))[0]

    assert found == {"TLSv1.2": old, "TLSv1.3": new}


def test_http2_can_be_switched_off(cluster: Cluster) -> None:
    port = serve(cluster, alpn="http/1.1")

    with connected(port, client("h2", "http/1.1")) as connection:
        assert connection.selected_alpn_protocol() == "http/1.1"


@pytest.mark.parametrize("source", ["203.0.113.5", "2001:db8::5"])
def test_a_load_balancer_says_who_the_client_is_before_tls(cluster: Cluster, source: str) -> None:
    family = socket.AF_INET6 if ":" in source else socket.AF_INET
    addresses = socket.inet_pton(family, source) * 2 + b"\x10\x00\x01\xbb"
    kind = b"\x21" if family is socket.AF_INET6 else b"\x11"
    head = b"\r\n\r\n\x00\r\nQUIT\n\x21" + kind + len(addresses).to_bytes(2) + addresses
    with serving("web") as ports:
        slices = endpoint_slice("web", endpoint(HERE), ports=ports["web"])
        port = serve(cluster, secret("a", HOST), service("web"), slices, proxyProtocolFrom=[HERE])
        with connected(port, client(), head) as connection:
            connection.sendall(f"GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
            answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        with pytest.raises((ssl.SSLError, OSError)), connected(port, client()):
            pass

    assert f"x-forwarded-for: {source}\n" in answer
    assert "x-forwarded-proto: https" in answer


class Responder:
    """An authority that says by OCSP that its certificate is good."""

    def __init__(self) -> None:
        self.key, self.leaf_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")])
        self.certificate = self._issue(self.name, self.key, x509.BasicConstraints(ca=True, path_length=None))
        self.leaf: x509.Certificate

    def _issue(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *extensions: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(self.name, subject, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def secret(self, port: int) -> Resource:
        """Return a certificate whose responder is at *port*, with its issuer."""
        place = x509.UniformResourceIdentifier(f"http://{HERE}:{port}/")
        access = x509.AccessDescription(AuthorityInformationAccessOID.OCSP, place)
        names = x509.SubjectAlternativeName([x509.DNSName(HOST)])
        self.leaf = self._issue(x509.Name([]), self.leaf_key, names, x509.AuthorityInformationAccess([access]))
        chain = b"".join(each.public_bytes(Encoding.PEM) for each in (self.leaf, self.certificate))
        key = self.leaf_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return tls_secret("a", chain, key)

    def respond(self) -> bytes:
        """Return the answer for the certificate."""
        now = datetime.now(UTC)
        builder = ocsp.OCSPResponseBuilder().add_response(
            self.leaf,
            self.certificate,
            # What responses are found by; nothing is signed with it.
            hashes.SHA1(),
            ocsp.OCSPCertStatus.GOOD,
            now,
            now + timedelta(hours=1),
            None,
            None,
        )
        found = builder.responder_id(ocsp.OCSPResponderEncoding.HASH, self.certificate)
        return found.sign(self.key, hashes.SHA256()).public_bytes(Encoding.DER)


def stapled(port: int) -> bytes:
    """Return the OCSP response that comes with a handshake; empty without one."""
    found: list[bytes] = []

    def take(_connection: SSL.Connection, response: bytes, _data: object) -> bool:
        found.append(response)
        return True

    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    context.set_ocsp_client_callback(take)
    with socket.create_connection((HERE, port), PATIENCE) as plain:
        plain.setblocking(True)
        connection = SSL.Connection(context, plain)
        connection.set_tlsext_host_name(HOST.encode())
        connection.request_ocsp()
        connection.set_connect_state()
        connection.do_handshake()
    return b"".join(found)


@pytest.mark.usefixtures("haproxy_3")
def test_what_a_responder_says_is_fetched_and_stapled(cluster: Cluster) -> None:
    responder = Responder()

    class Handler(QuietHandler):
        def answer(self) -> None:
            body = responder.respond()
            self.send_response(200)
            self.send_header("Content-Type", "application/ocsp-response")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with answering(Handler) as place:
        port = serve(cluster, responder.secret(place), ocspUpdate=True, ocspUpdateNamespaces=["default"])
        deadline = time.monotonic() + 60
        while not (response := stapled(port)):
            assert time.monotonic() < deadline
            time.sleep(0.02)

    assert ocsp.load_der_ocsp_response(response).certificate_status == ocsp.OCSPCertStatus.GOOD
