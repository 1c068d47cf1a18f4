"""Bundles of authorities: what HAProxy could not read does not reach it, and no key does."""

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.templating.filters import authorities
from haptic_trio.templating.filters.emit import EmitError

ONE, TWO = (trustme.CA().cert_pem.bytes().decode() for _ in range(2))
KEY = trustme.CA().private_key_pem.bytes().decode()


def test_each_authority_is_there_once() -> None:
    bundle = f"# one\r\n{ONE}\n{TWO}{ONE}".replace("\n", "\r\n")

    assert authorities.authorities(bundle) == ONE.strip() + "\n" + TWO.strip() + "\n"


@pytest.mark.parametrize(
    "text",
    ["", "text", ONE + KEY, KEY, ONE.replace("END CERTIFICATE", "END X"), ONE[:200], ONE.replace("MI", "AA", 1)],
)
def test_what_is_not_a_bundle_of_authorities_is_rejected(text: str) -> None:
    with pytest.raises(EmitError):
        authorities.authorities(text)


def test_a_certificate_is_not_a_list_of_revoked_ones() -> None:
    with pytest.raises(EmitError, match="other than"):
        authorities.revocations(ONE)


@given(st.integers(0, len(ONE) - 1), st.text(max_size=5))
def test_a_damaged_bundle_is_rejected_or_the_same(place: int, text: str) -> None:
    try:
        result = authorities.authorities(ONE[:place] + text + ONE[place:])
    except EmitError:
        return
    assert result == ONE.strip() + "\n"
