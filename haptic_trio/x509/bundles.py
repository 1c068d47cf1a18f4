"""PEM bundles of certificates and keys, in the form that HAProxy can load and use.

HAProxy rejects a whole configuration for one bundle that it cannot read. Every reader of a tenant's certificates
uses these functions, so that an object is rejected before its certificates are part of the output of another.
"""

import base64
import binascii
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from haptic_trio.x509.errors import UNREADABLE
from haptic_trio.x509.keys import KeyFaultError, certified_key, check_parameters, find_costly_key, public_half
from haptic_trio.x509.names import LargeCertificateError, check_name
from haptic_trio.x509.security_level import find_weakness
from haptic_trio.x509.verdicts import cached

_PEM: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]{1,64})-----\n([A-Za-z0-9+/=\n]+)-----END \1-----(?:\n|\Z)")
_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]{1,64})-----[^-]*-----END \1-----")
_CERTIFICATE_HEAD: Final = "-----BEGIN CERTIFICATE-----"
_CERTIFICATE: Final = frozenset({"CERTIFICATE", "TRUSTED CERTIFICATE", "X509 CERTIFICATE"})
"""Labels under which OpenSSL reads a certificate."""
_HEAD_OF_CERTIFICATE: Final = re.compile(rf"-----BEGIN (?:{'|'.join(sorted(_CERTIFICATE))})-----")
_LIST: Final = frozenset({"X509 CRL"})
_MOST_BLOCKS: Final = 1_000
_LONGEST_KNOWN: Final = 8_192
"""Bytes of PEM up to which many bundles are kept: a tenant may replace a megabyte again and again."""
_LARGEST: Final = 32_768
"""Bytes of one certificate in PEM. The package cryptography takes up to 1 us to read the names in a byte."""
_MOST_NAMES: Final = 1_000
_FIRST: Final = re.compile(rb"-----BEGIN (?:X509 )?CERTIFICATE-----[^-]*-----END (?:X509 )?CERTIFICATE-----")
_MOST_KNOWN_NAMES: Final = 200_000


class BundleError(ValueError):
    """A bundle that HAProxy could not use; the text is the reason, without any of the content."""


def bundle_of(*parts: str, is_pair: bool = False) -> str:
    """Return the PEM blocks of *parts*, in their order, without the text between them; raises `BundleError`.

    With *is_pair*, there must be a certificate and a private key.
    """
    blocks: list[str] = []
    for part in parts:
        text = "\n".join(line.strip(" \t\r") for line in part.split("\n"))
        if "Proc-Type:" in text or "-----BEGIN ENCRYPTED " in text:
            raise BundleError("a key is encrypted")
        own = [_block_of(match) for match in _PEM.finditer(text)]
        if not own or len(own) != text.count("-----BEGIN "):
            raise BundleError("the value is not a sequence of well-formed PEM blocks")
        blocks += own
    if fault := _find_fault(*blocks):
        raise BundleError(fault)
    found = "".join(blocks)
    if is_pair and not (_CERTIFICATE_HEAD in found and "PRIVATE KEY-----" in found):
        raise BundleError("the value must have a certificate and its private key")
    return found


@cached(4_096)
def _find_fault(*blocks: str) -> str:
    """Return what is wrong with certificates and keys."""
    certificates: list[x509.Certificate] = []
    keys = [block for block in blocks if "PRIVATE KEY-----" in block.partition("\n")[0]]
    for number, block in enumerate(filter(_HEAD_OF_CERTIFICATE.match, blocks), 1):
        try:
            certificates.append(_load(block.encode()))
        except LargeCertificateError as exc:
            return f"certificate {number} {exc}"
        except UNREADABLE:
            return f"certificate {number} cannot be read"
    try:
        _check_keys(certificates, keys)
        # A bundle without a key is a list of authorities: OpenSSL has no minimum for these, but clients choose what
        # their keys verify.
        for number, certificate in enumerate(certificates, 1):
            if weakness := find_weakness(certificate) if keys else find_costly_key(certificate):
                return f"certificate {number} {weakness}"
        if keys and certificates and len(_names_of(certificates[0]) or ()) > _MOST_NAMES:
            return f"certificate 1 has more than {_MOST_NAMES:,} names"
        for block in blocks:
            if "DH PARAMETERS-----" in block.partition("\n")[0]:
                check_parameters(block)
    except KeyFaultError as exc:
        return str(exc)
    return ""


