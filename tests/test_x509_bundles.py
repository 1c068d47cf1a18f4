"""Bundles that HAProxy can load, and the reasons against the others."""

import pytest

from haptic_trio.x509_bundles import BundleError, authorities_in, bundle_of, revocations_in
from tests.attacks.credentials import good_pair, malformed_certificates, malformed_pairs, parameters

CERTIFICATE, KEY = good_pair()
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


@pytest.mark.parametrize("name", malformed_certificates().keys() - LOADABLE)
def test_malformed_authorities_are_rejected(name: str) -> None:
    with pytest.raises(BundleError):
        authorities_in(malformed_certificates()[name])


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
