"""Keys of tokens are read with the algorithms of their type alone; private, short and unknown ones are rejected."""

import base64
import json
from collections.abc import Callable

import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from haptic_trio.x509.public_keys import (
    TokenKey,
    TokenKeyError,
    read_key_set,
    read_pem,
    read_published_keys,
    read_secret,
)

AUTHORITY = trustme.CA()


def public_pem(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def test_a_certificate_stands_for_its_public_key() -> None:
    leaf = AUTHORITY.issue_cert("a.test", key_type=trustme.KeyType.ECDSA)

    key = read_pem(leaf.cert_chain_pems[0].bytes())

    assert key.algorithms == ("ES256",)
    assert key.pem.startswith("-----BEGIN PUBLIC KEY-----\n")


def test_the_curve_decides_the_algorithm() -> None:
    assert read_pem(public_pem(ec.generate_private_key(ec.SECP256R1()))).algorithms == ("ES256",)
    assert read_pem(public_pem(ec.generate_private_key(ec.SECP384R1()))).algorithms == ("ES384",)
    for key in (ec.generate_private_key(ec.SECP521R1()), ed25519.Ed25519PrivateKey.generate()):
        with pytest.raises(TokenKeyError, match="its type is not RSA, or EC"):
            read_pem(public_pem(key))


def test_a_file_with_a_private_key_is_rejected() -> None:
    leaf = AUTHORITY.issue_cert("a.test")

    with pytest.raises(TokenKeyError, match="private key"):
        read_pem(leaf.cert_chain_pems[0].bytes() + leaf.private_key_pem.bytes())


@pytest.mark.parametrize("content", [b"x" * 31, b"x" * 32 + b"\0" + b"x" * 32])
def test_a_secret_that_haproxy_would_shorten_or_that_is_short_is_rejected(content: bytes) -> None:
    with pytest.raises(TokenKeyError):
        read_secret(content)
    assert read_secret(b"x" * 32).secret == b"x" * 32


@pytest.mark.parametrize(
    "key",
    [
        {},
        {"kty": None},
        {"kty": "RSA", "n": "AA", "e": "AQAB"},
        {"kty": "RSA", "n": "_" * 2_000, "e": "AQAB"},
        {"kty": "RSA", "n": [], "e": {}},
        {"kty": "EC", "crv": ["P-256"], "x": "AA", "y": "AA"},
        {"kty": "EC", "crv": "P-256", "x": "_" * 500, "y": "AA"},
        {"kty": "oct", "k": "AAAA"},
    ],
    ids=str,
)
def test_a_key_set_with_a_key_that_cannot_be_used_is_rejected(key: object) -> None:
    with pytest.raises(TokenKeyError, match="key 0 of the set"):
        read_key_set(json.dumps({"keys": [key]}).encode())


@pytest.mark.parametrize(
    ("bits", "exponent", "problem"),
    [
        (2_048, (1 << 32) + 1, "at most 32 bits; it has 33"),
        (3_072, (1 << 3_070) + 1, "at most 32 bits; it has 3071"),
        (4_104, 65_537, "4096 bits"),
    ],
    ids=["exponent of 33 bits", "exponent of 3071 bits", "modulus of 4104 bits"],
)
def test_an_rsa_key_that_takes_long_to_verify_a_token_is_rejected(bits: int, exponent: int, problem: str) -> None:
    numbers = rsa.RSAPublicNumbers(exponent, (1 << bits) - 1)
    key = {"kty": "RSA", "n": encoded(numbers.n, bits // 8), "e": encoded(exponent, 400)}
    content = json.dumps({"keys": [key]}).encode()

    with pytest.raises(TokenKeyError, match=f"key 0 of the set: .*{problem}"):
        read_key_set(content)
    with pytest.raises(TokenKeyError, match=problem):
        read_pem(numbers.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    found = read_published_keys(content)
    assert (found.keys, len(found.unusable)) == ((), 1)


def test_the_largest_rsa_keys_verify_tokens() -> None:
    key = {"kty": "RSA", "n": encoded((1 << 4_096) - 1, 512), "e": encoded((1 << 32) - 1)}

    assert read_key_set(json.dumps({"keys": [key]}).encode())[0].algorithms == ("RS256", "RS384", "RS512")


def test_a_set_without_keys_has_none() -> None:
    assert read_key_set(b'{"keys": []}') == []


def test_keys_that_an_issuer_publishes_for_others_are_left_out() -> None:
    numbers = ec.generate_private_key(ec.SECP256R1()).public_key().public_numbers()
    usable = {"kty": "EC", "crv": "P-256", "x": encoded(numbers.x), "y": encoded(numbers.y)}
    others = [
        {**usable, "use": "enc"},
        {**usable, "crv": "P-521"},
        {**usable, "d": "AQAB"},
        {"kty": "RSA", "n": "AQAB", "e": "AQAB"},
        {"kty": "oct", "k": "x" * 64},
    ]

    found = read_published_keys(json.dumps({"keys": [*others, usable]}).encode())

    assert [key.algorithms for key in found.keys] == [("ES256",)]
    assert [text.split(":")[0] for text in found.unusable] == [f"key {number} of the set" for number in (1, 2, 3, 4)]
    assert "shared secret" in found.unusable[-1]


def test_a_set_with_very_many_keys_is_rejected_unread() -> None:
    with pytest.raises(TokenKeyError, match="more than 100 keys"):
        read_published_keys(json.dumps({"keys": [{"kty": "RSA"}] * 101}).encode())


def encoded(number: int, size: int = 32) -> str:
    return base64.urlsafe_b64encode(number.to_bytes(size)).rstrip(b"=").decode()


@pytest.mark.parametrize("read", [read_key_set, lambda content: list(read_published_keys(content).keys)])
def test_numbers_that_no_key_has_are_read_by_python(read: Callable[[bytes], list[TokenKey]]) -> None:
    # msgspec itself takes 13 us for each, and rejects those that are out of range.
    numbers = ",".join(["1.2e300", "1e999"] * 10)

    assert read(f'{{"more":[{numbers}],"keys":[]}}'.encode()) == []


@pytest.mark.parametrize("read", [read_key_set, read_published_keys])
def test_bytes_that_are_not_utf_8_are_not_a_key_set(read: Callable[[bytes], object]) -> None:
    with pytest.raises(TokenKeyError, match="not a JSON Web Key Set"):
        read(b'{"keys":[{"kty":"\xff"}]}')
