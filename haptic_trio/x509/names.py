"""Distinguished names of certificates, which OpenSSL reads more strictly than the package cryptography."""

import re
from typing import Final

from cryptography import x509

_LENGTH: Final = rb"(?:[\x00-\x7f]|\x81.|\x82..|\x83...)"
# A name of one attribute: sequence, set, sequence, and the length of the attribute's object identifier.
_HEAD: Final = re.compile(
    rb"\x30" + _LENGTH + rb"\x31" + _LENGTH + rb"\x30" + _LENGTH + rb"\x06([\x01-\x7f])", re.DOTALL
)
_STRINGS: Final = frozenset({
    0x03,  # BIT STRING
    0x0C,  # UTF8String
    0x12,  # NumericString
    0x13,  # PrintableString
    0x14,  # T61String
    0x16,  # IA5String
    0x1C,  # UniversalString
    0x1E,  # BMPString
})  # fmt: skip
"""Types that OpenSSL accepts for an attribute. It does not accept VisibleString, OCTET STRING, and times."""
_MOST_ATTRIBUTES: Final = 20
_MOST_BYTES: Final = 2_048


class LargeCertificateError(ValueError):
    """A certificate that takes HAProxy or the controller long to use; the text says why, as `is larger than …`."""


def check_name(name: x509.Name) -> None:
    """Raise ValueError if OpenSSL cannot read *name*, and `LargeCertificateError` if it is very long.

    OpenSSL reads the names of a certificate at once. Cryptography reads them
    for the call of this function, and raises ValueError for what is malformed.
    HAProxy copies the names of CA certificates for each line that refers to
    them: 4 us for each attribute, measured.
    """
    size = 0
    for number, attribute in enumerate(name, 1):
        der = x509.Name([attribute]).public_bytes()
        size += len(der)
        if number > _MOST_ATTRIBUTES or size > _MOST_BYTES:
            limits = f"{_MOST_ATTRIBUTES} attributes and {_MOST_BYTES:,} bytes"
            raise LargeCertificateError(f"has a name that is too long; {limits} are the limits")
        head = _HEAD.match(der)
        if head is None or der[head.end() + head[1][0]] not in _STRINGS:
            raise ValueError("an attribute of a name is not a string that OpenSSL accepts")
