"""Regular expressions of annotations as fields of a map."""

import re
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.templating.filters.emit import EmitError
from haptic_trio.templating.filters.expressions import search_pattern


@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ("^(beta|test)$", ["beta", "test"], ["xbeta", "betax", ""]),
        ("beta", ["beta", "a beta b"], ["bet"]),
        ("^a|b$", ["ax", "xb"], ["xa", "bx"]),
        (".*", ["", "x"], []),
        ("v[0-9]+", ["v1", "xv12x"], ["v"]),
    ],
)
def test_it_matches_texts_that_contain_it(text: str, matching: list[str], others: list[str]) -> None:
    longest, _, pattern = search_pattern(text).partition(":")
    compiled = re.compile(r"\A(?s:" + unquote(pattern).replace(r"\z", r"\Z") + ")")

    assert int(longest) == 512
    assert [text for text in (*matching, *others) if compiled.search(text)] == matching


@pytest.mark.parametrize("text", ["", "(a+)+$", "(", "a\nb", "(?=a)"])
def test_others_are_rejected(text: str) -> None:
    with pytest.raises(EmitError, match="search_pattern: the value "):
        search_pattern(text)


@given(st.text())
def test_a_field_has_no_separator(text: str) -> None:
    try:
        found = search_pattern(text)
    except EmitError:
        return
    assert re.fullmatch(r"[0-9]+:[A-Za-z0-9%._~-]+", found)
