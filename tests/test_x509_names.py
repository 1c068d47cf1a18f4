"""The names in a certificate, as HAProxy reads them."""

import trustme

from haptic_trio.x509_names import names_in
from tests.attacks.credentials import malformed_certificates


def test_names_are_those_of_the_first_certificate_in_lower_case() -> None:
    authority = trustme.CA()
    one = authority.issue_cert("Shop.Example", "*.shop.example", common_name="Common.Example")
    other = authority.issue_cert("other.example")
    chain = one.cert_chain_pems[0].bytes() + other.cert_chain_pems[0].bytes()

    assert names_in(chain) == frozenset({"shop.example", "*.shop.example", "common.example"})


def test_a_certificate_without_host_names_has_none() -> None:
    assert names_in(trustme.CA().issue_cert("127.0.0.1").cert_chain_pems[0].bytes()) == frozenset()


def test_names_of_an_unreadable_certificate_are_unknown() -> None:
    unreadable = ("no PEM", "zero length", "truncated DER", "random DER", "version 8", "duplicate extension")

    assert {name: names_in(malformed_certificates()[name].encode()) for name in unreadable} == dict.fromkeys(unreadable)
