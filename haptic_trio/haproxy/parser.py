"""haproxy.cfg as a model: sections found, split, checked, and put together, with all problems of a text at once."""

import hashlib
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from haptic_trio.errors import Problem, ProblemsError
from haptic_trio.haproxy.coherence import check_coherence
from haptic_trio.haproxy.grammar import Finding, check_directives, check_header, check_macro, read_header, suggest
from haptic_trio.haproxy.keywords import Keywords, shipped_keywords
from haptic_trio.haproxy.lexer import Fault, lex_lines, problem_at, split_line
from haptic_trio.haproxy.model import Config, Directive, Section


class ConfigSyntaxError(ProblemsError):
    """The text is no valid haproxy.cfg; trying again helps only after the text has changed."""


class ParsedSection(msgspec.Struct, frozen=True):
    """What one section's text gives; lines count from `line`."""

    line: int
    section: Section
    problems: tuple[Problem, ...]
    macros: tuple[Directive, ...]
    """The directives that begin with a dot."""


class SectionCache:
    """Sections that were parsed before, by their text; bounded, and owned by the caller.

    A text that differs in one section is parsed in the time of that section.
    Not safe for use by several threads at once, and for one set of keywords.
    """

    def __init__(self, limit: int = 100_000) -> None:
        self._limit = limit
        self._sections: OrderedDict[tuple[str, bool], ParsedSection] = OrderedDict()
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._sections)

    def find(self, text: str, *, conditional: bool) -> ParsedSection | None:
        """Return what *text* gave last time."""
        found = self._sections.get((text, conditional))
        if found is None:
            self.misses += 1
        else:
            self.hits += 1
            self._sections.move_to_end((text, conditional))
        return found

    def keep(self, text: str, parsed: ParsedSection, *, conditional: bool) -> None:
        """Remember *parsed* for *text*; the section used least recently gives way."""
        self._sections[text, conditional] = parsed
        self._sections.move_to_end((text, conditional))
        while len(self._sections) > self._limit:
            self._sections.popitem(last=False)


def parse_config(
    text: str,
    *,
    source: str = "haproxy.cfg",
    cache: SectionCache | None = None,
    keywords: Keywords | None = None,
) -> Config:
    """Parse *text* as HAProxy reads it.

    *source* names the text in problems; with a *cache*, sections whose text
    has not changed are not parsed again. Raises ConfigSyntaxError with all
    problems, in the order of lines.
    """
    reader = _Reader(source, keywords or shipped_keywords(), cache)
    problems: list[Problem] = []
    chunks = list(_split_sections(text, reader.keywords.sections))
    preamble: tuple[Directive, ...] = ()
    if chunks and not chunks[0].kind:
        preamble, found = reader.read_preamble(chunks.pop(0))
        problems += found
    depth = _nesting(preamble)
    parsed: list[ParsedSection] = []
    conditional: list[bool] = []
    for chunk in chunks:
        conditional.append(depth > 0)
        parsed.append(reader.read_section(chunk, conditional=depth > 0))
        problems += parsed[-1].problems
        depth += _nesting(parsed[-1].macros)
    sections = tuple(item.section for item in parsed)
    macros = [*preamble, *(macro for item in parsed for macro in item.macros)]
    findings = list(check_coherence(sections, conditional, macros))
    if findings:
        problems += reader.place(findings, text, 1)
    if text and not text.endswith("\n"):
        problems.append(_missing_line_feed(text, source))
    if problems:
        raise ConfigSyntaxError(sorted(problems, key=lambda problem: (problem.line, problem.column)))
    return Config(sections, _digest_config(sections, preamble), preamble, conditional=bool(macros))


class _Chunk(NamedTuple):
    """The text of a section, or, without a kind, what stands before the first."""

    line: int
    kind: str
    text: str


