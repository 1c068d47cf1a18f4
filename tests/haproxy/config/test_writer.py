import random
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.config.writer import quote_word, write_config
from haptic_trio.haproxy.lexer import split_line
from haptic_trio.haproxy.model import Config

Check = Callable[..., tuple[bool, str]]

words = st.text(st.sampled_from(" '\"\\#$\n\r\t\udcff") | st.characters(exclude_characters="\0", codec="utf-8"))
sections = st.lists(
    st.tuples(
        st.sampled_from(["backend", "listen", "frontend"]),
        st.lists(st.lists(words, max_size=5).map(tuple), max_size=4),
    ),
    max_size=4,
)


def _bare(config: Config) -> list[tuple[str, str, list[tuple[tuple[str, ...], tuple[int, ...]]]]]:
    return [
        (one.kind, one.name, [(line.words, line.raw) for line in (one.header, *one.directives)])
        for one in config.sections
    ]


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("plain-1.2:80", "plain-1.2:80"),
        ("%[path,map(maps/a.map,b)]", "%[path,map(maps/a.map,b)]"),
        ("$HOME", "$HOME"),
        ("grün", "grün"),
        ("", "''"),
        ("a b", "'a b'"),
        ("#", "'#'"),
        ("a\\b", "'a\\b'"),
        ("it's", "it\\'s"),
        ("'", "\\'"),
        ("two\nlines", "two\\nlines"),
        ("\udcff", "\\xff"),
    ],
)
def test_a_word_is_quoted_only_where_needed(word: str, written: str) -> None:
    assert quote_word(word) == written


def test_a_word_with_a_nul_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="NUL"):
        quote_word("a\0b")


@given(words)
def test_a_quoted_word_reads_back_as_itself(word: str) -> None:
    split = split_line(f"x {quote_word(word)} y")
    assert split.words == ("x", word, "y")
    assert split.faults == ()


@given(sections)
def test_a_written_configuration_reads_back_as_itself(content: list[tuple[str, list[tuple[str, ...]]]]) -> None:
    text = "".join(
        f"{kind} s{index}\n" + "".join("description x " + " ".join(map(quote_word, line)) + "\n" for line in lines)
        for index, (kind, lines) in enumerate(content)
    )
    config = parse_config(text)
    again = parse_config(write_config(config))
    assert again.digest == config.digest
    assert _bare(again) == _bare(config)


def test_references_to_the_environment_and_what_precedes_all_sections_survive_writing() -> None:
    text = ".if feature(OPENSSL)\n.endif\nglobal\n  log \"${LOG-127.0.0.1}\" 'local0' '$x y'\n"
    config = parse_config(text)
    written = write_config(config)
    assert "\"${LOG-127.0.0.1}\" local0 '$x y'" in written
    assert parse_config(written).digest == config.digest
    assert [one.words for one in parse_config(written).preamble] == [(".if", "feature(OPENSSL)"), (".endif",)]


def test_an_empty_configuration_is_an_empty_text() -> None:
    assert write_config(parse_config("# nothing\n")) == ""


@pytest.mark.haproxy
def test_real_haproxy_reads_a_quoted_word_as_itself(check_config: Check) -> None:
    generator = random.Random(5)
    alphabet = " '\"\\#$\n\r\t\v\x1b{}[]abcx019é\u2003\udcff"
    chosen = ["".join(generator.choices(alphabet, k=generator.randrange(1, 12))) for _ in range(1500)]
    text = "".join(f".notice {quote_word(f'<{index}:{word}:{index}>')}\n" for index, word in enumerate(chosen))
    accepted, output = check_config(text)
    assert accepted, output[-2000:]
    read = {int(index): word for index, word in re.findall(r"'<(\d+):(.*?):\1>'\.", output, re.DOTALL)}
    assert [(word, read.get(index)) for index, word in enumerate(chosen) if read.get(index) != word] == []
