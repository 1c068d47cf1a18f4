"""Certificates that OpenSSL loads at its security level 2, and those that it does not."""

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from haptic_trio.x509.bundles import authorities_in, bundle_of
from haptic_trio.x509.security_level import find_weakness
from tests.attacks.inputs.credentials import armored, der_of, good_pair, signed, weak_pairs, with_sha1
from tests.attacks.site import check

EC = ec.generate_private_key(ec.SECP256R1())
RSA = rsa.generate_private_key(65_537, 2_048)
ROOT = x509.NameOID.COMMON_NAME


def weakness_of(pem: str) -> str:
    return find_weakness(x509.load_pem_x509_certificate(pem.encode()))


@pytest.mark.parametrize("key", [EC, RSA, ec.generate_private_key(ec.SECP521R1())], ids=["P-256", "RSA", "P-521"])
def test_usual_certificates_are_strong(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    assert weakness_of(signed(key)) == ""
    assert weakness_of(signed(key, by=RSA)) == ""


@pytest.mark.haproxy
def test_an_old_root_in_a_chain_is_accepted_by_haproxy_too(tmp_path: Path) -> None:
    crt, own = good_pair()
    bundle = bundle_of(crt + with_sha1(signed(RSA)), own, is_pair=True)
    text = f"defaults\n    timeout client 1s\nfrontend f\n    bind 127.0.0.1:1 ssl crt {tmp_path}/root.pem\n"
    (tmp_path / "root.pem").write_text(bundle)

    assert check(tmp_path / "check", text, {}) == ""


def test_a_certificate_that_only_names_itself_as_its_issuer_is_not_self_signed() -> None:
    # The signature is ignored by OpenSSL only if the identifiers of the keys are equal.
    name = x509.Name([x509.NameAttribute(ROOT, "a")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(RSA.public_key())
    loaded = x509.load_pem_x509_certificate(signed(RSA).encode())
    builder = builder.serial_number(7).not_valid_before(loaded.not_valid_before_utc)
    builder = builder.not_valid_after(loaded.not_valid_after_utc)
    builder = builder.add_extension(x509.SubjectKeyIdentifier(b"a"), critical=False)
    of_own, of_other = (x509.AuthorityKeyIdentifier(one, None, None) for one in (b"a", b"b"))

    found = [
        weakness_of(with_sha1(_pem(builder.add_extension(issuer, critical=False).sign(RSA, hashes.SHA256()))))
        for issuer in (of_own, of_other)
    ]

    assert found[0] == ""
    assert "weak or unknown digest" in found[1]


def test_an_algorithm_that_differs_inside_is_not_that_of_a_self_signed_certificate() -> None:
    der = der_of(with_sha1(signed(RSA)))
    oid = bytes.fromhex("2a864886f70d010105")

    assert weakness_of(armored("CERTIFICATE", der)) == ""
    changed = armored("CERTIFICATE", der.replace(oid, bytes.fromhex("2a864886f70d010155"), 1))
    assert "weak or unknown digest" in weakness_of(changed)


@pytest.mark.parametrize("name", weak_pairs())
def test_a_weak_certificate_is_rejected_beside_a_key_alone(name: str) -> None:
    crt, _key = weak_pairs()[name]

    # HAProxy takes any authority.
    assert authorities_in(crt) == bundle_of(crt)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()
