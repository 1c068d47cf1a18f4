"""Certificates and crt-list files: how a configuration uses them, and the names each certificate covers."""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from haptic_trio.chunked import Page, Piece, Stretch, stretches
from haptic_trio.haproxy.model import AuxFile, FileKind, Generation
from haptic_trio.haproxy.text_lines import Lines
from haptic_trio.x509.bundles import names_in

_ENTRY: Final = re.compile(
    r"(?P<certificate>[^\s\[\]]+)(?:\s*\[(?P<options>[^\[\]]*)\])?(?P<filters>(?:\s+[^\s\[\]]+)*)"
)
_UNUSUAL: Final = re.compile(r"[\"'\\$\0\r\v\f]")
# Without hyphens between them: text with very many heads, and no end, is searched once.
PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----")
_FEW: Final = 200
_SOURCES: Final = frozenset({"crt", "crt-list"})
_FORM: Final = "crt-list"
# HAProxy prepends the values of these keywords to file names.
_BASES: Final = frozenset({"crt-base", "ca-base", "key-base"})


class CrtListEntry(msgspec.Struct, frozen=True):
    """A line of a crt-list."""

    certificate: str
    options: str
    filters: tuple[str, ...]
    line: str
    """The words of the line, separated by single blanks."""


class FileUses(msgspec.Struct, frozen=True):
    """References of a configuration to a file."""

    options: frozenset[str] = frozenset()
    """Options of `bind` and `server` lines that name it, such as `crt`."""
    other: bool = False
    """Whether it is also named in any other way."""
    leads: bool = False
    """Whether it is the first file of certificates on a `bind` line without `strict-sni`, and so has the default."""
    servers: bool = False
    """Whether lines of servers name it."""


class CrtList:
    """Entries of a crt-list in the supported syntax."""

    def __init__(self, lines: Lines) -> None:
        self.lines = lines

    def __iter__(self) -> Iterator[CrtListEntry]:
        return iter(_entries_in(self.lines.pages.pages))

    def find(self, certificate: str) -> Iterator[CrtListEntry]:
        """Yield the entries with *certificate*."""
        for page in self.lines.pages.pages:
            yield from page.summary(_index_entries).get(certificate, ())

    def options_with(self, path: str) -> Iterator[str]:
        """Yield the options of entries whose options name the file *path*."""
        for page in self.lines.pages.pages:
            yield from (options for options in page.summary(_all_options) if path in options)

    @property
    def is_unique(self) -> bool:
        """Whether no certificate is listed twice."""
        if _FORM not in self.lines.unique:
            names = [entry.certificate for entry in self]
            self.lines.unique[_FORM] = len(set(names)) == len(names)
        return self.lines.unique[_FORM]

    def _take_unique(self, former: "CrtList", gone: Sequence[CrtListEntry], come: Sequence[CrtListEntry]) -> None:
        """Set `is_unique` from the entries of the pages that differ from *former*, if that is cheap."""
        names = {entry.certificate for entry in come}
        fresh = names - {entry.certificate for entry in gone}
        if _FORM not in self.lines.unique and former.is_unique and len(fresh) <= _FEW:
            known = any(next(former.find(name), None) is not None for name in fresh)
            self.lines.unique[_FORM] = len(names) == len(come) and not known

    def compare(self, former: "CrtList") -> "ListChange":
        """Return the differences to *former*; meaningful only if both lists are unique."""
        places = stretches(former.lines.pages, self.lines.pages)
        if places is None:
            places = [Stretch(0, 0, former.lines.pages.pages, self.lines.pages.pages)]
        gone: list[CrtListEntry] = []
        come: list[CrtListEntry] = []
        appends = True
        for place in places:
            old, new = _entries_in(place.before), _entries_in(place.after)
            lines, kept = {entry.line for entry in old}, {entry.line for entry in new}
            added = [entry.line not in lines for entry in new]
            in_order = [one.line for one in old if one.line in kept] == [one.line for one in new if one.line in lines]
            at_end = not any(added) or place.after[-1:] == self.lines.pages.pages[-1:]
            appends = appends and in_order and at_end and sorted(added) == added
            gone += old
            come += new
        self._take_unique(former, gone, come)
        lines, kept = {entry.line for entry in gone}, {entry.line for entry in come}
        return ListChange(
            former,
            tuple([entry for entry in gone if entry.line not in kept]),
            tuple([entry for entry in come if entry.line not in lines]),
            appends and not _moves(places),
        )


