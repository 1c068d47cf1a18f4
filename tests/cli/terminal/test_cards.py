"""Requests are typed as people write them for curl; answers of other versions are still shown."""

import pytest

from haptic_trio.cli.terminal.cards import (
    MalformedRequestError,
    explanation_card,
    match_card,
    parse_request,
    text_card,
)
from haptic_trio.cli.terminal.known import Known
from haptic_trio.cli.terminal.rows import Match


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("shop.test/cart?x=1", Match("shop.test/cart?x=1")),
        ("https://shop.test/cart", Match("https://shop.test/cart")),
        ("DELETE shop.test", Match("shop.test", "DELETE")),
        ("-H 'X-Kind: a b' shop.test --header Y:1", Match("shop.test", "GET", (("X-Kind", "a b"), ("Y", "1")))),
    ],
)
def test_a_request_has_method_target_and_headers(text: str, request_: Match) -> None:
    assert parse_request(text) == request_


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "write one host"),
        ("a.test b.test", "write one host"),
        ("a.test -H 'X: 1", "quote headers"),
        ("a.test -H X", "a header has no value"),
        ("a.test -H", "a header has no value"),
    ],
)
def test_a_wrong_request_is_explained(text: str, message: str) -> None:
    with pytest.raises(MalformedRequestError, match=message):
        parse_request(text)


async def test_answers_of_another_version_are_shown_by_field() -> None:
    value = {"new_field": [{"deep": 1}], "route": {"host": "a\x1b"}}

    for card in (match_card(Match("a.test"), value, Known()), explanation_card("a", value)):
        shown = [line.plain for line in card.lines(80)]
        assert r"  host: a\x1b" in shown
        assert shown[0].startswith("new field:")


def test_a_text_card_has_its_lines() -> None:
    assert [line.plain for line in text_card("t", "a\nb").lines(80)] == ["a", "b"]