class _Reader:
    """Turns the chunks of one text into sections."""

    def __init__(self, source: str, keywords: Keywords, cache: SectionCache | None) -> None:
        self.source = source
        self.keywords = keywords
        self._cache = cache

    def read_preamble(self, chunk: _Chunk) -> tuple[tuple[Directive, ...], list[Problem]]:
        directives, problems = lex_lines(chunk.text, source=self.source, first_line=chunk.line)
        findings: list[Finding] = []
        depth = 0
        for directive in directives:
            keyword = directive.keyword
            depth += (keyword == ".if") - (keyword == ".endif")
            if keyword.startswith("."):
                findings += check_macro(directive, conditional=depth > 0)
            elif depth <= 0:
                message = f"keyword '{keyword}' stands before the first section"
                findings.append(Finding(directive, 0, message, suggest(keyword, self.keywords.sections)))
        return tuple(directives), problems + self.place(findings, chunk.text, chunk.line)

    def read_section(self, chunk: _Chunk, *, conditional: bool) -> ParsedSection:
        found = self._cache.find(chunk.text, conditional=conditional) if self._cache is not None else None
        if found is None:
            parsed = self._parse(chunk, conditional=conditional)
        elif found.line == chunk.line and not found.problems:
            return found
        else:
            parsed = _moved(found, chunk.line, self.source)
        if self._cache is not None:
            self._cache.keep(chunk.text, parsed, conditional=conditional)
        return parsed

    def _parse(self, chunk: _Chunk, *, conditional: bool) -> ParsedSection:
        directives, problems = lex_lines(chunk.text, source=self.source, first_line=chunk.line)
        header, body = directives[0], tuple(directives[1:])
        name = read_header(header.words).name
        findings = list(check_directives(chunk.kind, name, body, self.keywords, conditional=conditional))
        if not conditional:
            findings += check_header(header)
        if findings:
            problems += self.place(findings, chunk.text, chunk.line)
        macros = tuple(directive for directive in body if directive.words[0][0] == ".")
        section = Section(chunk.kind, name, header, body, _digest_directives(directives))
        return ParsedSection(chunk.line, section, tuple(problems), macros)

    def place(self, findings: Iterable[Finding], text: str, first_line: int) -> list[Problem]:
        """Return *findings* as problems with the columns of their words."""
        lines = text.split("\n")
        return [_problem(finding, lines[finding.directive.line - first_line], self.source) for finding in findings]


def _split_sections(text: str, kinds: Iterable[str]) -> Iterator[_Chunk]:
    """Yield what stands before the first section, if anything does, and the sections."""
    start, line, kind = 0, 1, ""
    for match in _header_pattern(tuple(kinds)).finditer(text):
        word = match["kind"] or _first_word(text, match.start())
        if word is None or (not match["kind"] and word not in kinds):
            continue
        if match.start() > start:
            yield _Chunk(line, kind, text[start : match.start()])
        line += text.count("\n", start, match.start())
        start, kind = match.start(), word
    if len(text) > start:
        yield _Chunk(line, kind, text[start:])


_header_patterns: Final[dict[tuple[str, ...], re.Pattern[str]]] = {}


def _header_pattern(kinds: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern for lines that begin a section, or may: a quoted or escaped first word has to be read."""
    pattern = _header_patterns.get(kinds)
    if pattern is None:
        names = "|".join(map(re.escape, sorted(kinds, key=len, reverse=True)))
        pattern = re.compile(rf"^[ \t\v\f]*(?:(?P<kind>{names})(?=[\s#]|\Z)|[^\s#]*[\"'\\])", re.MULTILINE | re.ASCII)
        _header_patterns[kinds] = pattern
    return pattern


def _first_word(text: str, start: int) -> str | None:
    end = text.find("\n", start)
    words = split_line(text[start : end if end >= 0 else len(text)]).words
    return words[0] if words else None


def _moved(parsed: ParsedSection, line: int, source: str) -> ParsedSection:
    shift = line - parsed.line
    section = parsed.section
    replace = msgspec.structs.replace
    return ParsedSection(
        line,
        replace(
            section,
            header=Directive(section.header.words, section.header.line + shift, section.header.raw),
            directives=tuple(Directive(one.words, one.line + shift, one.raw) for one in section.directives),
        ),
        tuple(replace(problem, line=problem.line + shift, source=source) for problem in parsed.problems),
        tuple(Directive(one.words, one.line + shift, one.raw) for one in parsed.macros),
    )


def _problem(finding: Finding, line: str, source: str) -> Problem:
    offsets = split_line(line).offsets
    # A missing word is reported where it would stand.
    offset = offsets[finding.word] if finding.word < len(offsets) else len(line.rstrip())
    return problem_at(line, finding.directive.line, Fault(offset, finding.message, finding.hint), source=source)


def _missing_line_feed(text: str, source: str) -> Problem:
    start = text.rfind("\n") + 1
    fault = Fault(len(text) - start, "no line feed at the end of the last line", "HAProxy takes the file for truncated")
    return problem_at(text[start:], text.count("\n") + 1, fault, source=source)


def _nesting(macros: Iterable[Directive]) -> int:
    return sum((macro.words[0] == ".if") - (macro.words[0] == ".endif") for macro in macros)


def _digest_directives(directives: Iterable[Directive]) -> str:
    # Words hold no NUL, and each line begins with the number of its words, so that no two models write alike.
    parts = [
        f"{len(one.words)}\0" + "\0".join(one.words) + "\0"
        if not one.raw
        else f"{len(one.words)}:{one.raw}\0" + "\0".join(one.words) + "\0"
        for one in directives
    ]
    return hashlib.blake2b("".join(parts).encode(errors="surrogateescape"), digest_size=20).hexdigest()


def _digest_config(sections: Iterable[Section], preamble: tuple[Directive, ...]) -> str:
    summary = "\n".join((_digest_directives(preamble), *(section.digest for section in sections)))
    return hashlib.blake2b(summary.encode(), digest_size=20).hexdigest()
