"""Parser for the pages: code blocks with their place, links, and the anchors that links may name."""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,}) *(?P<info>[^`]*)$")
_LINK = re.compile(r"!?\[[^\]\[]*(?:\[[^\]]*\][^\]\[]*)*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(?P<title>.+?) *#*$")
_CODE = re.compile(r"`+[^`]*`+")


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """A fenced block of a page."""

    page: Path
    line: int
    """That of its first line of text."""
    language: str
    argument: str
    """What follows the language: a file, a terminal, or why nothing is run."""
    text: str

    @property
    def place(self) -> str:
        """Where it is, as tools and editors write it."""
        return f"{shown(self.page)}:{self.line}"


def shown(page: Path) -> str:
    """Return *page* as one who stands in the checkout would name it."""
    return str(page.relative_to(ROOT)) if page.is_relative_to(ROOT) else str(page)


def all_pages() -> list[Path]:
    """Return every page that is for readers."""
    others = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "chart/README.md")
    return [*(ROOT / name for name in others), *sorted(DOCS.rglob("*.md"))]


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of *page*, without the indentation of their fence."""
    found: list[Block] = []
    opened: re.Match[str] | None = None
    first, lines = 0, list[str]()
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        match = _FENCE.match(line)
        if opened is None:
            if match is not None:
                opened, first, lines = match, number + 1, []
        elif match is not None and match["fence"].startswith(opened["fence"]) and not match["info"].strip():
            language, _, argument = opened["info"].strip().partition(" ")
            text = "".join(f"{one.removeprefix(opened['indent'])}\n" for one in lines)
            found.append(Block(page=page, line=first, language=language, argument=argument.strip(), text=text))
            opened = None
        else:
            lines.append(line)
    return found


def prose_of(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines outside of fenced blocks, with their numbers."""
    fence = ""
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        match = _FENCE.match(line)
        if fence:
            if match is not None and match["fence"].startswith(fence) and not match["info"].strip():
                fence = ""
        elif match is not None:
            fence = match["fence"]
        else:
            yield number, line


def links_of(page: Path) -> list[tuple[int, str]]:
    """Return the targets of all links and images of *page*, each with its line."""
    return [
        (number, match["target"])
        for number, line in prose_of(page)
        for match in _LINK.finditer(_CODE.sub(lambda code: "x" * len(code[0]), line))
    ]


def anchors_of(page: Path) -> set[str]:
    """Return what a link may name in *page*: its headings, as forges make anchors of them."""
    counts: dict[str, int] = {}
    found: set[str] = set()
    for _number, line in prose_of(page):
        match = _HEADING.match(line)
        if match is None:
            continue
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match["title"])
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        seen = counts.get(slug, 0)
        counts[slug] = seen + 1
        found.add(f"{slug}-{seen}" if seen else slug)
    return found
