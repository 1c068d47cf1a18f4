import re
from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from yaml.nodes import MappingNode, SequenceNode

from haptic_trio.yaml.reader import MAX_DEPTH, DocumentError, read_document, read_nodes
from haptic_trio.yaml.scalars import resolve_plain


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("nullable", "nullable"),
        ("true", True),
        ("False", False),
        ("yes", True),
        ("off", False),
        ("y", True),
        ("yesterday", "yesterday"),
        ("0", 0),
        ("80", 80),
        ("+80", 80),
        ("-1", -1),
        ("0644", 0o644),
        ("0o644", 0o644),
        ("-010", -8),
        ("0x1F", 31),
        ("0b101", 5),
        ("1_000", 1000),
        ("08", 8),
        ("1e3", 1000),
        ("1.0", 1),
        ("1.5", 1.5),
        (".5", 0.5),
        ("12:30:45", "12:30:45"),
        ("1.2.3", "1.2.3"),
        ("2026-01-02", "2026-01-02"),
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("1e999", "1e999"),
        ("18446744073709551615", 2**64 - 1),
        ("10.0.0.1", "10.0.0.1"),
        ("-", "-"),
        (".", "."),
        ("500m", "500m"),
    ],
)
def test_unquoted_scalar_has_the_meaning_that_kubectl_gives_it(text: str, value: Any) -> None:
    resolved = resolve_plain(text)

    assert resolved == value
    assert type(resolved) is type(value)


@given(st.text(alphabet="0123456789+-._exobXOBEfnaiyN", max_size=12) | st.text(max_size=5))
def test_every_unquoted_scalar_has_a_value_that_equals_itself(text: str) -> None:
    value = resolve_plain(text)

    assert value == value  # noqa: PLR0124  NaN would not
    assert isinstance(value, str | int | float | bool | None)


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("a: 1\nb: [x, 'y', \"z\"]", {"a": 1, "b": ["x", "y", "z"]}),
        ("a: '1'\nb: \"true\"\nc: |\n  80\n", {"a": "1", "b": "true", "c": "80\n"}),
        ("80: a\ntrue: b\n'on': c\n~: d", {"80": "a", "true": "b", "on": "c", "null": "d"}),
        ("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}),
        ("a: &x 5\nc: [*x, *x]", {"a": 5, "c": [5, 5]}),
        ("base: &x {a: 1, b: 2}\nc: {<<: *x, b: 3}", {"base": {"a": 1, "b": 2}, "c": {"a": 1, "b": 3}}),
        ("c: {b: 3, <<: [{a: 1, b: 2}, {a: 9, d: 4}]}", {"c": {"b": 3, "a": 1, "d": 4}}),
        ("'<<': 1", {"<<": 1}),
        ("a: !!str 80\nb: !!int '80'\nc: !!float 1", {"a": "80", "b": 80, "c": 1}),
        ("- 1\n- 2", [1, 2]),
        ("just text", "just text"),
        ("# nothing", None),
        ('{"a": "\\u00fc\\n"}', {"a": "ü\n"}),
    ],
)
def test_document_becomes_plain_data(text: str, data: Any) -> None:
    assert read_document(text).data == data


def test_items_of_top_level_lists_have_lines() -> None:
    document = read_document("kind: List\nitems:\n- a: 1\n\n- 5\n- {b: 2}\nother: [[1], [2]]\n")

    assert document.item_lines["items"] == [3, 5, 6]


@pytest.mark.parametrize(
    ("text", "line", "column", "part"),
    [
        ("a:\n\t- b", 2, 1, "cannot start any token"),
        ("a: b: c", 1, 5, "mapping values"),
        ("a: 'x", 1, 6, "unexpected end of stream"),
        ("a: [1, 2\nb: 3", 2, 2, "did not find"),
        ("a: 1\n b: 2", 2, 3, "mapping values"),
        ("a: 1\nb: 2\na: 3", 3, 1, "there twice"),
        ("a: *nope", 1, 4, "no anchor"),
        ("&a [*a]", 1, 5, "no anchor"),
        ("a: !!python/object:os.system x", 1, 4, "not allowed: !!python/object"),
        ("a: !custom [1]", 1, 4, "!custom"),
        ("a: !!binary aGk=", 1, 4, "!!binary"),
        ("a: !!int x", 1, 4, "not a valid !!int"),
        ("? [a, b]\n: c", 1, 3, "as a key"),
        ("a: ü\x00b", 1, 5, "control characters"),
        ("a:\n  <<: 5", 2, 7, "merges mappings"),
        ("a: @b", 1, 4, "cannot start"),
    ],
)
def test_error_has_line_column_and_hint(text: str, line: int, column: int, part: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read_document(text)

    assert part in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert caught.value.hint


def test_error_for_a_tab_as_indentation_has_a_hint() -> None:
    with pytest.raises(DocumentError) as caught:
        read_document("a:\n\tb: 1")

    assert "tabs" in caught.value.hint


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 100_000, "- " * 100_000, '{"a":' * 100_000])
def test_deep_nesting_is_an_error(text: str) -> None:
    with pytest.raises(DocumentError, match="nested deeper"):
        read_document(text)


