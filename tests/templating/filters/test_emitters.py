"""Emitters return exactly what HAProxy reads back as the value, or reject."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.templating.filters import emitters
from haptic_trio.templating.filters.emit import EmitError
from haptic_trio.templating.values.text import Emitted
from tests.templating.rendering import render

LINE_BREAKERS = ["\n", "\r", "\0", "\t", "\x7f", "\u0085", "\u2028", "\u2029", "\ufdd0", "\ud800", "\x1b"]


def words(line: str) -> list[str]:
    """Split *line* as HAProxy does: blanks, strong and weak quotes, escapes, comments."""
    found: list[str] = []
    word: str | None = None
    position = 0
    while position < len(line):
        char = line[position]
        if char == "\n":
            raise AssertionError("a second line")
        if char in " \t":
            found += [word] if word is not None else []
            word = None
        elif char == "#":
            break
        elif char == "'":
            end = line.index("'", position + 1)
            word = (word or "") + line[position + 1 : end]
            position = end
        elif char == "\\":
            word = (word or "") + line[position + 1]
            position += 1
        elif char == '"':
            raise AssertionError("a weak quote")
        else:
            word = (word or "") + char
        position += 1
    return [*found, word] if word is not None else found


@given(value=st.text(min_size=1))
@pytest.mark.parametrize(
    ("emitter", "reads_as"),
    [("word", lambda text: text), ("logformat", lambda text: text.replace("%", "%%"))],
)
def test_a_rendered_line_has_exactly_the_expected_words(
    emitter: str, reads_as: Callable[[str], str], value: str
) -> None:
    try:
        emitted = getattr(emitters, emitter)(value)
    except EmitError:
        assert any(ord(char) < 32 or not char.isprintable() for char in value) or value == "}"
        return
    line = f"http-request set-header x {emitted} if a"
    assert words(line) == ["http-request", "set-header", "x", reads_as(value), "if", "a"]


@given(value=st.text(min_size=1))
def test_a_regex_matches_its_text_and_nothing_else(value: str) -> None:
    try:
        (pattern,) = words(emitters.regex(value))
    except EmitError:
        return
    assert re.fullmatch(pattern, value)
    assert not re.fullmatch(pattern, value + "x")
    assert not re.fullmatch(pattern, "x" + value)


@pytest.mark.parametrize("emitter", ["word", "logformat", "regex", "map_key", "map_value", "map_field", "url_path"])
@pytest.mark.parametrize("char", LINE_BREAKERS)
def test_what_could_break_a_line_is_rejected(emitter: str, char: str) -> None:
    with pytest.raises(EmitError):
        getattr(emitters, emitter)(f"/a{char}b")


@pytest.mark.parametrize("emitter", sorted(emitters.EMITTERS))
@pytest.mark.parametrize("value", ["", None, [], {"a": 1}, float("nan")])
def test_no_emitter_takes_nothing_for_something(emitter: str, value: object) -> None:
    with pytest.raises(EmitError):
        getattr(emitters, emitter)(value)


@given(value=st.text(), emitter=st.sampled_from(sorted(set(emitters.EMITTERS) - {"regex_escape"})))
def test_whatever_an_emitter_returns_is_one_line_without_comment(value: str, emitter: str) -> None:
    try:
        text = getattr(emitters, emitter)(value)
    except EmitError:
        return
    assert type(text) is Emitted
    assert len(text.splitlines()) == 1
    assert not text.startswith("#")


ACCEPTED: list[tuple[Callable[..., Any], Any, str]] = [
    (emitters.word, "it's", "'it'\\''s'"),
    (emitters.word, 5, "'5'"),
    (emitters.word, True, "'true'"),
    (emitters.pattern, "-u", "-- '-u'"),
    (emitters.pattern, "--", "-- '--'"),
    (emitters.pattern, "it's", "-- 'it'\\''s'"),
    (emitters.map_key, "*.example.com/a#b", "*.example.com/a#b"),
    (emitters.map_value, "a value with blanks # and more", "a value with blanks # and more"),
    (emitters.map_field, " a,b/%é", "%20a%2Cb%2F%25%C3%A9"),
    (emitters.map_field, "A-z.0_~", "A-z.0_~"),
    (emitters.header_name, "X-Forwarded-For", "X-Forwarded-For"),
    (emitters.url_path, "/a/b;c=1,2(3)!", "/a/b;c=1,2(3)!"),
    (emitters.url_path, "/caf\u00e9", "/caf%C3%A9"),
    (emitters.url_path, "/a%2Fb", "/a%2Fb"),
    (emitters.hostname, "WWW.Example.COM", "www.example.com"),
    (emitters.hostname, "*.example.com", "*.example.com"),
    (emitters.hostname, "xn--bcher-kva.example", "xn--bcher-kva.example"),
    (emitters.name, "ns_svc:80.x", "ns_svc:80.x"),
    (emitters.address, "10.0.0.1", "10.0.0.1"),
    (emitters.address, "2001:DB8:0:0:0:0:0:1", "2001:db8::1"),
    (emitters.port, "8080", "8080"),
    (emitters.port, 1, "1"),
    (emitters.integer, "-007", "-7"),
    (emitters.duration, "30s", "30s"),
    (emitters.duration, "1m30s", "90s"),
    (emitters.duration, "24d", "24d"),
    (emitters.duration, "0", "0"),
    (emitters.size, "100k", "100k"),
    (emitters.size, 4096, "4096"),
]


@pytest.mark.parametrize(("emitter", "value", "text"), ACCEPTED)
def test_accepted(emitter: Callable[..., Any], value: Any, text: str) -> None:
    assert emitter(value) == text


REJECTED: list[tuple[Callable[..., Any], Any]] = [
    (emitters.word, "}"),
    (emitters.logformat, "}"),
    (emitters.pattern, "}"),
    (emitters.pattern, "a\nb"),
    (emitters.header_name, "-u"),
    (emitters.map_key, "#a"),
    (emitters.map_key, "a b"),
    (emitters.map_key, "a\u00a0b"),
    (emitters.map_value, " a"),
    (emitters.map_value, "a "),
    (emitters.header_name, "a b"),
    (emitters.header_name, "a:b"),
    (emitters.header_name, "a'b"),
    (emitters.header_name, "%ci"),
    (emitters.url_path, "a"),
    (emitters.url_path, "/a b"),
    (emitters.url_path, "/a?b"),
    (emitters.url_path, "/a#b"),
    (emitters.url_path, "/a'b"),
    (emitters.url_path, '/a"b'),
    (emitters.url_path, "/a\\b"),
    (emitters.url_path, "/${HOME}"),
    (emitters.url_path, "/100%"),
    (emitters.hostname, "a..b"),
    (emitters.hostname, "-a.b"),
    (emitters.hostname, "a.*.b"),
    (emitters.hostname, "*"),
    (emitters.hostname, "a_b"),
    (emitters.hostname, "b\u00fccher.example"),
    (emitters.hostname, "\u212aelvin.example"),
    (emitters.hostname, "a.b."),
    (emitters.hostname, "a" * 64),
    (emitters.hostname, ".".join(["a" * 60] * 5)),
    (emitters.name, "a b"),
    (emitters.name, "-a"),
    (emitters.name, "a/b"),
    (emitters.name, "a" * 256),
    (emitters.address, "10.0.0"),
    (emitters.address, "10.0.0.1 check"),
    (emitters.address, "fe80::1%eth0"),
    (emitters.address, "localhost"),
    (emitters.port, 0),
    (emitters.port, 65536),
    (emitters.port, "80 "),
    (emitters.port, "\u0661"),
    (emitters.port, True),
    (emitters.port, 80.5),
    (emitters.integer, "1e3"),
    (emitters.duration, "30"),
    (emitters.duration, "1.5s"),
    (emitters.duration, "25d"),
    (emitters.duration, "-1s"),
    (emitters.duration, "5 s"),
    (emitters.size, "4g"),
    (emitters.size, "1t"),
]


@pytest.mark.parametrize(("emitter", "value"), REJECTED)
def test_rejected(emitter: Callable[..., Any], value: Any) -> None:
    with pytest.raises(EmitError):
        emitter(value)


def test_an_ipv6_address_gets_brackets_on_demand() -> None:
    source = "{{ '::1' | address(brackets=true) }} {{ '10.0.0.1' | address(brackets=true) }} {{ '::1' | address }}"
    assert render(source) == "[::1] 10.0.0.1 ::1"


def test_an_integer_keeps_its_bounds() -> None:
    assert render("{{ '5' | integer(1, 10) }}{{ 7 | integer(min=7) }}") == "57"
    for low, high in ((6, None), (None, 4), (6, 9)):
        with pytest.raises(EmitError):
            emitters.integer(5, low, high)


def test_escaped_text_for_a_regex_is_still_data() -> None:
    assert type(emitters.regex_escape("a.b")) is str
    assert render("{{ ('^' ~ (v | regex_escape) ~ '$') | word }}", v="a.b") == "'^a\\.b$'"
