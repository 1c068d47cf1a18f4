"""Credentials that an answer repeats are not shown."""

import pytest

from haptic_trio.redaction.repeated import without_repeated


@pytest.mark.parametrize(
    ("text", "credentials", "shown"),
    [
        ("who is admin:S3CRET?", ("S3CRET",), "who is admin:…?"),
        ("S3CRET and S3CRET-long", ("S3CRET", "S3CRET-long"), "… and …"),
        ("the text is short", ("", "is"), "the text is short"),
        ("no body", (), "no body"),
    ],
)
def test_each_credential_is_replaced(text: str, credentials: tuple[str, ...], shown: str) -> None:
    assert without_repeated(text, credentials) == shown
