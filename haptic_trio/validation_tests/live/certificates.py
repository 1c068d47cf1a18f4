"""Certificates for tests, issued on first use."""

import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LIFETIME = timedelta(days=30)
CLOCK_SKEW = timedelta(hours=1)


class Issued(msgspec.Struct, frozen=True):
    """PEM texts."""

    chain: str
    key: str

    def __repr__(self) -> str:
        return "Issued(…)"


@lru_cache(maxsize=4_096)
def issue(names: tuple[str, ...]) -> Issued:
    """Return a self-signed certificate for the DNS *names*; cached by names."""
    return issue_certificate(names)


def issue_certificate(names: tuple[str, ...]) -> Issued:
    """Return a new self-signed certificate for the DNS *names*."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Issued(certificate.public_bytes(serialization.Encoding.PEM).decode(), private.decode())


def names_in(der: bytes) -> frozenset[str]:
    """Return the DNS names of a certificate; none if it is invalid or has none."""
    try:
        found = x509.load_der_x509_certificate(der).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (ValueError, x509.ExtensionNotFound):
        return frozenset()
    return frozenset(found.value.get_values_for_type(x509.DNSName))


@lru_cache(maxsize=1)
def server_context() -> ssl.SSLContext:
    """Return the TLS context of test servers, HTTP/1.1 only; blocking: Python reads keys from files only."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    issued = issue(("server.invalid",))
    with tempfile.NamedTemporaryFile("w", prefix="haptic-trio-") as file:
        file.write(issued.key + issued.chain)
        file.flush()
        context.load_cert_chain(file.name)
    context.set_alpn_protocols(["http/1.1"])
    return context


@lru_cache(maxsize=1)
def client_context() -> ssl.SSLContext:
    """Return the TLS context of test clients, which accepts any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context
