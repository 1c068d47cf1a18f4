"""Names that OpenSSL reads, and those that it does not."""

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type

from haptic_trio.x509.names import LargeCertificateError, check_name

# An attribute without limits of its length.
STREET = x509.NameOID.STREET_ADDRESS


def name(text: str, kind: _ASN1Type) -> x509.Name:
    attribute = x509.NameAttribute(x509.NameOID.COUNTRY_NAME, "DE", _ASN1Type.PrintableString)
    return x509.Name([attribute, x509.NameAttribute(STREET, text, kind, _validate=False)])


def test_an_empty_name_is_read() -> None:
    check_name(x509.Name([]))


@pytest.mark.parametrize("text", ["", "x", "\u00e4" * 100, "x" * 900])
@pytest.mark.parametrize("kind", [_ASN1Type.UTF8String, _ASN1Type.BMPString])
def test_a_string_of_usual_length_is_read(text: str, kind: _ASN1Type) -> None:
    check_name(name(text, kind))


@pytest.mark.parametrize("kind", [_ASN1Type.VisibleString, _ASN1Type.UTCTime])
def test_another_type_is_rejected(kind: _ASN1Type) -> None:
    with pytest.raises(ValueError, match="not a string that OpenSSL accepts"):
        check_name(name("x", kind))


@pytest.mark.parametrize("kind", [_ASN1Type.UTF8String, _ASN1Type.BMPString])
def test_a_string_beyond_the_limit_is_rejected(kind: _ASN1Type) -> None:
    with pytest.raises(LargeCertificateError, match="too long"):
        check_name(name("x" * 70_000, kind))
