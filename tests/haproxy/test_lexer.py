import random
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
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
def test_a_fault_has_a_position_and_a_hint(line: str, offset: int, message: str) -> None:
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
def test_fast_and_complete_splitting_agree(line: str) -> None:
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


# Each example is many lines, for one run of HAProxy.
BATCHES = max(2, (settings.default or settings()).max_examples // 5)
# Whole lines, and pieces that are put together to lines which are mostly well formed.
pieces = st.sampled_from(
    [
        "a",
        "b-1",
        " ",
        "  ",
        "\t",
        "\\ ",
        "\\#",
        "\\\\",
        "\\'",
        '\\"',
        "\\n",
        "\\t",
        "\\x41",
        "\\xc3\\xa9",
        "\\q",
        "\\$",
        "$A",
        "'a b'",
        "'\\x41 $A'",
        "'#'",
        "''",
        '"a b"',
        '"\\x41"',
        '"\\""',
        '"\\$A"',
        '"#"',
        '""',
        '"\'"',
        "é",
        "{ }",
        "%[src]",
        " # rest",
        "#",
    ]
)
readable = st.lists(pieces, max_size=12).map("".join)


def _words_that_haproxy_reads(check_config: Check, texts: Sequence[str]) -> list[str]:
    """Return for each of *texts* what `-dC` shows of a line with it: the words, each with a blank after it."""
    # A mark begins each line, since a word may hold a line feed.
    marked = "".join(f" description @{number}@ {text}\n" for number, text in enumerate(texts))
    accepted, output = check_config(f"global\n{marked} description @end@\n", "-dC")
    assert accepted, output[-2000:]
    # Newer versions read, and show, the section more than once.
    shown = output.partition("\n\tdescription @end@")[0]
    found = re.split(r"\n\tdescription @\d+@ ", shown)
    return found[1:]


def _shown(text: str) -> str:
    # An empty word more is shown where a line ends with a blank.
    return "".join(f"{word} " for word in split_line(f"description @ {text}").words[2:])


def _is_clear(text: str) -> bool:
    split = split_line(f"description @ {text}")
    return not split.faults and not split.raw and "@" not in text


@pytest.mark.haproxy
@settings(max_examples=BATCHES, suppress_health_check=list(HealthCheck))
@given(texts=st.lists(lines | readable, min_size=60, max_size=60))
def test_real_haproxy_reads_the_same_words(check_config: Check, texts: list[str]) -> None:
    clear = [text for text in texts if _is_clear(text)]
    read = _words_that_haproxy_reads(check_config, clear)
    assert [one.rstrip(" ") for one in read] == [_shown(text).rstrip(" ") for text in clear]


@pytest.mark.haproxy
def test_real_haproxy_reads_the_same_words_of_thousands_of_odd_lines(check_config: Check) -> None:
    clear = [text for text in _random_lines(6000) if _is_clear(text)]
    read = _words_that_haproxy_reads(check_config, clear)
    assert [one.rstrip(" ") for one in read] == [_shown(text).rstrip(" ") for text in clear]
    assert len(clear) > 1500


VARIABLES = {"SET": "a b", "EMPTY": "", "A_1": "x'\"#$y", "_": "under"}


@pytest.mark.haproxy
@pytest.mark.parametrize(
    ("word", "expanded"),
    [
        ('"$SET"', "a b "),
        ('"${SET}"', "a b "),
        ('"-${SET}-"', "-a b- "),
        ('"${EMPTY}"', " "),
        ('"${NONE}"', " "),
        ('"${NONE-else}"', "else "),
        ('"${SET-else}"', "a b "),
        ('"$A_1"', "x'\"#$y "),
        ('"${_}"', "under "),
        ('"${SET[*]}"', "a b "),
        ('"\\$SET"', "$SET "),
        ("'$SET'", "$SET "),
        ("$SET", "$SET "),
        ('pre"$SET"post', "prea bpost "),
    ],
)
def test_real_haproxy_expands_exactly_the_words_that_are_marked_as_raw(
    haproxy_binary: Path, tmp_path: Path, word: str, expanded: str
) -> None:
    path = tmp_path / "haproxy.cfg"
    path.write_text(f"global\n description x {word}\n")
    command = [str(haproxy_binary), "-c", "-dC", "-f", str(path)]
    run = subprocess.run(command, env=VARIABLES, capture_output=True, text=True, check=False)
    shown = [line.strip() for line in (run.stdout + run.stderr).splitlines()]
    assert f"description x {expanded}".strip() in shown
    split = split_line(f"description x {word}")
    assert split.faults == ()
    assert (split.raw == (2,)) is ("$SET " not in expanded)
    if split.raw:
        assert split.words[2] == word


@pytest.mark.haproxy
@settings(max_examples=BATCHES, suppress_health_check=list(HealthCheck))
@given(texts=st.lists(lines | readable, min_size=60, max_size=60))
def test_real_haproxy_rejects_the_lines_that_the_lexer_rejects(check_config: Check, texts: list[str]) -> None:
    # What HAProxy drops silently we reject on purpose.
    _assert_all_rejected(check_config, [text for text in texts if not re.search("\\\\x00|[\r\0\ud800-\udfff]", text)])


@pytest.mark.haproxy
def test_real_haproxy_rejects_the_same_generated_lines(check_config: Check) -> None:
    faulty = [line for line in _random_lines(600) if split_line(line).faults and not re.search(r"\\x00|\r", line)][:120]
    _assert_all_rejected(check_config, faulty)
    assert len(faulty) == 120


def _assert_all_rejected(check_config: Check, texts: Sequence[str]) -> None:
    faulty = [text for text in texts if split_line(text).faults]
    rejected: set[int] = set()
    # HAProxy gives up after fifty errors.
    for start in range(0, len(faulty), 40):
        text = "global\n" + "".join(f" description {line}\n" for line in faulty[start : start + 40])
        accepted, output = check_config(text)
        assert not accepted
        rejected |= {start + int(number) - 2 for number in re.findall(r"parsing \[haproxy\.cfg:(\d+)\]", output)}
    assert [line for index, line in enumerate(faulty) if index not in rejected] == []


def _random_lines(count: int) -> list[str]:
    generator = random.Random(8)
    return ["".join(generator.choices(NASTY, k=generator.randrange(1, 25))) for _ in range(count)]
