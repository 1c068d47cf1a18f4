"""Security level 2 of OpenSSL: the keys and signatures without which HAProxy loads no certificate.

OpenSSL checks each certificate of a chain when HAProxy loads it: the size of its key, and the digest of its signature
unless the certificate is self-signed. Level 2 is the default of Debian and of OpenSSL 3.2 and later. HAProxy rejects
the `bind` line of a weaker certificate, and with it the listeners of all others at that port.
"""

import re
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import SignatureAlgorithmOID

from haptic_trio.x509.errors import UNREADABLE

MIN_RSA_BITS: Final = 2048
_MIN_CURVE_BITS: Final = 224
_DIGESTS: Final = frozenset(
    {"sha224", "sha256", "sha384", "sha512"} | {f"sha3-{bits}" for bits in (224, 256, 384, 512)}
)
_WITHOUT_DIGEST: Final = frozenset({SignatureAlgorithmOID.ED25519, SignatureAlgorithmOID.ED448})
_OLD: Final = {
    SignatureAlgorithmOID.RSA_WITH_MD5: (RSAPublicKey, bytes.fromhex("06092a864886f70d010104")),
    SignatureAlgorithmOID.RSA_WITH_SHA1: (RSAPublicKey, bytes.fromhex("06092a864886f70d010105")),
    SignatureAlgorithmOID.ECDSA_WITH_SHA1: (ec.EllipticCurvePublicKey, bytes.fromhex("06072a8648ce3d0401")),
}
"""Signatures that only a self-signed certificate may have: the kind of its key, and the identifier in DER."""
# Of the signed part of a certificate: the version, and the length of the serial number.
_HEAD: Final = re.compile(
    rb"\x30(?:[\x00-\x7f]|\x81.|\x82..|\x83...)(?:\xa0\x03\x02\x01.)?\x02([\x01-\x7f])", re.DOTALL
)


def find_weakness(certificate: x509.Certificate) -> str:
    """Return why OpenSSL rejects *certificate* at level 2; empty if it accepts it."""
    try:
        key = certificate.public_key()
    except UNREADABLE:
        return "has a key that cannot be read"
    if not _is_strong(key):
        return f"has a weak key: RSA needs {MIN_RSA_BITS} bits or more, and ECDSA a prime curve of {_MIN_CURVE_BITS}"
    if not (_is_signed_well(certificate) or _is_self_signed(certificate)):
        return "has a signature with a weak or unknown digest, such as MD5 or SHA-1"
    return ""


def _is_strong(key: CertificatePublicKeyTypes) -> bool:
    if isinstance(key, RSAPublicKey):
        return key.key_size >= MIN_RSA_BITS
    if isinstance(key, ec.EllipticCurvePublicKey):
        # Builds of OpenSSL may lack the binary curves, whose names begin with `sect`.
        return key.key_size >= _MIN_CURVE_BITS and not key.curve.name.startswith("sect")
    return isinstance(key, Ed25519PublicKey | Ed448PublicKey)


def _is_signed_well(certificate: x509.Certificate) -> bool:
    try:
        digest = certificate.signature_hash_algorithm
        # Parameters that are unknown to OpenSSL hide the digest from it.
        _ = certificate.signature_algorithm_parameters
    except UNREADABLE:
        return False
    return digest.name in _DIGESTS if digest is not None else certificate.signature_algorithm_oid in _WITHOUT_DIGEST


def _is_self_signed(certificate: x509.Certificate) -> bool:
    """Whether OpenSSL takes *certificate* for self-signed, and so ignores its signature; roots may have old ones."""
    try:
        kind, identifier = _OLD.get(certificate.signature_algorithm_oid, (None, b""))
        if kind is None or not isinstance(certificate.public_key(), kind) or certificate.issuer != certificate.subject:
            return False
        if not _has_inside(certificate.tbs_certificate_bytes, identifier):
            return False
        extensions = certificate.extensions
        issuer = next((one.value for one in extensions if isinstance(one.value, x509.AuthorityKeyIdentifier)), None)
        own = next((one.value for one in extensions if isinstance(one.value, x509.SubjectKeyIdentifier)), None)
    except UNREADABLE:
        return False
    return issuer is None or (
        issuer.key_identifier in (None, own.digest if own else None)
        and issuer.authority_cert_serial_number in (None, certificate.serial_number)
        and issuer.authority_cert_issuer in (None, [x509.DirectoryName(certificate.issuer)])
    )


def _has_inside(signed: bytes, identifier: bytes) -> bool:
    """Whether the *signed* part of a certificate names the algorithm *identifier*; OpenSSL reads its kind there."""
    head = _HEAD.match(signed)
    start = head.end() + head[1][0] if head else 0
    return head is not None and signed[start : start + 1] == b"\x30" and signed.startswith(identifier, start + 2)
