"""Errors that the package cryptography raises for certificates that it cannot read."""

from typing import Final

from cryptography import x509
from cryptography.exceptions import InternalError, UnsupportedAlgorithm

UNREADABLE: Final = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    # OpenSSL's own errors that cryptography does not expect, as for Diffie-Hellman keys.
    InternalError,
    # These are not ValueErrors: a version other than 1 to 3, an extension that is there twice, an odd kind of name.
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
"""Certificates are input of tenants: catch all of these wherever one is loaded or its extensions are read."""