def _load(block: bytes) -> x509.Certificate:
    """Return the certificate in *block*; raises one of `UNREADABLE`, `LargeCertificateError` among them."""
    if len(block) > _LARGEST:
        raise LargeCertificateError(f"is larger than {_LARGEST:,} bytes")
    certificate = x509.load_pem_x509_certificate(block)
    check_name(certificate.subject)
    check_name(certificate.issuer)
    return certificate


def _check_keys(certificates: Sequence[x509.Certificate], keys: Sequence[str]) -> None:
    halves = [public_half(key) for key in keys]
    if halves and certificates and halves[0] != certified_key(certificates[0]):
        raise KeyFaultError("the private key is not that of the first certificate")


def _block_of(match: re.Match[str]) -> str:
    label, body = match.group(1), match.group(2).replace("\n", "")
    try:
        base64.b64decode(body, validate=True)
    except binascii.Error:
        raise BundleError(f"the {label} block is not valid Base64") from None
    lines = [body[start : start + 64] for start in range(0, len(body), 64)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])


def authorities_in(text: str) -> str:
    """Return the certificates of a PEM bundle, each once; raises `BundleError` for anything else in it."""
    return _known_form(text, _CERTIFICATE)


def revocations_in(text: str) -> str:
    """Return the lists of revoked certificates of a PEM bundle; raises `BundleError` for anything else in it."""
    return _known_form(text, _LIST)


def _known_form(text: str, labels: frozenset[str]) -> str:
    return (_short_forms if len(text) <= _LONGEST_KNOWN else _long_forms)(text, labels)


def _normalised(text: str, labels: frozenset[str]) -> str:
    blocks = list(_BLOCK.finditer(text))
    if not blocks or len(blocks) != text.count("-----BEGIN ") or len(blocks) > _MOST_BLOCKS:
        raise BundleError(f"the value is not a sequence of 1 to {_MOST_BLOCKS} PEM blocks")
    if any(block[1] not in labels for block in blocks):
        raise BundleError(f"the value contains blocks other than {', '.join(sorted(labels))}")
    try:
        found = [_in_form(number, block[0].encode(), labels) for number, block in enumerate(blocks, 1)]
    except KeyFaultError as exc:
        raise BundleError(str(exc)) from None
    except LargeCertificateError as exc:
        raise BundleError(f"a block {exc}") from None
    except UNREADABLE:
        raise BundleError("a block cannot be read") from None
    return "".join(dict.fromkeys(found))


_short_forms: Final = lru_cache(maxsize=64)(_normalised)
_long_forms: Final = lru_cache(maxsize=8)(_normalised)  # of up to a megabyte each


def _in_form(number: int, block: bytes, labels: frozenset[str]) -> str:
    if labels == _LIST:
        found = x509.load_pem_x509_crl(block)
        check_name(found.issuer)
        return found.public_bytes(Encoding.PEM).decode()
    certificate = _load(block)
    if fault := find_costly_key(certificate):
        raise KeyFaultError(f"certificate {number} {fault}")
    return certificate.public_bytes(Encoding.PEM).decode()


def names_in(pem: bytes) -> frozenset[str] | None:
    """Return the names in the first certificate of *pem*, in lower case; None if it cannot be read or is too large."""
    found = _FIRST.search(pem)
    return _known_names(found[0].decode()) if found is not None else None


@cached(_MOST_KNOWN_NAMES, lambda names: 1 + len(names or ()))
def _known_names(block: str) -> frozenset[str] | None:
    if len(block) > _LARGEST:
        return None
    try:
        names = _names_of(x509.load_pem_x509_certificate(block.encode()))
    except UNREADABLE:
        return None
    return None if names is None or len(names) > _MOST_NAMES else names


def _names_of(certificate: x509.Certificate) -> frozenset[str] | None:
    try:
        names = {str(one.value) for one in certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)}
        try:
            extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
            names.update(extension.value.get_values_for_type(x509.DNSName))
        except x509.ExtensionNotFound:
            pass
    except UNREADABLE:
        return None
    return frozenset(name.lower() for name in names)
