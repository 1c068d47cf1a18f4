"""Translation of a page from the Markdown of forges (CommonMark with tables) to that of MkDocs (Python-Markdown).

The two differ in what these pages use: Python-Markdown wants four columns of indentation in list items and an empty
line before a list or table, keeps the backslash of an escaped pipe in code, makes other anchors of headings, and reads
what follows the language of a fence as options.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

_PARSER: Final = MarkdownIt("commonmark").enable("table")
_MARKER: Final = re.compile(r" *(?:[-*+]|\d+[.)]) +")
_FENCE: Final = re.compile(r"(?P<fence> *(?:`{3,}|~{3,})) *(?P<language>\S*) *(?P<argument>.*)")
_CODE: Final = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"#{1,6} +(?P<title>.+?)(?: +#+)? *$")
_TARGETLESS: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_DEPTH: Final = 4
"""Columns by which Python-Markdown wants the content of a list item to be indented."""
READERS_ALONE: Final = ("by hand", "part")
"""Arguments of fences for the tests of the pages alone. Others name a file, or the terminal of a console block."""


def translate(text: str, link: Callable[[str], str]) -> str:
    """Return the page *text* for MkDocs; *link* returns the new target of each link and image."""
    lines = text.splitlines()
    tokens = _PARSER.parse(text)
    kept = _inside(tokens, "fence", "code_block", "html_block")
    tables = _inside(tokens, "table_open")
    fences = {token.map[0] for token in tokens if token.type == "fence" and token.map}
    headings = {token.map[0] for token in tokens if token.type == "heading_open" and token.map}
    starts = {
        token.map[0]
        for token in tokens
        if token.map and token.level == 0 and token.type in {"bullet_list_open", "ordered_list_open", "table_open"}
    }
    nested = _nesting(tokens, lines)
    loose = _after_several_blocks(tokens, lines)
    anchors = _Anchors()
    written: list[str] = []
    for number, line in enumerate(lines):
        new = line
        if number in fences:
            new = _open_fence(line)
        elif number not in kept:
            new = _linked(line, link)
            if number in tables:
                new = _CODE.sub(lambda code: code[0].replace("\\|", "|"), new)
            if number in headings and (found := _HEADING.match(line)):
                new = f"{new.rstrip(' #')} {{#{anchors.of(found['title'])}}}"
        if number in starts | loose and written and written[-1].strip():
            written.append("")
        written.append(_indented(new, number, nested))
    return "\n".join(written) + "\n"


def with_links(text: str, link: Callable[[str], str]) -> str:
    """Return the page *text* with the target of each link and image that *link* returns, and otherwise as it is."""
    lines = text.splitlines(keepends=True)
    kept = _inside(_PARSER.parse(text), "fence", "code_block", "html_block")
    return "".join(line if number in kept else _linked(line, link) for number, line in enumerate(lines))


def has_diagram(text: str) -> bool:
    """Say whether the page *text* has a Mermaid diagram."""
    return any(token.type == "fence" and token.info.split()[:1] == ["mermaid"] for token in _PARSER.parse(text))


class _Anchors:
    """Anchors of the headings of one page, as forges name them."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def of(self, title: str) -> str:
        """Return the anchor of the next heading."""
        slug = re.sub(r"[^\w\- ]", "", _TARGETLESS.sub(r"\1", title).lower()).replace(" ", "-")
        seen = self._seen.get(slug, 0)
        self._seen[slug] = seen + 1
        return f"{slug}-{seen}" if seen else slug


def _inside(tokens: Sequence[Token], *types: str) -> set[int]:
    """Return the numbers of the lines that blocks of *types* consist of."""
    return {number for token in tokens if token.type in types and token.map for number in range(*token.map)}


def _nesting(tokens: Sequence[Token], lines: Sequence[str]) -> dict[int, list[tuple[int, int]]]:
    """Return the list items that each line is in, the outermost first: their first line, and their indentation."""
    found: dict[int, list[tuple[int, int]]] = {}
    for token in tokens:
        if token.type != "list_item_open" or token.map is None:
            continue
        first, end = token.map
        outer = sum(width for _, width in found.get(first, []))
        marker = _MARKER.match(lines[first][outer:])
        width = len(marker[0]) if marker else _DEPTH
        for number in range(first, end):
            found.setdefault(number, []).append((first, width))
    return found


def _after_several_blocks(tokens: Sequence[Token], lines: Sequence[str]) -> set[int]:
    """Return the first lines of list items that follow an item of several blocks: the last block would take them."""
    items = [token.map for token in tokens if token.type == "list_item_open" and token.map]
    several = {end for first, end in items if any(not line.strip() or _FENCE.match(line) for line in lines[first:end])}
    return {first for first, _ in items} & several


def _indented(line: str, number: int, nested: dict[int, list[tuple[int, int]]]) -> str:
    items = nested.get(number)
    if not items or not line.strip():
        return line
    inside = [width for first, width in items if first != number]
    text = line[min(sum(inside), len(line) - len(line.lstrip(" "))) :]
    # The marker of the item that begins here may be indented by itself.
    return " " * (_DEPTH * len(inside)) + (text.lstrip(" ") if len(inside) < len(items) else text)


def _open_fence(line: str) -> str:
    found = _FENCE.match(line)
    if found is None:
        return line
    argument = found["argument"].strip().removeprefix("+")
    if found["language"] == "console" and argument not in READERS_ALONE:
        argument = f"terminal {argument}" if argument else ""
    title = f' title="{argument}"' if argument and argument not in READERS_ALONE else ""
    return f"{found['fence']}{found['language'] or 'text'}{title}"


def _linked(line: str, link: Callable[[str], str]) -> str:
    """Return *line* with the links that *link* returns; code has none."""
    spans: list[str] = []

    def hide(code: re.Match[str]) -> str:
        spans.append(code[0])
        return f"\0{len(spans) - 1}\0"

    changed = _LINK.sub(lambda found: f"]({link(found[1])})", _CODE.sub(hide, line))
    return re.sub(r"\0(\d+)\0", lambda found: spans[int(found[1])], changed)
