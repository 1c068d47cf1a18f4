"""Private keys of tenants: read at a bounded cost, and only if HAProxy can use them at a bounded cost.

The time of an RSA signature grows with the third power of the size, and HAProxy signs once for each handshake while
all other connections of the thread wait: a key of 45,000 bits ends the process by its watchdog. Reading a key is as
dangerous: the package cryptography tests the primes of RSA keys, and computes the public half of DSA keys.
"""

import base64
import re
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey, Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPrivateNumbers, RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from haptic_trio.x509.errors import UNREADABLE

MAX_RSA_BITS: Final = 8192
KINDS: Final = f"RSA (up to {MAX_RSA_BITS} bits), ECDSA, Ed25519, or Ed448"

MAX_EXPONENT_BITS: Final = 32
"""Of the public exponent of RSA keys that verify signatures of clients; a verification takes time for each bit."""

_UNUSABLE: Final = f"the private key cannot be read, or is not {KINDS}"
_FORM: Final = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
_MAX_OWN_EXPONENT_BITS: Final = 64
"""OpenSSL accepts no larger public exponent in a signature that it verifies."""
_RSA_KEYS: Final = frozenset({"1.2.840.113549.1.1.1", "1.2.840.113549.1.1.10", "2.5.8.1.1"})
"""Object identifiers of the keys that OpenSSL reads as RSA keys."""
_MAX_KEY_BYTES: Final = 6_000
"""More than an RSA key of `MAX_RSA_BITS` has."""
_MAX_DH_BYTES: Final = 600
"""More than the parameters of a group of 4096 bits have."""
_LABELS: Final = frozenset({"PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"})
# PKCS #8: the sequence, its version 0 or 1, and the algorithm, of which the object identifier comes first.
_LENGTH: Final = rb"(?:[\x00-\x7f]|\x81.|\x82..)"
_SUPPORTED: Final = re.compile(
    rb"\x30" + _LENGTH + rb"\x02\x01[\x00\x01]\x30" + _LENGTH + rb"\x06(?:"
    rb"\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01"  # rsaEncryption
    rb"|\x07\x2a\x86\x48\xce\x3d\x02\x01"  # id-ecPublicKey
    rb"|\x03\x2b\x65[\x70\x71])",  # Ed25519 and Ed448
    re.DOTALL,
)


class KeyFaultError(ValueError):
    """A key that is not used; the text is the reason."""


def public_half(block: str) -> bytes:
    """Return the public key of the private key in the PEM *block*; raises `KeyFaultError`."""
    label, der = _decoded(block)
    if len(der) > _MAX_KEY_BYTES or label not in _LABELS or (label == "PRIVATE KEY" and not _SUPPORTED.match(der)):
        raise KeyFaultError(_UNUSABLE)
    try:
        # The check of RSA keys by cryptography takes seconds.
        key = load_pem_private_key(block.encode(), None, unsafe_skip_rsa_key_validation=True)
        numbers = key.private_numbers() if isinstance(key, RSAPrivateKey) else None
        half = key.public_key().public_bytes(*_FORM)
    except UNREADABLE:
        raise KeyFaultError(_UNUSABLE) from None
    if numbers is not None:
        _check_numbers(numbers)
    elif not isinstance(key, EllipticCurvePrivateKey | Ed25519PrivateKey | Ed448PrivateKey):
        raise KeyFaultError(_UNUSABLE)
    return half


def _check_numbers(numbers: RSAPrivateNumbers) -> None:
    """Check that *numbers* are one key, so that no number is larger than HAProxy's cost for the size allows."""
    e, n, p, q, d = numbers.public_numbers.e, numbers.public_numbers.n, numbers.p, numbers.q, numbers.d
    if n.bit_length() > MAX_RSA_BITS or e.bit_length() > _MAX_OWN_EXPONENT_BITS:
        raise KeyFaultError(_UNUSABLE)
    is_whole = (
        min(p, q) > 2
        and p * q == n
        and d < n
        and numbers.dmp1 == d % (p - 1)
        and numbers.dmq1 == d % (q - 1)
        and e * numbers.dmp1 % (p - 1) == 1
        and e * numbers.dmq1 % (q - 1) == 1
        and 0 < numbers.iqmp < p
        and numbers.iqmp * q % p == 1
    )
    if not is_whole:
        raise KeyFaultError(_UNUSABLE)


def certified_key(certificate: x509.Certificate) -> bytes:
    """Return the public key in *certificate*, the first one of a bundle; raises `KeyFaultError`."""
    try:
        key = certificate.public_key()
        half = key.public_bytes(*_FORM)
    except UNREADABLE:
        raise KeyFaultError("certificate 1 cannot be read") from None
    is_usable = (
        key.key_size <= MAX_RSA_BITS
        if isinstance(key, RSAPublicKey)
        else isinstance(key, EllipticCurvePublicKey | Ed25519PublicKey | Ed448PublicKey)
    )
    if not is_usable:
        raise KeyFaultError(f"the key of the certificate is not {KINDS}")
    return half


def find_costly_key(certificate: x509.Certificate) -> str:
    """Return why the key of an authority's *certificate* takes too long to verify signatures; empty if it does not."""
    try:
        key = certificate.public_key()
    except UNREADABLE:
        # OpenSSL verifies by RSA keys that cryptography does not read, such as those with an even exponent.
        is_rsa = certificate.public_key_algorithm_oid.dotted_string in _RSA_KEYS
        return "has an RSA key that cannot be read" if is_rsa else ""
    bits = key.public_numbers().e.bit_length() if isinstance(key, RSAPublicKey) else 0
    if bits <= MAX_EXPONENT_BITS:
        return ""
    return f"has an RSA key with a public exponent of {bits} bits; {MAX_EXPONENT_BITS} are the limit"


def check_parameters(block: str) -> None:
    """Check the Diffie-Hellman parameters in the PEM *block*, used in handshakes; raises `KeyFaultError`."""
    if len(_decoded(block)[1]) > _MAX_DH_BYTES:
        raise KeyFaultError("the Diffie-Hellman parameters have more than 4096 bits")


def _decoded(block: str) -> tuple[str, bytes]:
    """Return the label of a well-formed PEM *block*, and its content."""
    head, _, rest = block.partition("\n")
    return head.removeprefix("-----BEGIN ").removesuffix("-----"), base64.b64decode(rest.partition("-----")[0])
