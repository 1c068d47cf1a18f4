"""Certificates that cryptography cannot read are input like any other, wherever they are loaded."""

import base64

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from haptic_trio.gateway.listeners import certificates as listener_certificates
from haptic_trio.haproxy.config import expiry
from haptic_trio.templating.filters.authorities import AUTHORITIES, can_staple
from haptic_trio.templating.filters.content import pem
from haptic_trio.templating.filters.emit import EmitError
from haptic_trio.x509.bundles import names_in

VERSION_3 = bytes.fromhex("a003020102")
VERSION_8 = bytes.fromhex("a003020107")


@pytest.fixture(scope="module")
def pair() -> tuple[bytes, bytes]:
    """A certificate of X.509 version 8, and its key, as PEM."""
    issued = trustme.CA().issue_cert("shop.example")
    der = x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes()).public_bytes(Encoding.DER)
    assert der.count(VERSION_3) == 1
    body = base64.encodebytes(der.replace(VERSION_3, VERSION_8))
    certificate = b"-----BEGIN CERTIFICATE-----\n" + body + b"-----END CERTIFICATE-----\n"
    return certificate, issued.private_key_pem.bytes()


def test_the_version_of_the_certificate_is_not_a_value_error(pair: tuple[bytes, bytes]) -> None:
    with pytest.raises(x509.InvalidVersion):
        x509.load_pem_x509_certificate(pair[0])


def test_no_reader_of_certificates_fails_for_an_unknown_version(pair: tuple[bytes, bytes]) -> None:
    certificate, key = pair
    encoded = [base64.b64encode(one).decode() for one in pair]

    assert listener_certificates._find_fault(*encoded) == "certificate 1 cannot be read"
    assert listener_certificates.names_of({"data": {"tls.crt": encoded[0]}}) is None
    assert names_in(certificate) is None
    assert expiry._expiry_of(certificate.decode()) is None
    assert not can_staple(certificate.decode())
    with pytest.raises(EmitError, match="cannot be read"):
        AUTHORITIES["authorities"](certificate.decode())
    with pytest.raises(EmitError, match="cannot be read"):
        pem(certificate.decode(), key.decode())
