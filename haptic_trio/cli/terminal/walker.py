"""Lists of which only the visible rows are made, however long they are."""

from collections.abc import Callable, Iterator, Sequence

import urwid
from rich.console import Console
from rich.style import Style
from rich.text import Text

from haptic_trio.cli.output.findings import visible
from haptic_trio.cli.terminal.rows import Row

STYLES = ("red", "yellow", "green", "cyan", "magenta", "dim", "bold", "bold red")
_FOCUSED: dict[str | None, str] = dict.fromkeys((None, *STYLES), "focus")
_CONSOLE = Console(color_system="standard", force_terminal=True, width=500)


def markup_of(text: Text) -> list[str | tuple[str, str]]:
    """Return *text* for urwid; control characters are escaped, whatever made the text."""
    parts: list[str | tuple[str, str]] = []
    # Only spans are rendered: appended to another text, the style of the whole text is one.
    for segment in Text().append_text(text).render(_CONSOLE):
        shown, style = visible(segment.text), _style_of(segment.style)
        if shown:
            parts.append((style, shown) if style else shown)
    return parts or [""]


def _style_of(style: Style | None) -> str:
    """Return the entry of the palette that is next to *style*; empty without one."""
    if style is None:
        return ""
    if style.color is not None and style.color.name in STYLES:
        return f"bold {style.color.name}" if style.bold and style.color.name == "red" else style.color.name
    return "bold" if style.bold else "dim" if style.dim else ""


class RowWidget(urwid.Widget):
    """A row that has the focus as a whole."""

    _sizing = frozenset([urwid.FLOW])
    _selectable = True

    def __init__(self, row: Row) -> None:
        super().__init__()
        self.row = row
        self._width = 0
        self._text = urwid.Text("", wrap="clip")
        self._shown = urwid.AttrMap(self._text, None, _FOCUSED)

    def keypress(self, size: tuple[()] | tuple[int] | tuple[int, int], key: str) -> str | None:
        """Leave *key* to the list."""
        del size
        return key

    def rows(self, size: tuple[int], focus: bool = False) -> int:
        """Return the number of lines at the width of *size*."""
        self._fit(size[0])
        return self._shown.rows(size, focus)

    def render(self, size: tuple[()] | tuple[int] | tuple[int, int], focus: bool = False) -> urwid.Canvas:
        """Return the lines at the width of *size*."""
        width = size[0] if size else 0
        self._fit(width)
        return urwid.CompositeCanvas(self._shown.render((width,), focus))

    def _fit(self, width: int) -> None:
        if width == self._width:
            return
        self._width = width
        markup: list[str | tuple[str, str]] = []
        for number, line in enumerate(self.row.render(width)):
            markup += [*(["\n"] if number else []), *markup_of(line)]
        self._text.set_text(markup)


class Walker(urwid.ListWalker[int, RowWidget]):
    """Rows of a list of which a window is known. *moved* gets each new position of the focus."""

    def __init__(self, moved: Callable[[int], None] = lambda _position: None) -> None:
        self.focus = 0
        self.total = 0
        self._moved = moved
        self._offset = 0
        self._rows: Sequence[Row] = ()
        self._widgets: dict[int, RowWidget] = {}

    def show(self, rows: Sequence[Row], *, offset: int = 0, total: int | None = None) -> None:
        """Replace the rows by *rows*, the window from *offset* on of *total* rows.

        The focus stays at the row that has it, or, at the beginning of the list, there.
        """
        focused = self.row
        self._rows, self._offset = rows, offset
        self.total = len(rows) if total is None else total
        self._widgets = {}
        if self.focus and focused is not None and not self._is_at(self.focus, focused.key):
            keys = {row.key: number for number, row in enumerate(rows)}
            self.focus = keys.get(focused.key, self.focus - offset) + offset
        self.focus = max(0, min(self.focus, self.total - 1))
        self._changed()

    def _is_at(self, position: int, key: str) -> bool:
        at = position - self._offset
        return 0 <= at < len(self._rows) and self._rows[at].key == key

    def restart(self) -> None:
        """Put the focus at the beginning."""
        self.focus = 0
        self._changed()

    @property
    def row(self) -> Row | None:
        """The row that has the focus; None if it is not known yet."""
        at = self.focus - self._offset
        return self._rows[at] if 0 <= at < len(self._rows) else None

    def __getitem__(self, position: int) -> RowWidget:
        if not 0 <= position < self.total:
            raise IndexError(position)
        widget = self._widgets.get(position)
        if widget is None:
            at = position - self._offset
            row = self._rows[at] if 0 <= at < len(self._rows) else Row("", lambda _width: [Text("…", style="dim")])
            widget = self._widgets[position] = RowWidget(row)
        return widget

    def next_position(self, position: int) -> int:
        """Return the position below *position*."""
        return position + 1

    def prev_position(self, position: int) -> int:
        """Return the position above *position*."""
        return position - 1

    def positions(self, *, reverse: bool = False) -> Iterator[int]:
        """Return all positions."""
        return iter(range(self.total - 1, -1, -1) if reverse else range(self.total))

    def set_focus(self, position: int) -> None:
        """Move the focus to *position*."""
        self.focus = position
        self._moved(position)
        self._changed()

    def _changed(self) -> None:
        urwid.emit_signal(self, "modified")
