"""Public keys and shared secrets that sign JSON Web Tokens: PEM, JSON Web Key Sets, and raw secrets."""

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, SECP384R1, EllipticCurve, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicNumbers as EcNumbers
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers as RsaNumbers
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from haptic_trio.errors import INVALID_JSON
from haptic_trio.x509.errors import UNREADABLE
from haptic_trio.x509.keys import MAX_EXPONENT_BITS

_RSA: Final = ("RS256", "RS384", "RS512")
_EC: Final[Mapping[str, str]] = {"secp256r1": "ES256", "secp384r1": "ES384"}
_CURVES: Final[Mapping[str, EllipticCurve]] = {"P-256": SECP256R1(), "P-384": SECP384R1()}
_HMAC: Final = ("HS256",)
_LEAST_RSA_BITS: Final = 2048
_MOST_RSA_BITS: Final = 4096
_LEAST_SECRET: Final = 32
_MOST_PUBLISHED: Final = 100
# No key has such numbers. msgspec itself takes 13 us for one, in which no other thread runs.
_KEY_SET: Final = msgspec.json.Decoder(dict[str, Any], float_hook=float)


class TokenKeyError(Exception):
    """A key cannot be used; the text says why and contains no part of a secret."""


class TokenKey(msgspec.Struct, frozen=True):
    """A key, and the algorithms that tokens verified by it may name: those of its type alone."""

    algorithms: tuple[str, ...]
    pem: str = ""
    """SubjectPublicKeyInfo; empty for a secret."""
    secret: bytes = b""


def read_pem(content: bytes) -> TokenKey:
    """Return the public key, or that of the certificate, in *content*; raises `TokenKeyError`."""
    if b"PRIVATE KEY-----" in content:
        raise TokenKeyError("it has a private key; only the public key belongs here")
    try:
        if b"-----BEGIN CERTIFICATE-----" in content:
            return _checked(x509.load_pem_x509_certificate(content).public_key(), ())
        return _checked(load_pem_public_key(content), ())
    except UNREADABLE as exc:
        raise TokenKeyError("it is neither a public key nor a certificate in PEM") from exc


def read_secret(content: bytes) -> TokenKey:
    """Return the shared secret *content*, all of it; raises `TokenKeyError`."""
    if len(content) < _LEAST_SECRET:
        raise TokenKeyError(f"a secret for HS256 needs at least {_LEAST_SECRET} bytes")
    if b"\0" in content:
        raise TokenKeyError("HAProxy reads a secret up to its first NUL byte, and it has one")
    return TokenKey(_HMAC, secret=content)


class PublishedKeys(msgspec.Struct, frozen=True):
    """The public keys of a JSON Web Key Set that an identity provider publishes."""

    keys: tuple[TokenKey, ...]
    unusable: tuple[str, ...]
    """Why each other key for signatures is left out."""


def read_key_set(content: bytes) -> list[TokenKey]:
    """Return the keys of a JSON Web Key Set that verify signatures; raises `TokenKeyError`."""
    return list(_keys(_entries(content)))


def read_published_keys(content: bytes) -> PublishedKeys:
    """Return the public keys of a JSON Web Key Set from elsewhere; raises `TokenKeyError` for any other text.

    A key that cannot be used is left out (RFC 7517, section 5), since a
    provider has keys for other clients as well. A shared secret is left out
    as well: anyone could sign with a published one.
    """
    keys, unusable = list[TokenKey](), list[str]()
    entries = _entries(content)
    if len(entries) > _MOST_PUBLISHED:
        raise TokenKeyError(f"the set has more than {_MOST_PUBLISHED} keys")
    for number, entry in enumerate(entries):
        try:
            found = list(_keys([entry], number))
        except TokenKeyError as exc:
            unusable.append(str(exc))
            continue
        if any(key.secret for key in found):
            unusable.append(f"key {number} of the set: it is a shared secret, which must not be published")
        else:
            keys += found
    return PublishedKeys(tuple(keys), tuple(unusable))


