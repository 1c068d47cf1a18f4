"""Certificates and keys of attackers: malformed ones, and those that are costly to read or to use."""

import base64
import datetime
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPrivateNumbers
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

AUTHORITY: Final = trustme.CA()
_RSA: Final = bytes.fromhex("300d06092a864886f70d0101010500")
_SHA256: Final = bytes.fromhex("300d06092a864886f70d01010b0500")
_SHA1: Final = bytes.fromhex("06092a864886f70d010105")
_UNIT: Final = b"\x0c\x1cTesting"
"""The name of trustme's authorities, a UTF8String."""
_VERSION_3: Final = bytes.fromhex("a003020102")


def element(tag: int, *content: bytes) -> bytes:
    """Return a DER element."""
    body = b"".join(content)
    size = len(body).to_bytes((len(body).bit_length() + 7) // 8, "big")
    return bytes([tag, *([len(body)] if len(body) < 128 else [0x80 | len(size)])]) + size * (len(body) >= 128) + body


def number(value: int) -> bytes:
    """Return a DER integer."""
    return element(2, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def armored(label: str, der: bytes) -> str:
    """Return a PEM block."""
    return f"-----BEGIN {label}-----\n{base64.encodebytes(der).decode()}-----END {label}-----\n"


def der_of(block: str) -> bytes:
    """Return the content of a PEM block."""
    return base64.b64decode("".join(block.strip().split("\n")[1:-1]))


@cache
def mersenne_pair(one: int, other: int) -> tuple[str, str]:
    """Return a certificate and an RSA key of the primes 2**one-1 and 2**other-1, which take no time to find."""
    p, q, e = (1 << one) - 1, (1 << other) - 1, 65_537
    n, d = p * q, pow(e, -1, (p - 1) * (q - 1))
    numbers = (0, n, e, d, p, q, d % (p - 1), d % (q - 1), pow(q, -1, p))
    return rsa_certificate(n, e), armored("RSA PRIVATE KEY", element(0x30, *map(number, numbers)))


def rsa_certificate(n: int, e: int, kind: bytes = _RSA) -> str:
    """Return a certificate for the RSA key of modulus *n* and exponent *e*; *kind* is the identifier of its type."""
    name = element(0x30, element(0x31, element(0x30, bytes.fromhex("0603550403"), element(12, b"a.test"))))
    times = element(0x30, element(0x17, b"250101000000Z"), element(0x17, b"450101000000Z"))
    half = element(0x30, kind, element(3, b"\0", element(0x30, number(n), number(e))))
    content = element(0x30, _VERSION_3, number(7), _SHA256, name, times, name, half)
    return armored("CERTIFICATE", element(0x30, content, _SHA256, element(3, b"\0" * 257)))


@cache
def good_pair(name: str = "a.attacker.test", kind: trustme.KeyType = trustme.KeyType.ECDSA) -> tuple[str, str]:
    """Return a certificate and its key."""
    issued = AUTHORITY.issue_cert(name, key_type=kind)
    return issued.cert_chain_pems[0].bytes().decode(), issued.private_key_pem.bytes().decode()


@cache
def numbers_of(key: str) -> RSAPrivateNumbers:
    """Return the numbers of an RSA key."""
    found = load_pem_private_key(key.encode(), None)
    assert isinstance(found, RSAPrivateKey)
    return found.private_numbers()


def with_large_exponents(key: str, bits: int, *, is_whole: bool = True) -> str:
    """Return an equivalent of the RSA *key* whose exponents have about *bits* bits more; or without its primes."""
    found, more = numbers_of(key), 1 << bits
    p, q, n, e = found.p, found.q, found.public_numbers.n, found.public_numbers.e
    crt = (p, q, found.dmp1 + (p - 1) * more, found.dmq1 + (q - 1) * more, found.iqmp)
    whole = (0, n, e, found.d, *crt)
    reduced = (0, n, e, found.d + (p - 1) * (q - 1) * more, 0, 0, 0, 0, 0)
    return armored("RSA PRIVATE KEY", element(0x30, *map(number, whole if is_whole else reduced)))


def group_key(algorithm: str, bits: int) -> str:
    """Return a key of a discrete logarithm, whose public half takes long to compute; *algorithm* is its OID."""
    numbers = [number((1 << bits) - 159), number((1 << 255) - 19), number((1 << (bits - 2)) + 7)]
    parameters = element(0x30, *(numbers if algorithm.startswith("06072a") else (numbers[0], numbers[2])))
    content = (number(0), element(0x30, bytes.fromhex(algorithm), parameters), element(4, number(1 << (bits // 2))))
    return armored("PRIVATE KEY", element(0x30, *content))


DSA: Final = "06072a8648ce380401"
DIFFIE_HELLMAN: Final = "06092a864886f70d010301"


def parameters(bits: int) -> str:
    """Return parameters for Diffie-Hellman of a size that OpenSSL still uses, up to 10,000 bits."""
    return armored("DH PARAMETERS", element(0x30, number((1 << bits) - 1), number(2)))


def _duplicate_extension(certificate: bytes) -> bytes:
    """Return *certificate* with its last extension twice; the signature does not matter."""
    parsed = x509.load_der_x509_certificate(certificate)
    body = parsed.tbs_certificate_bytes
    start = body.rindex(b"\xa3\x81") if b"\xa3\x81" in body else body.rindex(b"\xa3\x82")
    head = 3 if body[start + 1] == 0x81 else 4
    listed = body[start + head :]
    inner = listed[3 if listed[1] == 0x81 else 2 if listed[1] < 128 else 4 :]
    # The outer elements: the content of the body behind its own header.
    opened = body[4 if body[1] == 0x82 else 3 : start]
    content = element(0x30, opened, element(0xA3, element(0x30, inner, inner)))
    return element(0x30, content, _SHA256, element(3, b"\0" * 65))


Key = RSAPrivateKey | ec.EllipticCurvePrivateKey
_PLAIN_FORM: Final = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def signed(key: Key, *names: str, by: Key | None = None, units: Sequence[str] = ()) -> str:
    """Return a certificate of *key* for *names*: self-signed, or signed by another key. *units* are in its subject."""
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    names = names or ("a.attacker.test",)
    # Of any length, unlike most attributes.
    more = [x509.NameAttribute(x509.NameOID.STREET_ADDRESS, unit) for unit in units]
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, names[0]), *more])
    issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")]) if by else subject
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=3_650))
        .add_extension(x509.SubjectAlternativeName([*map(x509.DNSName, names)]), critical=False)
        .sign(by or key, hashes.SHA256())
    )
    return made.public_bytes(Encoding.PEM).decode()


