"""Filters for certificate verification: bundles of authorities, revocation lists, and OCSP.

HAProxy rejects a whole configuration for one bundle that it cannot read, so each
block is read here before, and raises `EmitError` if it cannot be read.
"""

from collections.abc import Callable
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import AuthorityInformationAccessOID

from haptic_trio.templating.filters.emit import EmitError
from haptic_trio.templating.values.text import Emitted
from haptic_trio.x509.bundles import BundleError, authorities_in, revocations_in
from haptic_trio.x509.errors import UNREADABLE
from haptic_trio.x509.verdicts import cached


def authorities(value: Any) -> Emitted:
    """The certificates of a PEM bundle, each once; anything else in it, such as a key, is rejected.

    So are RSA keys with a public exponent of more than 32 bits, which take HAProxy long to verify signatures.
    """
    try:
        return Emitted(authorities_in(str(value)))
    except BundleError as exc:
        raise EmitError(f"authorities: {exc}") from None


def revocations(value: Any) -> Emitted:
    """The lists of revoked certificates of a PEM bundle."""
    try:
        return Emitted(revocations_in(str(value)))
    except BundleError as exc:
        raise EmitError(f"revocations: {exc}") from None


def can_staple(value: Any) -> bool:
    """Whether the first certificate of a PEM bundle names an OCSP responder, and its issuer comes with it.

    HAProxy rejects to update the OCSP response of any other.
    """
    return _can_staple(str(value))


@cached(4_096)
def _can_staple(text: str) -> bool:
    try:
        first, *rest = x509.load_pem_x509_certificates(text.encode())
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


AUTHORITIES: Final[dict[str, Callable[..., Any]]] = {
    function.__name__: function for function in (authorities, can_staple, revocations)
}
