"""Lists keep the row that has the focus, and make only the rows that are shown."""

import pytest
import urwid
from rich.text import Text

from haptic_trio.cli.terminal.rows import Row, text_row
from haptic_trio.cli.terminal.walker import RowWidget, Walker, markup_of


def rows(*keys: str) -> list[Row]:
    return [text_row(key, Text(key)) for key in keys]


@pytest.mark.parametrize(
    ("focus", "now", "expected"),
    [
        (1, ("x", "a", "b", "c"), 2),
        (0, ("x", "a", "b", "c"), 0),
        (2, ("a", "b"), 1),
        (2, (), 0),
        (1, ("a", "x", "c"), 1),
    ],
)
def test_focus_stays_at_its_row(focus: int, now: tuple[str, ...], expected: int) -> None:
    walker = Walker()
    walker.show(rows("a", "b", "c"))
    walker.set_focus(focus)

    walker.show(rows(*now))

    assert walker.focus == expected


def test_rows_outside_of_the_window_are_placeholders() -> None:
    moved: list[int] = []
    walker = Walker(moved.append)
    walker.show(rows("a", "b"), offset=50, total=100)

    assert [walker[position].row.key for position in (49, 50, 51, 52)] == ["", "a", "b", ""]
    with pytest.raises(IndexError):
        walker[100]
    walker.set_focus(51)
    assert moved == [51]
    assert walker.row is not None
    assert walker.row.key == "b"
    assert next(walker.positions(reverse=True)) == 99


def test_a_long_list_renders_the_visible_rows_only() -> None:
    rendered: list[int] = []

    def row(number: int) -> Row:
        def render(_width: int) -> list[Text]:
            rendered.append(number)
            return [Text(str(number))]

        return Row(str(number), render)

    walker = Walker()
    walker.show([row(number) for number in range(10_000)])
    box = urwid.ListBox(walker)
    box.render((80, 20), focus=True)
    box.keypress((80, 20), "end")
    box.render((80, 20), focus=True)

    assert len(rendered) < 60
    assert 9_999 in rendered


def test_control_characters_are_escaped_whatever_made_the_text() -> None:
    text = Text("a\x1b[31mb", style="red").append("\x9bc\u202e", style="bold")

    assert markup_of(text) == [("red", r"a\x1b[31mb"), ("bold red", r"\x9bc\u202e")]
    assert markup_of(Text("a", style="bold green").append("b", style="dim")) == [("green", "a"), ("green", "b")]
    assert markup_of(Text("a", style="dim")) == [("dim", "a")]


def test_a_row_has_the_same_lines_at_a_width_and_others_at_another() -> None:
    widget = RowWidget(text_row("a", Text("one two three"), folds=True))

    assert [widget.rows((width,)) for width in (40, 10)] == [1, 2]
    assert widget.selectable()
    assert widget.render((40,)).text[0].decode().strip() == "one two three"
