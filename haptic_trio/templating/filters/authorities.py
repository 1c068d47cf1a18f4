"""Filters for certificate verification: bundles of authorities, revocation lists, and OCSP.

HAProxy refuses a whole configuration for one bundle that it cannot read, so each
block is read here before.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import AuthorityInformationAccessOID

from haptic_trio.templating.filters.emit import EmitError
from haptic_trio.templating.values.text import Emitted
from haptic_trio.x509_errors import UNREADABLE

_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]{1,64})-----[^-]*-----END \1-----")
_CERTIFICATE: Final = frozenset({"CERTIFICATE", "TRUSTED CERTIFICATE", "X509 CERTIFICATE"})
_MOST_BLOCKS: Final = 1_000


def authorities(value: Any) -> Emitted:
    """The certificates of a PEM bundle, each once; anything else in it, such as a key, is refused."""
    return _read(str(value), "authorities")


def revocations(value: Any) -> Emitted:
    """The lists of revoked certificates of a PEM bundle."""
    return _read(str(value), "revocations")


@lru_cache(maxsize=4_096)
def can_staple(value: Any) -> bool:
    """Whether the first certificate of a PEM bundle names an OCSP responder, and its issuer comes with it.

    HAProxy refuses to update the OCSP response of any other.
    """
    try:
        first, *rest = x509.load_pem_x509_certificates(str(value).encode())
        found = first.extensions.get_extension_for_class(x509.AuthorityInformationAccess).value
    except (*UNREADABLE, x509.ExtensionNotFound):
        return False
    return any(one.access_method == AuthorityInformationAccessOID.OCSP for one in found) and any(
        _is_issued(first, one) for one in rest
    )


def _is_issued(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (*UNREADABLE, InvalidSignature):
        return False
    return True


@lru_cache(maxsize=512)
def _read(text: str, name: str) -> Emitted:
    blocks = list(_BLOCK.finditer(text))
    if not blocks or len(blocks) != text.count("-----BEGIN ") or len(blocks) > _MOST_BLOCKS:
        raise EmitError(f"{name}: the value is not a sequence of 1 to {_MOST_BLOCKS} PEM blocks")
    allowed = _CERTIFICATE if name == "authorities" else frozenset({"X509 CRL"})
    if any(block[1] not in allowed for block in blocks):
        raise EmitError(f"{name}: the value contains blocks other than {', '.join(sorted(allowed))}")
    try:
        found = [_normal(block[0], name) for block in blocks]
    except UNREADABLE:
        raise EmitError(f"{name}: a block cannot be read") from None
    return Emitted("".join(dict.fromkeys(found)))


def _normal(block: str, name: str) -> str:
    if name == "authorities":
        return x509.load_pem_x509_certificate(block.encode()).public_bytes(Encoding.PEM).decode()
    return x509.load_pem_x509_crl(block.encode()).public_bytes(Encoding.PEM).decode()


AUTHORITIES: Final[dict[str, Callable[..., Any]]] = {
    function.__name__: function for function in (authorities, can_staple, revocations)
}
