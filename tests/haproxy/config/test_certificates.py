"""Server names of certificates, whatever text a file has."""

import trustme

from haptic_trio.haproxy.config.certificates import CrtListEntry, names_of
from haptic_trio.haproxy.model import FileKind, make_file

ENTRY = CrtListEntry("ssl/a.pem", "", (), "ssl/a.pem")
HEAD = b"-----BEGIN CERTIFICATE-----\n"


def test_names_are_those_of_the_first_certificate() -> None:
    authority = trustme.CA()
    one, two = (authority.issue_cert(name).cert_chain_pems[0].bytes() for name in ("One.test", "two.test"))

    assert names_of(ENTRY, make_file(FileKind.CERT, "ssl/a.pem", b"key\n" + one + two)) == frozenset({"one.test"})


def test_text_with_very_many_heads_and_no_end_is_searched_once() -> None:
    # The search of a template's text holds Python's interpreter lock: in quadratic time, it would take minutes.
    assert names_of(ENTRY, make_file(FileKind.CERT, "ssl/a.pem", HEAD * 200_000)) is None