def _entries(content: bytes) -> Sequence[Mapping[str, Any]]:
    try:
        found = _KEY_SET.decode(content)
    except INVALID_JSON as exc:
        raise TokenKeyError("it is not a JSON Web Key Set") from exc
    keys = found.get("keys")
    if not isinstance(keys, list) or not all(isinstance(key, dict) for key in keys):
        raise TokenKeyError("it is not a JSON Web Key Set: it has no list of keys")
    return keys


def _keys(keys: Sequence[Mapping[str, Any]], first: int = 0) -> Iterator[TokenKey]:
    """Yield the keys that verify signatures; *first* is the number of the first one in the set."""
    for number, key in enumerate(keys, first):
        if key.get("use", "sig") != "sig":
            continue
        named = key.get("alg")
        try:
            yield _key(key, (named,) if isinstance(named, str) else ())
        except (TokenKeyError, ValueError, TypeError, *UNREADABLE) as exc:
            problem = str(exc) if isinstance(exc, TokenKeyError) else "its numbers are not those of a public key"
            raise TokenKeyError(f"key {number} of the set: {problem}") from exc


def _key(key: Mapping[str, Any], named: tuple[str, ...]) -> TokenKey:
    if "d" in key:
        raise TokenKeyError("it has a private key; only the public key belongs here")
    match key.get("kty"):
        case "RSA":
            numbers = RsaNumbers(_number(key.get("e")), _number(key.get("n")))
            if numbers.n.bit_length() > _MOST_RSA_BITS:
                raise TokenKeyError(f"an RSA key may have at most {_MOST_RSA_BITS} bits")
            _check_exponent(numbers)
            return _checked(numbers.public_key(), named)
        case "EC":
            curve = _CURVES.get(str(key.get("crv")))
            if curve is None:
                raise TokenKeyError(f"its curve is not one of {', '.join(_CURVES)}")
            return _checked(EcNumbers(_number(key.get("x")), _number(key.get("y")), curve).public_key(), named)
        case "oct":
            found = read_secret(_bytes(key.get("k")))
            return TokenKey(_restricted(found.algorithms, named), secret=found.secret)
        case _:
            raise TokenKeyError("its type is not RSA, EC or oct")


def _checked(key: object, named: tuple[str, ...]) -> TokenKey:
    algorithms: tuple[str, ...]
    if isinstance(key, RSAPublicKey):
        if not _LEAST_RSA_BITS <= key.key_size <= _MOST_RSA_BITS:
            raise TokenKeyError(f"an RSA key needs {_LEAST_RSA_BITS} to {_MOST_RSA_BITS} bits; it has {key.key_size}")
        _check_exponent(key.public_numbers())
        algorithms = _RSA
    elif isinstance(key, EllipticCurvePublicKey) and key.curve.name in _EC:
        algorithms = (_EC[key.curve.name],)
    else:
        raise TokenKeyError(f"its type is not RSA, or EC with a curve of {', '.join(_CURVES)}")
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    return TokenKey(_restricted(algorithms, named), pem=pem)


def _check_exponent(numbers: RsaNumbers) -> None:
    """Check the public exponent: the time of a verification grows with its bits, and HAProxy's thread waits."""
    if numbers.e.bit_length() > MAX_EXPONENT_BITS:
        raise TokenKeyError(
            f"the public exponent of an RSA key may have at most {MAX_EXPONENT_BITS} bits;"
            f" it has {numbers.e.bit_length()} (the usual one is 65537)"
        )


def _restricted(algorithms: tuple[str, ...], named: tuple[str, ...]) -> tuple[str, ...]:
    found = tuple(one for one in algorithms if not named or one in named)
    if not found:
        raise TokenKeyError(f"its algorithm is not one of {', '.join(algorithms)}")
    return found


def _number(text: Any) -> int:
    return int.from_bytes(_bytes(text), "big")


def _bytes(text: Any) -> bytes:
    if not isinstance(text, str) or not text:
        raise TokenKeyError("a field of the key is missing")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as exc:
        raise TokenKeyError("a field of the key is not base64url") from exc
