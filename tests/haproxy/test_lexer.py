import random
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.haproxy.lexer import MAX_WORDS, lex_lines, split_line

Check = Callable[..., tuple[bool, str]]

# Weighted towards what has a meaning for HAProxy.
NASTY = " \t\v\f'\"\\#$xnrt{}[]*-.AZa19é\x1c\x85\xa0\u2003;,"
lines = st.text(st.sampled_from(NASTY) | st.characters(exclude_characters="\n"), max_size=60)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("  server s1  10.0.0.1:80\t check ", ("server", "s1", "10.0.0.1:80", "check")),
        (r"a\ b c\#d e\\f g\tH \x41\x42", ("a b", "c#d", "e\\f", "g\tH", "AB")),
        (r"a\'b\"c \d \$x", ("a'b\"c", "\\d", "\\$x")),
        (r"'a\ b\x41 $x' y", (r"a\ b\x41 $x", "y")),
        (r'"a\ b\x41\$x\"" y', ('a bA$x"', "y")),
        ("'it'\\''s' x", ("it's", "x")),
        ("a # b 'c", ("a",)),
        ("a#b", ("a",)),
        ("'#' x", ("#", "x")),
        ("a '' \"\" b", ("a", "", "", "b")),
        ("trailing\\", ("trailing\\",)),
        ("a\u00a0b\u2003c d\x1ce", ("a\u00a0b\u2003c", "d\x1ce")),
        ("a\vb\fc", ("a", "b", "c")),
        (r"\xc3\xa9 \xff", ("é", "\udcff")),
        ("a b\r", ("a", "b")),
        ("unquoted $HOME ${HOME}", ("unquoted", "$HOME", "${HOME}")),
    ],
)
def test_a_line_becomes_the_words_that_haproxy_reads(line: str, words: tuple[str, ...]) -> None:
    split = split_line(line)
    assert split.words == words
    assert split.faults == ()
    assert split.raw == ()


@pytest.mark.parametrize(
    "word",
    ['"$HOME"', '"${HOME}/x"', '"${A-b c}"', '"${A[*]}"', "pre\"$A\"'post'", '"$.LINE"', '"${A[*]-d e}"', '"$A[x]"'],
)
def test_a_word_that_refers_to_the_environment_is_kept_as_written_and_marked(word: str) -> None:
    split = split_line(f"bind {word} ssl")
    assert split.words == ("bind", word, "ssl")
    assert split.raw == (1,)
    assert split.faults == ()


@pytest.mark.parametrize(
    ("line", "offset", "message"),
    [
        ("a 'b c", 2, "unmatched quote"),
        ('ab"c', 2, "unmatched quote"),
        (r"a \x4 b", 2, "hexadecimal"),
        (r"a b\xzz", 3, "hexadecimal"),
        (r"a \x00", 2, "ends the word"),
        ('a "${B"', 3, "environment"),
        ('a "$1"', 3, "environment"),
        ('a "${B[x]}"', 3, "environment"),
        ("a\0b", 1, "NUL"),
        ("a\rb", 1, "carriage return"),
        (" ".join(["w"] * 65), 128, "more than 64 words"),
        (" ".join(["w"] * 64) + " ", 128, "blank at the end"),
        ("a \ud800", 2, "UTF-8"),
    ],
)
def test_a_fault_names_its_place_and_gives_a_hint(line: str, offset: int, message: str) -> None:
    (fault,) = split_line(line).faults
    assert fault.offset == offset
    assert message in f"{fault.message} {fault.hint}"
    assert fault.hint


def test_all_faults_of_a_text_are_collected_with_lines_counted_from_the_first() -> None:
    directives, problems = lex_lines("ok 1\n  bad 'x\n\n# 'fine\n worse \\x1\n", source="here", first_line=10)
    assert [(one.source, one.line, one.column) for one in problems] == [("here", 11, 7), ("here", 14, 8)]
    assert problems[0].excerpt == "  bad 'x"
    assert [(one.words[0], one.line) for one in directives] == [("ok", 10), ("bad", 11), ("worse", 14)]


def test_a_line_whose_first_word_is_empty_means_nothing() -> None:
    assert lex_lines("'' foo\n\"\" bar\nbaz\n", source="") == (lex_lines("\n\nbaz\n", source="")[0], [])


def test_sixty_four_words_are_accepted() -> None:
    assert split_line(" ".join(["w"] * MAX_WORDS)).faults == ()
    assert lex_lines(" ".join(["w"] * MAX_WORDS) + "\n", source="")[1] == []
    assert len(lex_lines(" ".join(["w"] * MAX_WORDS) + " \n", source="")[1]) == 1
    assert len(lex_lines(" ".join(["'w'"] * (MAX_WORDS + 1)) + "\n", source="")[1]) == 1


@given(lines)
def test_the_fast_ways_split_as_the_careful_one_does(line: str) -> None:
    split = split_line(line)
    directives, problems = lex_lines(line, source="")
    assert len(problems) == (len(split.faults) if not line.lstrip(" \t\v\f").startswith("#") or "\0" in line else 0)
    if split.words and split.words[0]:
        assert [(one.words, one.raw) for one in directives] == [(split.words, split.raw)]
    else:
        assert directives == []


@given(st.text())
def test_no_text_makes_the_lexer_raise(text: str) -> None:
    directives, problems = lex_lines(text, source="")
    places = [*(one.line for one in directives), *(one.line for one in problems)]
    assert all(1 <= line <= text.count("\n") + 1 for line in places)


@pytest.mark.haproxy
@pytest.mark.usefixtures("haproxy_2_8")
def test_real_haproxy_reads_the_same_words(check_config: Check) -> None:
    chosen = [line for line in _random_lines(4000) if not split_line(line).faults and not split_line(line).raw]
    text = "global\n" + "".join(f" description {line}\n" for line in chosen)
    accepted, output = check_config(text, "-dC")
    assert accepted, output[-2000:]
    dumped = output[: output.index("Configuration file has no error")]
    # The dump joins the words with spaces, and has an empty word more where a line ends with a blank.
    expected = "".join(
        "\n\t" + "".join(f"{word} " for word in split_line(f"description {line}").words) for line in chosen
    )
    assert re.sub(" +\n", "\n", dumped.removeprefix("global ")).rstrip() == re.sub(" +\n", "\n", expected).rstrip()
    assert len(chosen) > 1000


@pytest.mark.haproxy
def test_real_haproxy_refuses_the_same_lines(check_config: Check) -> None:
    faulty = [line for line in _random_lines(600) if split_line(line).faults and not re.search(r"\\x00|\r", line)][:120]
    refused: set[int] = set()
    # HAProxy gives up after some dozens of errors.
    for start in range(0, len(faulty), 30):
        text = "global\n" + "".join(f" description {line}\n" for line in faulty[start : start + 30])
        accepted, output = check_config(text)
        assert not accepted
        refused |= {start + int(number) - 2 for number in re.findall(r"parsing \[haproxy\.cfg:(\d+)\]", output)}
    assert [line for index, line in enumerate(faulty) if index not in refused] == []
    assert len(faulty) == 120


def _random_lines(count: int) -> list[str]:
    generator = random.Random(8)
    return ["".join(generator.choices(NASTY, k=generator.randrange(1, 25))) for _ in range(count)]
