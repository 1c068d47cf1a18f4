"""Bundles that HAProxy can load, and the reasons against the others."""

import tracemalloc

import pytest
import trustme

from haptic_trio.x509.bundles import BundleError, authorities_in, bundle_of, names_in, revocations_in
from tests.attacks.inputs.credentials import (
    good_pair,
    malformed_certificates,
    malformed_pairs,
    pair_for,
    parameters,
    rsa_certificate,
)

CERTIFICATE, KEY = good_pair()
RSA = bytes.fromhex("300d06092a864886f70d0101010500")
RSA_PSS = bytes.fromhex("300b06092a864886f70d01010a")
RSA_OF_X500 = bytes.fromhex("3006060455080101")
# The extensions of a certificate are read only where they are needed; HAProxy loads it, too.
LOADABLE = {"duplicate extension"}


def test_text_between_blocks_is_left_out() -> None:
    assert bundle_of(f"subject=x\r\n{CERTIFICATE}", f"\n{KEY}", is_pair=True) == CERTIFICATE + KEY


def test_parameters_of_a_usual_size_are_kept() -> None:
    assert "BEGIN DH PARAMETERS" in bundle_of(CERTIFICATE + parameters(2_048), KEY, is_pair=True)


@pytest.mark.parametrize("name", malformed_pairs())
def test_a_malformed_pair_is_rejected_without_its_content(name: str) -> None:
    with pytest.raises(BundleError) as caught:
        bundle_of(*malformed_pairs()[name], is_pair=True)
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize("name", sorted(malformed_certificates().keys() - LOADABLE))
def test_malformed_authorities_are_rejected(name: str) -> None:
    with pytest.raises(BundleError):
        authorities_in(malformed_certificates()[name])


@pytest.mark.parametrize(
    ("kind", "exponent", "problem"),
    [
        (RSA, (1 << 32) + 1, "an RSA key with a public exponent of 33 bits; 32 are the limit"),
        (RSA_PSS, (1 << 3_000) + 1, "an RSA key with a public exponent of 3001 bits; 32 are the limit"),
        (RSA, 1 << 3_000, "an RSA key that cannot be read"),
        (RSA, (1 << 4_000) + 1, "an RSA key that cannot be read"),
        (RSA_OF_X500, (1 << 3_000) + 1, "an RSA key that cannot be read"),
    ],
    ids=["33 bits", "PSS", "even", "beyond the modulus", "X.500"],
)
def test_an_authority_whose_key_takes_long_to_verify_signatures_is_rejected(
    kind: bytes, exponent: int, problem: str
) -> None:
    modulus = (1 << 3_072) - 1
    usable = rsa_certificate(modulus, 65_537) + rsa_certificate(modulus, (1 << 32) - 1)

    assert authorities_in(usable).count("BEGIN") == 2
    for check in (authorities_in, bundle_of):
        with pytest.raises(BundleError, match=f"^certificate 3 has {problem}$"):
            check(usable + rsa_certificate(modulus, exponent, kind))


def test_authorities_are_there_once_and_without_keys() -> None:
    assert authorities_in(CERTIFICATE * 3).count("BEGIN") == 1
    # What `bundle_of` makes of them is the same.
    assert bundle_of(authorities_in(CERTIFICATE)) == authorities_in(CERTIFICATE)
    with pytest.raises(BundleError, match="blocks other than"):
        authorities_in(CERTIFICATE + KEY)
    with pytest.raises(BundleError, match="1 to 1000 PEM blocks"):
        authorities_in(CERTIFICATE * 1_001)


def test_certificates_are_no_lists_of_revoked_ones() -> None:
    with pytest.raises(BundleError, match="X509 CRL"):
        revocations_in(CERTIFICATE)


def test_names_are_those_of_the_first_certificate_in_lower_case() -> None:
    authority = trustme.CA()
    one = authority.issue_cert("Shop.Example", "*.shop.example", common_name="Common.Example")
    other = authority.issue_cert("other.example")
    chain = one.cert_chain_pems[0].bytes() + other.cert_chain_pems[0].bytes()

    assert names_in(chain) == frozenset({"shop.example", "*.shop.example", "common.example"})


def test_certificates_have_a_limited_number_of_names_and_bytes() -> None:
    names = [f"h{number}.test" for number in range(1_001)]
    certificate, key = pair_for(*names)
    with pytest.raises(BundleError, match="certificate 1 has more than 1,000 names"):
        bundle_of(certificate, key, is_pair=True)
    assert names_in(certificate.encode()) is None
    # Servers check the names of no authority.
    assert authorities_in(certificate)

    certificate, key = pair_for(*names[1:])
    assert bundle_of(certificate, key, is_pair=True)
    assert names_in(certificate.encode()) == frozenset(names[1:])

    certificate, key = pair_for(*(f"{'x' * 40}.{name}" for name in names[1:]))
    with pytest.raises(BundleError, match="certificate 1 is larger than 32,768 bytes"):
        bundle_of(certificate, key, is_pair=True)
    with pytest.raises(BundleError, match="a block is larger than 32,768 bytes"):
        authorities_in(certificate)
    assert names_in(certificate.encode()) is None


@pytest.mark.parametrize("units", [["x"] * 20, ["x" * 2_100]], ids=["attributes", "bytes"])
def test_names_that_haproxy_takes_long_to_copy_are_rejected(units: list[str]) -> None:
    certificate, _key = pair_for("shop.test", units=units)
    fault = "has a name that is too long; 20 attributes and 2,048 bytes are the limits"
    with pytest.raises(BundleError, match=fault):
        authorities_in(CERTIFICATE + certificate)
    with pytest.raises(BundleError, match=fault):
        bundle_of(CERTIFICATE, certificate, KEY)

    usual, key = pair_for("shop.test", units=["x"] * 19)
    assert authorities_in(usual)
    assert bundle_of(usual, key, is_pair=True)


def test_versions_of_a_large_bundle_of_authorities_do_not_stay_in_memory() -> None:
    size, number = 400_000, 40
    pem = trustme.CA().cert_pem.bytes().decode()
    tracemalloc.start()
    try:
        for version in range(number):
            assert authorities_in(f"{version}\n" + "#" * size + "\n" + pem) == pem
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept < size * number / 4


def test_a_certificate_without_host_names_has_none() -> None:
    assert names_in(trustme.CA().issue_cert("127.0.0.1").cert_chain_pems[0].bytes()) == frozenset()


def test_names_of_an_unreadable_certificate_are_unknown() -> None:
    unreadable = ("no PEM", "zero length", "truncated DER", "random DER", "version 8", "duplicate extension")

    assert {name: names_in(malformed_certificates()[name].encode()) for name in unreadable} == dict.fromkeys(unreadable)