class ListChange(NamedTuple):
    """Differences of a crt-list to a former one."""

    former: CrtList
    removed: tuple[CrtListEntry, ...]
    added: tuple[CrtListEntry, ...]
    appends: bool
    """Whether new entries are certainly at the end and the others in their former order."""

    def in_process(self) -> list[str]:
        """Return the lines of the list in the process after it has applied the change, in order."""
        gone = {entry.line for entry in self.removed}
        return [*(one.line for one in self.former if one.line not in gone), *(one.line for one in self.added)]


def parse_crt_list(content: bytes) -> tuple[CrtListEntry, ...] | None:
    """Return the entries of a crt-list, in order; None for unsupported syntax, such as quotes."""
    try:
        return _parse_text(content.decode())
    except UnicodeDecodeError:
        return None


def _parse_pieces(pieces: tuple[Piece, ...]) -> tuple[CrtListEntry, ...] | None:
    return _parse_text("".join([piece.text for piece in pieces]))


def _parse_text(text: str) -> tuple[CrtListEntry, ...] | None:
    entries = []
    for line in text.split("\n"):
        words = line.strip(" \t")
        if not words or words[0] == "#":
            continue
        match = _ENTRY.fullmatch(words)
        if match is None or _UNUSUAL.search(words):
            return None
        entry = CrtListEntry(
            match["certificate"],
            " ".join((match["options"] or "").split()),
            tuple(match["filters"].split()),
            " ".join(words.split()),
        )
        entries.append(entry)
    return tuple(entries)


def _usual_entries(pieces: tuple[Piece, ...]) -> tuple[CrtListEntry, ...]:
    return _parse_pieces(pieces) or ()


def _entries_in(pages: Sequence[Page[Piece]]) -> list[CrtListEntry]:
    return [entry for page in pages for entry in page.summary(_usual_entries)]


def _moves(places: Sequence[Stretch[Piece]]) -> bool:
    """Whether an entry has moved from one of *places* to another."""
    place_of = {entry.line: number for number, place in enumerate(places) for entry in _entries_in(place.before)}
    return any(
        place_of.get(entry.line, number) != number
        for number, place in enumerate(places)
        for entry in _entries_in(place.after)
    )


def _index_entries(pieces: tuple[Piece, ...]) -> dict[str, list[CrtListEntry]]:
    found: dict[str, list[CrtListEntry]] = {}
    for entry in _parse_pieces(pieces) or ():
        found.setdefault(entry.certificate, []).append(entry)
    return found


def _all_options(pieces: tuple[Piece, ...]) -> tuple[str, ...]:
    """Return the distinct options of entries."""
    return tuple(dict.fromkeys(entry.options for entry in _parse_pieces(pieces) or () if entry.options))


def _is_unusual(pieces: tuple[Piece, ...]) -> bool:
    return _parse_pieces(pieces) is None


def find_file_uses(generation: Generation, path: str) -> FileUses:
    """Return how the configuration of *generation* refers to the file *path*."""
    options: set[str] = set()
    other, leads, servers = False, False, False
    for line in generation.config.naming(path):
        words = line.words
        for index, word in enumerate(words):
            if path not in word:
                continue
            if word != path or line.raw or words[0] not in {"bind", "server", "default-server"}:
                other = True
            else:
                options.add(words[index - 1])
                leads = leads or ("strict-sni" not in words and not _SOURCES.intersection(words[: index - 1]))
                servers = servers or words[0] != "bind"
    return FileUses(frozenset(options), other, leads, servers)


def names_are_files(generation: Generation) -> bool:
    """Whether the process knows files by the names in the configuration, without a base directory."""
    return not any(line.keyword in _BASES for section in generation.config.all("global") for line in section.directives)


def crt_lists_of(generation: Generation) -> dict[str, CrtList] | None:
    """Return all crt-lists by path; None if one has unsupported syntax."""
    found = {}
    for file in generation.files_of(FileKind.CRT_LIST):
        if any(file.lines.pages.summaries(_is_unusual)):
            return None
        found[file.path] = CrtList(file.lines)
    return found


def names_of(entry: CrtListEntry, certificate: AuxFile | None) -> frozenset[str] | None:
    """Return the server names, in lower case, for which *entry* is used; None if they are unknown."""
    if entry.filters:
        return frozenset({name.lower() for name in entry.filters if name[0] != "!"})
    if certificate is None:
        return None
    if "names" not in certificate.memo:
        # Only the certificate is cached, not the private key beside it.
        match = PEM.search(certificate.content)
        certificate.memo["names"] = names_in(match[0]) if match is not None else None
    found: frozenset[str] | None = certificate.memo["names"]
    return found