def pair_for(*names: str, units: Sequence[str] = ()) -> tuple[str, str]:
    """Return a self-signed certificate for *names*, and its key; *units* are in its subject."""
    key = ec.generate_private_key(ec.SECP256R1())
    return signed(key, *names, units=units), key.private_bytes(*_PLAIN_FORM).decode()


def with_sha1(certificate: str) -> str:
    """Return *certificate*, signed by an RSA key, as if its digest were SHA-1; HAProxy verifies no signature."""
    return armored("CERTIFICATE", der_of(certificate).replace(_SHA256[2:-2], _SHA1))


@cache
def _rsa_key(bits: int) -> RSAPrivateKey:
    return rsa.generate_private_key(65_537, bits)


@cache
def weak_pairs() -> Mapping[str, tuple[str, str]]:
    """Return certificates with keys that OpenSSL rejects at its security level 2, by what is weak of each."""
    good, key = good_pair()
    own, small = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP192R1())

    def pair(of: Key) -> tuple[str, str]:
        return signed(of), of.private_bytes(*_PLAIN_FORM).decode()

    return {
        "RSA key of 1024 bits": pair(_rsa_key(1_024)),
        "RSA key of 1536 bits": pair(_rsa_key(1_536)),
        "key of a small curve": pair(small),
        "small key in the chain": (good + signed(_rsa_key(1_024)), key),
        "small curve in the chain": (good + signed(small), key),
        "SHA-1": (with_sha1(signed(own, by=_rsa_key(2_048))), own.private_bytes(*_PLAIN_FORM).decode()),
        "SHA-1 in the chain": (good + with_sha1(signed(own, by=_rsa_key(2_048))), key),
    }


