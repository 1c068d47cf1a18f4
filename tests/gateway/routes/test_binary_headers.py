"""Changes of headers in the form of HAProxy's actions."""

from base64 import urlsafe_b64decode

import pytest

from haptic_trio.gateway.routes.binary_headers import HeaderChange, binary_changes


def decoded(text: str) -> bytes:
    """Return what *text* is the base64 of."""
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def test_a_header_that_is_set_is_removed_and_added() -> None:
    found = binary_changes([HeaderChange("s", "x-a", "1"), HeaderChange("a", "x-b", ""), HeaderChange("r", "x-c")])

    assert found is not None
    assert [decoded(one) for one in found] == [b"\x03x-a\x03x-c\x00", b"\x03x-a\x011\x03x-b\x00\x00\x00"]


# As HAProxy's documentation of `req.hdrs_bin` has it, and its peers protocol.
@pytest.mark.parametrize(
    ("length", "wanted"),
    [(239, b"\xef"), (240, b"\xf0\x00"), (2287, b"\xff\x7f"), (2288, b"\xf0\x80\x00"), (4096, b"\xf0\xf1\x00")],
)
def test_lengths_are_integers_of_variable_size(length: int, wanted: bytes) -> None:
    found = binary_changes([HeaderChange("a", "x", "a" * length)])

    assert found is not None
    assert decoded(found[1]) == b"\x01x" + wanted + b"a" * length + b"\x00\x00"


@pytest.mark.parametrize(
    "changes",
    [
        [HeaderChange("s", "x", "1"), HeaderChange("r", "x")],
        [HeaderChange("s", "x", "1"), HeaderChange("a", "x", "2")],
        [HeaderChange("s", "x", "1"), HeaderChange("s", "x", "2")],
        [HeaderChange("s", "host", "a.test")],
        [HeaderChange("r", "host")],
    ],
)
def test_changes_of_one_header_in_an_order_have_no_such_form(changes: list[HeaderChange]) -> None:
    assert binary_changes(changes) is None
