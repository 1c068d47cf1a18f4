"""Keys that cost HAProxy, or their reader, much time are rejected without being read."""

from functools import cache

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from haptic_trio.x509.keys import KeyFaultError, certified_key, check_parameters, public_half
from tests.attacks.inputs.credentials import (
    DIFFIE_HELLMAN,
    DSA,
    good_pair,
    group_key,
    mersenne_pair,
    parameters,
    with_large_exponents,
)

RSA = good_pair("rsa.test", trustme.KeyType.RSA)[1]
KEYS = 6


@cache
def keys() -> tuple[PrivateKeyTypes, ...]:
    return (
        rsa.generate_private_key(65_537, 2_048),
        rsa.generate_private_key(3, 2_048),
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP521R1()),
        ed25519.Ed25519PrivateKey.generate(),
        ed448.Ed448PrivateKey.generate(),
    )


FORMS = (PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("number", range(KEYS))
def test_usual_keys_are_read(number: int, form: PrivateFormat) -> None:
    key = keys()[number]
    if form is PrivateFormat.TraditionalOpenSSL and number > 3:
        form = PrivateFormat.PKCS8
    block = key.private_bytes(Encoding.PEM, form, NoEncryption()).decode()

    assert public_half(block) == key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def test_a_large_rsa_key_is_read_up_to_the_limit() -> None:
    certificate, key = mersenne_pair(3_217, 4_253)

    assert public_half(key) == certified_key(x509.load_pem_x509_certificate(certificate.encode()))


# By the size: cryptography would need about ten minutes for the primes, and several for the DSA key.
@pytest.mark.parametrize(
    "block",
    [
        pytest.param(mersenne_pair(4_253, 4_423)[1], id="RSA beyond the limit"),
        pytest.param(mersenne_pair(21_701, 23_209)[1], id="RSA that ends HAProxy by its watchdog"),
        pytest.param(group_key(DSA, 2_048), id="DSA"),
        pytest.param(group_key(DSA, 14_000), id="large DSA"),
        pytest.param(group_key(DSA, 14_000).replace("PRIVATE KEY", "RSA PRIVATE KEY"), id="DSA by another label"),
        pytest.param(group_key(DSA, 200_000), id="very large DSA"),
        pytest.param(group_key(DIFFIE_HELLMAN, 2_048), id="Diffie-Hellman"),
        pytest.param(with_large_exponents(RSA, 3_000), id="large exponents"),
        pytest.param(with_large_exponents(RSA, 100), id="larger exponents"),
        pytest.param(with_large_exponents(RSA, 3_000, is_whole=False), id="large exponent without primes"),
        pytest.param(with_large_exponents(RSA, 3_000_000), id="exponents that end HAProxy by its watchdog"),
        pytest.param("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", id="no key"),
    ],
)
def test_costly_and_broken_keys_are_rejected(block: str) -> None:
    with pytest.raises(KeyFaultError, match="the private key cannot be read, or is not RSA"):
        public_half(block)


def test_the_key_of_a_certificate_has_the_same_limit() -> None:
    certificate = x509.load_pem_x509_certificate(mersenne_pair(4_253, 4_423)[0].encode())

    with pytest.raises(KeyFaultError, match="up to 8192 bits"):
        certified_key(certificate)


def test_parameters_are_limited_to_4096_bits() -> None:
    check_parameters(parameters(2_048))
    check_parameters(parameters(4_096))
    with pytest.raises(KeyFaultError, match="more than 4096 bits"):
        check_parameters(parameters(8_192))
