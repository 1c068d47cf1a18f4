"""Rows of the lists of the terminal UI, as text that fits a width in terminal cells."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from rich.console import Console, RenderableType
from rich.text import Text

from haptic_trio.cli.output.findings import visible

_PLACE: Final = re.compile(r"(?<![\w/.-])((?:[\w.-]+/)*[\w-]+\.(?:cfg|map|list|lua|http|txt|acl)):(\d+)")
_OBJECT: Final = re.compile(r"(?<![\w/])([A-Z]\w+ [a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)")


class Match(msgspec.Struct, frozen=True):
    """A request, which is not sent: its card shows what it matches."""

    target: str
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()


class Explain(msgspec.Struct, frozen=True):
    """The explanation of a line, section, host or object."""

    target: str


class OpenFile(msgspec.Struct, frozen=True):
    """A file in the tab Configuration."""

    path: str


class Details(msgspec.Struct, frozen=True):
    """Lines that are known already."""

    title: str
    lines: Callable[[], list[Text]]


Opens: TypeAlias = Match | Explain | OpenFile | Details


class Row(msgspec.Struct, frozen=True):
    """One row of a list, which has one or more lines."""

    key: str
    """Identity of the row: the cursor stays at it when the list changes."""
    render: Callable[[int], Sequence[Text]]
    """Returns its lines for a width."""
    opens: Opens | None = None
    """Card or file that Enter shows."""
    words: Callable[[], str] = str
    """Returns the text that a search finds."""


def text_row(key: str, text: Text, opens: Opens | None = None, *, folds: bool = False) -> Row:
    """Return a row of *text*, which is cut at the width, or with *folds* continued in further lines."""
    return Row(key, lambda width: folded(text, width) if folds else [fitted(text, width)], opens, lambda: text.plain)


def heading(text: str) -> Row:
    """Return a row that names what follows."""
    return text_row(f"heading {text}", Text(text, style="bold"))


def linked_row(key: str, text: Text) -> Row:
    """Return a row of *text* that opens the explanation of the place or object in it, if any."""
    if place := _PLACE.search(text.plain):
        return text_row(key, text, Explain(f"{place[1]}:{place[2]}"))
    if named := _OBJECT.search(text.plain):
        return text_row(key, text, Explain(named[1]))
    return text_row(key, text)


def block_rows(key: str, content: RenderableType, width: int) -> list[Row]:
    """Return a row for each line of *content* at *width*."""
    console = Console(width=max(width, 20), color_system="standard", force_terminal=True, highlight=False)
    rows = []
    for number, segments in enumerate(console.render_lines(content, pad=False)):
        line = Text()
        for segment in segments:
            line.append(segment.text, style=segment.style)
        rows.append(text_row(f"{key} {number}", line))
    return rows


def found(rows: Iterable[Row], search: str) -> list[Row]:
    """Return those of *rows* that contain all words of *search*, and all headings."""
    words = search.casefold().split()
    if not words:
        return list(rows)
    return [row for row in rows if row.key.startswith("heading ") or _has(row, words)]


def _has(row: Row, words: Sequence[str]) -> bool:
    text = row.words().casefold()
    return all(word in text for word in words)


def columns(cells: Sequence[tuple[Any, str, int]], width: int) -> Text:
    """Return *cells* (text, style, cells of the terminal) side by side; those of width 0 share what is left."""
    gaps = len(cells) - 1
    shares = sum(size == 0 for _text, _style, size in cells)
    left = max(0, width - gaps - sum(size for _text, _style, size in cells))
    line = Text()
    for number, (text, style, size) in enumerate(cells):
        if number:
            line.append(" ")
        cell = Text(plain(text), style=style)
        cell.truncate(size or left // max(1, shares), overflow="ellipsis", pad=number < gaps)
        line.append_text(cell)
    line.truncate(width, overflow="ellipsis")
    return line


def plain(text: object) -> str:
    """Return *text*, which may come from an object, as one line without control characters."""
    return visible(str(text).replace("\n", " ").replace("\t", " "))


def fitted(text: Text, width: int) -> Text:
    """Return *text* as one line of at most *width* cells."""
    line = text.copy()
    line.expand_tabs(4)
    line.truncate(width, overflow="ellipsis")
    return line


def folded(text: Text, width: int) -> list[Text]:
    """Return *text* as lines of at most *width* cells, the further ones indented."""
    line = text.copy()
    line.expand_tabs(4)
    console = Console(width=width)
    first, *rest = line.wrap(console, max(10, width), overflow="fold") or [Text()]
    if not rest:
        return [first]
    more = Text(" ").join(rest)
    return [first, *(Text("  ").append_text(one) for one in more.wrap(console, max(10, width - 2), overflow="fold"))]