@cache
def malformed_certificates() -> Mapping[str, str]:
    """Return texts in place of a certificate, by what is wrong with each."""
    good = good_pair()[0]
    der = der_of(good)
    return {
        "no PEM": "garbage",
        "zero length": "",
        "NUL": "\0" + good.replace("-----\n", "-----\n\0", 1),
        "broken Base64 in PEM": good.replace("\n", "\n%", 1),
        "padding in PEM": good.replace("\n", "\nA", 1),
        "no end line": good.rpartition("-----END")[0],
        "another begin line": f"-----BEGIN JUNK-----\n{good}",
        "other end line": good.replace("END CERTIFICATE", "END KEY"),
        "truncated DER": armored("CERTIFICATE", der[: len(der) // 2]),
        "random DER": armored("CERTIFICATE", bytes(range(256)) * 2),
        "empty DER": "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n",
        "data behind DER": armored("CERTIFICATE", der + b"trailing"),
        "second block unreadable": good + armored("CERTIFICATE", b"\x30\x03\x02\x01\x01"),
        "version 8": armored("CERTIFICATE", der.replace(_VERSION_3, bytes.fromhex("a003020107"), 1)),
        "duplicate extension": armored("CERTIFICATE", _duplicate_extension(der)),
        "other label": good.replace("CERTIFICATE-", "PKCS7-"),
        "another label for certificates": good + armored("X509 CERTIFICATE", b"\x30\x03\x02\x01\x01"),
        "name that is not UTF-8": armored("CERTIFICATE", der.replace(_UNIT, _UNIT[:-1] + b"\xff", 1)),
        "name of another type": armored("CERTIFICATE", der.replace(_UNIT, b"\x1a" + _UNIT[1:], 1)),
    }


@cache
def malformed_pairs() -> Mapping[str, tuple[str, str]]:
    """Return certificates with keys, by what is wrong with each pair."""
    good, key = good_pair()
    large = good_pair("b.attacker.test", trustme.KeyType.RSA)
    own = dsa.generate_private_key(1024)
    plain = (Encoding.PEM, PrivateFormat.PKCS8)
    locked = load_pem_private_key(key.encode(), None).private_bytes(*plain, BestAvailableEncryption(b"x"))
    found = {name: (text, key) for name, text in malformed_certificates().items() if name != "duplicate extension"}
    return (
        found
        | dict(weak_pairs())
        | {
            "line behind the key": (good, f"{key}-----BEGIN x\n"),
            "key of another certificate": (good, good_pair("c.attacker.test")[1]),
            "key without an end": (good, key.rpartition("-----END")[0]),
            "zero length of key": (good, ""),
            "NUL in key": (good, "\0" + key.replace("-----\n", "-----\n\0", 1)),
            "random key": (good, armored("PRIVATE KEY", bytes(range(256)))),
            "truncated key": (good, armored("PRIVATE KEY", der_of(key)[:40])),
            "encrypted key": (good, locked.decode()),
            "no key": (good, good),
            "no certificate": (key, key),
            "DSA key": (good, own.private_bytes(*plain, NoEncryption()).decode()),
            "large DSA key": (good, group_key(DSA, 16_000)),
            "Diffie-Hellman key": (good, group_key(DIFFIE_HELLMAN, 2_048)),
            "large RSA key": mersenne_pair(9_689, 9_941),
            "large exponents": (large[0], with_large_exponents(large[1], 20_000)),
            "large exponent without primes": (large[0], with_large_exponents(large[1], 20_000, is_whole=False)),
            "large parameters": (large[0] + parameters(9_999), large[1]),
        }
    )
