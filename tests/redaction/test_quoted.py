"""Quoted text is left out of messages, whatever quotes it contains."""

import pytest

from haptic_trio.redaction.quoted import without_quoted


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("no 'a', no \"b\", no [c], no <d>", "no '…', no \"…\", no […], no <…>"),
        ("no 'known', no 'a'.", "no 'known', no '…'."),
        ("'<' of 'known' isn't 'known'", "'…' of 'known' isn't 'known'"),
        ("no 'it's known', no 'known'", "no '…"),
        ("it isn't 'a", "it isn't '…"),
        ("no 'known' b', no 'known'", "no '…"),
        ("no 'the dogs' bone and cats' milk'", "no '…"),
        ("no 'known\\' bone \\' c'", "no '…"),
        ("no 'known\" bone\\' \"c'", "no '…"),
        ("", ""),
    ],
)
def test_only_accepted_quotes_are_shown(message: str, shown: str) -> None:
    assert without_quoted(message, lambda text: text == "known") == shown
