"""Parsed pages of a configuration's text: after a change, only changed pages are parsed again.

A section extends from its header to the next one and may cross the end of a
page. So the result for a page depends on three things: its text, its *tail*
(the text between the page and the next header, usually empty), and the
number of `.if` that are open at its beginning.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from itertools import chain

import msgspec

from haptic_trio.chunked import Page, Paged, Piece
from haptic_trio.errors import Problem
from haptic_trio.haproxy.config.coherence import Claims, Name, is_balanced
from haptic_trio.haproxy.config.section_text import Chunk, SectionCutter
from haptic_trio.haproxy.model import Directive, Section

NOTHING_CLAIMED = Claims((), frozenset())


class ParsedSection(msgspec.Struct, frozen=True):
    """Result of parsing the text of one section; lines count from its header."""

    section: Section
    problems: tuple[Problem, ...]
    macros: tuple[Directive, ...]
    """The directives that begin with a dot."""
    names: tuple[Name, ...]
    """Names of the section that must be unique."""
    base: str
    """Name of the `defaults` section that it refers to; empty if there is none."""


ReadSection = Callable[[Chunk, bool], ParsedSection]
"""Parses a chunk; the second argument says whether it begins inside an `.if`."""


class TextPiece:
    """A piece of text and its parsed sections."""

    __slots__ = ("_read_with", "_sections", "chunks", "head", "piece")

    def __init__(self, piece: Piece, cutter: SectionCutter) -> None:
        chunks = list(cutter.cut(piece.text))
        self.piece = piece
        self.head = chunks.pop(0).text if chunks and not chunks[0].kind else ""
        """Text before the first header."""
        self.chunks = chunks
        self._read_with: tuple[int, str] | None = None
        self._sections: Sequence[ParsedSection] = ()

    def copied(self) -> "TextPiece":
        """Return a copy for another thread; it shares the immutable results."""
        found = object.__new__(TextPiece)
        found.piece, found.head, found.chunks = self.piece, self.head, self.chunks
        found._read_with, found._sections = self._read_with, self._sections
        return found

    def read(self, depth: int, tail: str, read: ReadSection) -> Sequence[ParsedSection]:
        """Return the sections that begin in this piece; *tail* ends the last one, *depth* counts open `.if`."""
        if self._read_with != (depth, tail):
            kind, text = self.chunks[-1]
            sections = []
            inner = depth
            for chunk in (*self.chunks[:-1], Chunk(kind, text + tail)):
                sections.append(read(chunk, inner > 0))
                inner += nesting_of(sections[-1].macros)
            self._read_with, self._sections = (depth, tail), sections
        return self._sections


class TextPage:
    """A page of text and its parsed sections."""

    def __init__(self, page: Page[Piece], cutter: SectionCutter, known: Mapping[int, TextPiece]) -> None:
        """Divide *page* into sections, except for its *known* pieces, by identity of the piece."""
        self.page = page
        self.pieces = [known.get(id(piece)) or TextPiece(piece, cutter) for piece in _whole_lines(page.items)]
        self.head = ""
        """Text before the first header; the whole text if there is no header."""
        self.has_sections = False
        for piece in self.pieces:
            self.head += piece.head
            if piece.chunks:
                self.has_sections = True
                break
        self.sections: Sequence[ParsedSection] = ()
        self.pages: tuple[Page[Section], ...] = ()
        self.inside: Sequence[bool] = ()
        """For each section, whether it begins inside an `.if`."""
        self.claims = NOTHING_CLAIMED
        self.has_problems = False
        self.nesting = 0
        """Number of `.if` open at the end minus those open at the beginning."""
        self._read_with: tuple[int, str] | None = None

    def copied(self) -> "TextPage":
        """Return a copy for another thread; it shares the immutable results."""
        found = copy(self)
        found.pieces = [piece.copied() for piece in self.pieces]
        return found

    def read(self, depth: int, tail: str, read: ReadSection) -> bool:
        """Update `sections` and all derived attributes; return whether they may have changed."""
        if self._read_with == (depth, tail):
            return False
        self._read_with = depth, tail
        if not self.has_sections:
            return False
        tails = [tail]
        for piece in reversed(self.pieces):
            tails.append(piece.head if piece.chunks else piece.head + tails[-1])
        sections: list[ParsedSection] = []
        opened = depth
        for piece, rest in zip(self.pieces, reversed(tails[:-1]), strict=True):
            if piece.chunks:
                found = piece.read(opened, rest, read)
                sections += found
                for one in found:
                    if one.macros:
                        opened += nesting_of(one.macros)
        self.nesting = opened - depth
        self._keep(sections, depth)
        return True

    def _keep(self, sections: list[ParsedSection], depth: int) -> None:
        self.sections = sections
        self.pages = (
            Paged.of([one.section for one in sections]).pages
            if len(sections) > 256
            else (Page(tuple([one.section for one in sections])),)
        )
        has_macros = any(one.macros for one in sections)
        if depth or has_macros:
            opened, self.inside = depth, []
            for one in sections:
                self.inside.append(opened > 0)
                opened += nesting_of(one.macros)
            outside = [one for one, inside in zip(sections, self.inside, strict=True) if not inside]
        else:
            self.inside, outside = [False] * len(sections), sections
        self.has_problems = any(one.problems for one in sections)
        has_defaults = any(one.section.kind == "defaults" for one in sections)
        self.claims = Claims(
            tuple(chain.from_iterable([one.names for one in outside])),
            frozenset([one.base for one in outside if one.base]),
            tuple([_links_of(one) for one in sections]) if has_defaults else (),
            has_branches=depth > 0 or not all(is_balanced(one.macros) for one in sections if one.macros),
        )


def _links_of(parsed: ParsedSection) -> tuple[str, str]:
    """Return the base of a section, and its name if it is a `defaults` section."""
    return parsed.base, parsed.section.name if parsed.section.kind == "defaults" else ""


def nesting_of(macros: Iterable[Directive]) -> int:
    """Return the number of `.if` that *macros* open minus those that they close."""
    return sum((macro.words[0] == ".if") - (macro.words[0] == ".endif") for macro in macros)


def ends_whole(pieces: Sequence[Piece]) -> bool:
    """Whether the text of *pieces* ends with a line feed or is empty."""
    return next((piece.text for piece in reversed(pieces) if piece.text), "\n").endswith("\n")


def whole_pages(paged: Paged[Piece]) -> list[Page[Piece]]:
    """Return the pages of *paged*; a page that ends within a line is joined with the following ones."""
    pages: list[Page[Piece]] = []
    joined: tuple[Piece, ...] = ()
    for page in paged.pages:
        if joined:
            joined += page.items
            if ends_whole(joined):
                pages.append(Page(joined))
                joined = ()
        elif page.summary(ends_whole):
            pages.append(page)
        else:
            joined = page.items
    return [*pages, Page(joined)] if joined else pages


def _whole_lines(pieces: Sequence[Piece]) -> list[Piece]:
    """Return *pieces*; a piece that ends within a line is joined with the following ones."""
    if all(piece.text[-1:] == "\n" for piece in pieces):
        return list(pieces)
    found: list[Piece] = []
    parts: list[str] = []
    for piece in pieces:
        if piece.text[-1:] in {"", "\n"} and not parts:
            found.append(piece)
            continue
        parts.append(piece.text)
        if piece.text[-1:] == "\n":
            found.append(Piece("".join(parts)))
            parts = []
    return [*found, Piece("".join(parts))] if parts else found
