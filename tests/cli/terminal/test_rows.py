"""Texts fit the cells of the terminal, with wide characters, and are harmless."""

import pytest
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from haptic_trio.cli.terminal.rows import (
    Explain,
    block_rows,
    columns,
    fitted,
    folded,
    found,
    heading,
    linked_row,
    plain,
    text_row,
)


@pytest.mark.parametrize("text", ["short", "x" * 200, "店" * 100, "a\tb" * 50, ""])
@pytest.mark.parametrize("width", [20, 79, 80])
def test_lines_are_not_wider_than_the_terminal(text: str, width: int) -> None:
    assert fitted(Text(text), width).cell_len <= width
    assert all(line.cell_len <= width for line in folded(Text(text), width))
    assert columns([("state", "", 11), (text, "", 0), (text, "cyan", 0), ("2", "", 7)], width).cell_len <= width


def test_folded_text_is_complete_and_indented() -> None:
    lines = folded(Text("one two three four five six"), 12)

    assert " ".join(line.plain.strip() for line in lines) == "one two three four five six"
    assert all(line.plain.startswith("  ") for line in lines[1:])


def test_columns_share_what_is_left() -> None:
    line = columns([("a", "", 3), ("b" * 50, "", 0), ("c" * 50, "", 0)], 23)

    assert line.plain == "a   bbbbbbbb… cccccccc…"
    assert cell_len(line.plain) == 23


def test_control_characters_are_escaped() -> None:
    assert plain("a\nb\tc\x1b]0;x\x07\x85") == r"a b c\x1b]0;x\x07\x85"


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("matched by    maps/path-prefix.map:2  lost|/ b  (prefix)  [Ingress default/lost]", "maps/path-prefix.map:2"),
        ("for           Ingress default/lost, resourceVersion 11", "Ingress default/lost"),
        ("backend       shop  (haproxy.cfg:153)", "haproxy.cfg:153"),
        ("depends on    resources.services.has('default', 'empty'): Service default/empty", "Service default/empty"),
        ("note          rules of frontends apply before the lookup", None),
    ],
)
def test_a_line_leads_to_the_place_or_object_in_it(text: str, target: str | None) -> None:
    opens = linked_row("1", Text(text)).opens

    assert opens == (Explain(target) if target else None)


def test_search_finds_all_words_and_keeps_headings() -> None:
    rows = [heading("Events"), text_row("1", Text("Instance reloaded one")), text_row("2", Text("other"))]

    assert [row.key for row in found(rows, "RELOADED one")] == ["heading Events", "1"]
    assert found(rows, " ") == rows


def test_a_table_becomes_a_row_for_each_line() -> None:
    table = Table("NAME", box=None)
    table.add_row("one")
    table.add_row("two")

    assert [row.words().strip() for row in block_rows("t", table, 40)] == ["NAME", "one", "two"]
