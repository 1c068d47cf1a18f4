"""Documents of YAML texts."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.yaml.documents import documents_of, split_documents
from haptic_trio.yaml.reader import DocumentError


def test_documents_are_split_at_markers_that_begin_a_line() -> None:
    text = "a: 1\n--- # second\nb: ---\n...\n# only a comment\n---\n c: |\n  --- x\n----\n"

    chunks = list(split_documents(text))

    assert [(chunk.line, chunk.text) for chunk in chunks] == [
        (1, "a: 1\n"),
        (2, " # second\nb: ---\n"),
        (6, "\n c: |\n  --- x\n----\n"),
    ]
    assert all(text[chunk.start :].startswith(chunk.text) for chunk in chunks)


@given(st.lists(st.sampled_from(["a: 1", "---", "--- b", "...", " ---", "----", "# c", "", "d\r"]), max_size=8))
def test_each_document_is_a_part_of_the_text_on_its_line(lines: list[str]) -> None:
    text = "\n".join(lines)

    chunks = list(split_documents(text))

    for chunk in chunks:
        assert text[chunk.start :].startswith(chunk.text)
        assert chunk.line == text.count("\n", 0, chunk.start) + 1
    assert sum("a: 1" in chunk.text for chunk in chunks) <= lines.count("a: 1") == text.count("a: 1")


def test_a_long_line_may_come_in_pieces() -> None:
    pieces = ["a: '", "---", " x'\n", "--- b\n"]

    assert [(chunk.line, chunk.text) for chunk in documents_of(pieces)] == [(1, "a: '--- x'\n"), (2, " b\n")]


def test_a_document_beyond_the_limit_is_an_error_after_those_before_it() -> None:
    lines = io.StringIO("a: 1\n---\n" + "b: 2\n" * 100)
    documents = documents_of(lines, limit=50)

    assert next(documents).text == "a: 1\n"
    with pytest.raises(DocumentError) as raised:
        next(documents)
    assert raised.value.line == 2
    # The rest was not read.
    assert lines.readline() == "b: 2\n"