def test_nesting_up_to_the_limit_is_read() -> None:
    assert read_document("[" * MAX_DEPTH + "]" * MAX_DEPTH).data


def test_aliases_that_multiply_are_an_error() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 20)
    )
    with pytest.raises(DocumentError, match="expand to too much"):
        read_document(bomb)


def test_aliases_that_nest_deeply_are_an_error() -> None:
    chain = "a0: &a0 [x]\n" + "".join(f"a{level}: &a{level} [*a{level - 1}]\n" for level in range(1, 200))

    with pytest.raises(DocumentError, match="expand to too much"):
        read_document(chain)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    # PyYAML writes these without quotes; to kubectl they are truth values and numbers then.
    | st.text(st.characters(min_codepoint=32, max_codepoint=126)).filter(
        lambda text: text not in {"y", "Y", "n", "N"} and not re.fullmatch(r"[-+]?[\d_.]+[eE][-+]?\d+", text)
    ),
    lambda children: (
        st.lists(children, max_size=4) | st.dictionaries(st.text("ab:#-' ", max_size=4), children, max_size=4)
    ),
    max_leaves=15,
)


@given(json_values)
def test_output_of_another_writer_is_read_back(value: Any) -> None:
    assert read_document(yaml.safe_dump(value)).data == value


@pytest.mark.parametrize("line_break", ["\r", "\r\n", "\x85", "\u2028", "\u2029"])
def test_every_line_break_of_yaml_counts_in_an_error(line_break: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read_document(f"a: 1{line_break}- b{line_break}")

    assert caught.value.line == 2


@given(st.text(alphabet="ab:-[]{},&*!|>'\"#% \n\t~<0\r\x85\u2028", max_size=40))
def test_any_text_gives_data_or_a_document_error(text: str) -> None:
    with suppress(DocumentError):
        read_document(text)
    with suppress(DocumentError):
        read_nodes(text)


def test_nodes_have_tags_and_marks_and_share_what_an_alias_repeats() -> None:
    root = read_nodes("# comment\na: &x [1, '1']\nb: {c: *x, d: 2026-01-02}\ne: |\n  text\n")

    assert isinstance(root, MappingNode)
    (_, a), (key, b), (_, e) = root.value
    assert (root.start_mark.line, key.start_mark.line, key.start_mark.column) == (1, 2, 0)
    assert [item.tag.rpartition(":")[2] for item in a.value] == ["int", "str"]
    assert b.flow_style
    assert b.value[0][1] is a
    assert b.value[1][1].tag.endswith(":timestamp")
    assert (e.style, e.value, e.end_mark.line) == ("|", "text\n", 5)


def test_nodes_are_the_nodes_of_another_composer() -> None:
    text = "a: &x {b: [1, 0x1F, yes, ~, 'q', !custom z, !!str 5, ! 6]}\n<<: *x\n? [k]\n: >-\n  folded\n  text\n"

    def plain(node: Any) -> Any:
        marks = [(mark.line, mark.column) for mark in (node.start_mark, node.end_mark)]
        if isinstance(node, MappingNode):
            return node.tag, node.flow_style, marks, [(plain(key), plain(value)) for key, value in node.value]
        if isinstance(node, SequenceNode):
            return node.tag, node.flow_style, marks, [plain(item) for item in node.value]
        return node.tag, node.style, marks, node.value

    assert plain(read_nodes(text)) == plain(yaml.compose(text, yaml.CSafeLoader))


def test_nodes_of_an_empty_document_are_none() -> None:
    assert read_nodes("# nothing\n") is None


@pytest.mark.slow
def test_too_many_nodes_are_an_error() -> None:
    with pytest.raises(DocumentError, match="more than 200000 values"):
        read_nodes(f"[{'x,' * 200_001}]")
