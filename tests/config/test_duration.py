from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.config.duration import LONGEST, InvalidDurationError, encode_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("5s", 5), ("1m", 60), ("1h30m", 5400), ("0s", 0), ("1.5s", 1.5), ("1h0m1s1ms", 3601.001)],
)
def test_duration_is_read_in_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("5", "`5s`"),
        ("0", "`0s`"),
        ("-5s", "minus"),
        ("", "`5s`"),
        ("5 s", "`5s`"),
        ("5d", "`5s`"),
        ("s", "`5s`"),
        ("30m1h", "large to small"),
        ("1s1s", "each unit once"),
        ("9999999h", "shorten"),
        ("1" * 500 + "s", "`5s`"),
        ("\u0665s", "`5s`"),
    ],
)
def test_rejected_duration_says_what_to_write(text: str, hint: str) -> None:
    with pytest.raises(InvalidDurationError) as caught:
        parse_duration(text)

    assert hint in caught.value.hint


@given(st.integers(0, int(LONGEST * 1000)))
def test_duration_survives_encoding(milliseconds: int) -> None:
    seconds = milliseconds / 1000

    assert parse_duration(encode_duration(seconds)) == seconds


@given(st.text())
def test_any_text_is_read_or_rejected(text: str) -> None:
    with suppress(InvalidDurationError):
        assert 0 <= parse_duration(text) <= LONGEST
