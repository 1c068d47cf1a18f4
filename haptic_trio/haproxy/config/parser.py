"""Parser for haproxy.cfg: returns the model, or raises an error with all problems of the text."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain

import msgspec

from haptic_trio.chunked import Page, Paged, Piece
from haptic_trio.errors import Problem, ProblemsError
from haptic_trio.haproxy.config.coherence import (
    NameRules,
    Names,
    PlacedSection,
    base_of,
    check_coherence,
    is_coherent,
    names_of,
    rules_of,
)
from haptic_trio.haproxy.config.section_text import Chunk, SectionCutter
from haptic_trio.haproxy.config.text_pages import (
    ParsedSection,
    TextPage,
    TextPiece,
    ends_whole,
    nesting_of,
    whole_pages,
)
from haptic_trio.haproxy.grammar.keywords import Keywords, shipped_keywords
from haptic_trio.haproxy.grammar.placement import (
    Finding,
    check_directives,
    check_header,
    check_macro,
    read_header,
    suggest,
)
from haptic_trio.haproxy.lexer import Fault, lex_lines, problem_at, split_line
from haptic_trio.haproxy.model import Config, Directive, Section, seal_of

SPARE = 1000
"""Sections of earlier texts that a cache keeps in addition to those of the last text."""


class ConfigSyntaxError(ProblemsError):
    """The text is not a valid haproxy.cfg. A permanent error for this text."""


class SectionCache:
    """Cache of parsed sections by their text, and of the pages of the last text; owned by the caller.

    Only changed sections and changed pages of a text are parsed again. The
    size is bounded. Use a cache in one thread at a time, and with one set of
    keywords.
    """

    def __init__(self, limit: int = 100_000) -> None:
        self._limit = limit
        self._sections: OrderedDict[tuple[str, bool], ParsedSection] = OrderedDict()
        self.pages: dict[int, TextPage] = {}
        """Pages of the last text, by the identity of their page."""
        self.names = Names()
        """Names of the sections of the last text."""
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._sections)

    def copied(self) -> "SectionCache":
        """Return a cache with the same content, for another thread; the two must be used with the same keywords."""
        copy = SectionCache(self._limit)
        copy._sections = self._sections.copy()
        copy.pages = {key: page.copied() for key, page in self.pages.items()}
        copy.names = self.names.copied()
        return copy

    def find(self, text: str, *, conditional: bool) -> ParsedSection | None:
        """Return the parsed section for *text*; None if it is not cached."""
        found = self._sections.get((text, conditional))
        if found is None:
            self.misses += 1
        else:
            self.hits += 1
            self._sections.move_to_end((text, conditional))
        return found

    def keep(self, text: str, parsed: ParsedSection, *, conditional: bool) -> None:
        """Cache *parsed* for *text*; evicts the least recently used section if the cache is full."""
        self._sections[text, conditional] = parsed
        while len(self._sections) > self._limit:
            self._sections.popitem(last=False)

    def remember(self, pages: dict[int, TextPage]) -> None:
        """Set the pages of the last text, and evict most sections of earlier texts."""
        self.pages = pages
        count = sum([len(page.sections) for page in pages.values()])
        while len(self._sections) > count + SPARE:
            self._sections.popitem(last=False)

    def forget(self) -> None:
        """Forget the last text, after it was read only partly."""
        self.pages, self.names = {}, Names()


def parse_config(
    text: str | Paged[Piece],
    *,
    source: str = "haproxy.cfg",
    cache: SectionCache | None = None,
    keywords: Keywords | None = None,
) -> Config:
    """Parse *text* as HAProxy reads it.

    *source* is the file name in problems. With a *cache*, unchanged pages and
    sections are not parsed again. *keywords* are those of the target HAProxy;
    by default of all supported versions. Raises ConfigSyntaxError with all
    problems, ordered by line.
    """
    reader = _Reader(keywords or shipped_keywords(), cache)
    pages = reader.cut(text if isinstance(text, Paged) else Paged((Page((Piece(text),)),)))
    head, tails = _find_tails(pages)
    preamble, problems = reader.read_preamble(head, source)
    reader.read(pages, tails, nesting_of(preamble))
    config = Config(Paged(chain.from_iterable([page.pages for page in pages])), preamble, head)
    is_whole = not pages or pages[-1].page.summary(ends_whole)
    is_plain = not preamble and is_whole and not any(page.has_problems for page in pages)
    if not (is_plain and is_coherent((page.claims for page in pages), reader.names)):
        problems += _find_problems(config, pages, source, reader.rules)
        if not is_whole:
            problems.append(_missing_line_feed(config.text, source))
    if problems:
        raise ConfigSyntaxError(sorted(problems, key=lambda problem: (problem.line, problem.column)))
    return config


def read_section(text: str, keywords: Keywords | None = None) -> Section | None:
    """Return the section whose text is *text*; None if it is not the text of exactly one section.

    The lines of the section are not checked.
    """
    known = keywords or shipped_keywords()
    chunks = list(_cutter(known).cut(text))
    if len(chunks) != 1 or not chunks[0].kind:
        return None
    return _make_section(chunks[0], lex_lines(text, source="")[0])


def read_head(text: str) -> tuple[Directive, ...]:
    """Return the lines of *text*, the text before the first section; they are not checked."""
    return tuple(lex_lines(text, source="")[0])


class _Reader:
    """Turns a text into pages of sections, with the help of a cache."""

    def __init__(self, keywords: Keywords, cache: SectionCache | None) -> None:
        self.rules = rules_of(keywords.version)
        self._keywords = keywords
        self._cache = cache
        self._known: dict[int, TextPage] = cache.pages if cache is not None else {}
        self.names = cache.names if cache is not None else Names()

    def cut(self, paged: Paged[Piece]) -> list[TextPage]:
        """Return the pages of *paged*; cached pages are reused."""
        cutter = _cutter(self._keywords)
        pages: list[TextPage] = []
        seen: set[int] = set()
        former: dict[int, TextPiece] | None = None
        for page in whole_pages(paged):
            found = self._known.get(id(page))
            if found is None or id(page) in seen:
                if former is None:
                    former = self._find_former(paged)
                found = TextPage(page if id(page) not in seen else Page(page.items), cutter, former)
            seen.add(id(page))
            pages.append(found)
        return pages

    def _find_former(self, paged: Paged[Piece]) -> dict[int, TextPiece]:
        """Return the pieces of cached pages that are not in *paged*."""
        present = {id(page) for page in paged.pages}
        gone = [page for key, page in self._known.items() if key not in present]
        return {id(piece.piece): piece for page in gone for piece in page.pieces}

    def read_preamble(self, head: str, source: str) -> tuple[tuple[Directive, ...], list[Problem]]:
        """Parse and check the text before the first section."""
        if not head:
            return (), []
        directives, problems = lex_lines(head, source=source)
        findings: list[Finding] = []
        depth = 0
        for directive in directives:
            keyword = directive.keyword
            depth += (keyword == ".if") - (keyword == ".endif")
            if keyword.startswith("."):
                findings += check_macro(directive, conditional=depth > 0)
            elif depth <= 0:
                message = f"keyword '{keyword}' before the first section"
                findings.append(Finding(directive, 0, message, suggest(keyword, self._keywords.sections)))
        return tuple(directives), problems + _place(findings, head, source)

    def read(self, pages: Sequence[TextPage], tails: Sequence[str], depth: int) -> None:
        """Parse *pages*, at whose beginning *depth* `.if` are open, and cache exactly these pages."""
        present = {id(page.page): page for page in pages}
        try:
            for key, page in self._known.items():
                if key not in present:
                    self.names.release(page.claims.names)
            for page, tail in zip(pages, tails, strict=True):
                former = page.claims.names
                if page.read(depth, tail, self._read_section):
                    self.names.release(former)
                    self.names.claim(page.claims.names)
                depth += page.nesting
        except BaseException:
            if self._cache is not None:
                self._cache.forget()
            raise
        if self._cache is not None:
            self._cache.remember(present)

    def _read_section(self, chunk: Chunk, conditional: bool) -> ParsedSection:
        cache = self._cache
        found = cache.find(chunk.text, conditional=conditional) if cache is not None else None
        if found is None:
            found = self._parse(chunk, conditional=conditional)
            if cache is not None:
                cache.keep(chunk.text, found, conditional=conditional)
        return found

    def _parse(self, chunk: Chunk, *, conditional: bool) -> ParsedSection:
        directives, problems = lex_lines(chunk.text, source="")
        section = _make_section(chunk, directives)
        findings = list(
            check_directives(chunk.kind, section.name, section.directives, self._keywords, conditional=conditional)
        )
        if not conditional:
            findings += check_header(section.header)
        if findings:
            problems += _place(findings, chunk.text, "")
        macros = tuple([one for one in section.directives if one.words[0][0] == "."]) if section.conditional else ()
        return ParsedSection(section, tuple(problems), macros, names_of(section, self.rules), base_of(section))


@lru_cache(maxsize=8)
def _cutter_of(kinds: frozenset[str]) -> SectionCutter:
    return SectionCutter(kinds)


def _cutter(keywords: Keywords) -> SectionCutter:
    return _cutter_of(frozenset(keywords.sections))


def _make_section(chunk: Chunk, directives: Sequence[Directive]) -> Section:
    header, body = directives[0], tuple(directives[1:])
    return Section(
        chunk.kind,
        read_header(header.words).name,
        header,
        body,
        chunk.text,
        seal_of(chunk.text),
        tuple([one for one in directives if "/" in "\n".join(one.words)]) if "/" in chunk.text else (),
        "." in chunk.text and any(one.words[0][0] == "." for one in body),
    )


def _find_tails(pages: Sequence[TextPage]) -> tuple[str, list[str]]:
    """Return the text before the first section, and for each page the text that follows it up to the next section."""
    tails: list[str] = []
    tail = ""
    for page in reversed(pages):
        tails.append(tail)
        tail = page.head if page.has_sections else page.head + tail
    tails.reverse()
    return tail, tails


def _find_problems(config: Config, pages: Iterable[TextPage], source: str, rules: NameRules) -> list[Problem]:
    """Return all problems within and between the sections of *config*."""
    problems: list[Problem] = []
    placed: list[PlacedSection] = []
    macros: list[Directive] = list(config.preamble)
    lines = config.first_lines()
    for page in pages:
        for one, inside in zip(page.sections, page.inside, strict=True):
            line = next(lines)
            placed.append(PlacedSection(one.section, _at(one.section.header, line), inside))
            macros += [_at(macro, line) for macro in one.macros]
            problems += [
                msgspec.structs.replace(problem, line=problem.line + line - 1, source=source)
                for problem in one.problems
            ]
    findings = list(check_coherence(placed, macros, rules))
    return problems + (_place(findings, config.text, source) if findings else [])


def _at(directive: Directive, first_line: int) -> Directive:
    return Directive(directive.words, directive.line + first_line - 1, directive.raw, directive.dashed)


def _place(findings: Iterable[Finding], text: str, source: str) -> list[Problem]:
    """Return *findings* as problems with the columns of their words in *text*."""
    lines = text.split("\n")
    return [_problem(finding, lines[finding.directive.line - 1], source) for finding in findings]


def _problem(finding: Finding, line: str, source: str) -> Problem:
    offsets = split_line(line).offsets
    # A missing word is reported at the end of the line.
    offset = offsets[finding.word] if finding.word < len(offsets) else len(line.rstrip())
    return problem_at(line, finding.directive.line, Fault(offset, finding.message, finding.hint), source=source)


def _missing_line_feed(text: str, source: str) -> Problem:
    start = text.rfind("\n") + 1
    hint = "add one: HAProxy treats the file as truncated"
    fault = Fault(len(text) - start, "no line feed at the end of the last line", hint)
    return problem_at(text[start:], text.count("\n") + 1, fault, source=source)
