"""Model of an HAProxy configuration: directives, sections, files and a whole generation.

All types are immutable and compared by content. A *generation* is the
complete input of one HAProxy: its configuration and the auxiliary files that
the configuration names.

Sections and files are kept in pages (`haptic_trio.chunked`). Results for a
generation are combined from cached results for each page, so a generation
that differs little from another one costs little. No result depends on the
boundaries of pages.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, overload

import msgspec

from haptic_trio.chunked import Paged, Piece, Splice, spliced
from haptic_trio.haproxy.file_chunks import FilePages
from haptic_trio.haproxy.sections import (
    PATH,
    Directive,
    Section,
    count_lines,
    digest_directives,
    digest_of,
    index_kinds,
    index_names,
    index_paths,
    is_branched,
    is_conditional,
    place_in,
    seal_of,
    seals_of,
)
from haptic_trio.haproxy.text_lines import Lines

__all__ = [
    "AuxFile",
    "Bases",
    "Config",
    "Directive",
    "FileKind",
    "Files",
    "Generation",
    "Section",
    "digest_of",
    "make_file",
    "make_files",
    "make_generation",
    "seal_of",
]


class Bases(Sequence[Section]):
    """The `defaults` sections of a configuration, in order."""

    def __init__(self, config: "Config") -> None:
        # Not the configuration, which keeps this object: the circle would keep both until a collection of garbage.
        self._pages = config.sections.pages
        self._sections: list[Section] = []
        self._places: list[tuple[int, int]] = []
        for number, page in enumerate(self._pages):
            for section in page.summary(index_kinds).get("defaults", ()):
                self._sections.append(section)
                self._places.append((number, place_in(page.items, section)))

    def __len__(self) -> int:
        return len(self._sections)

    @overload
    def __getitem__(self, index: int) -> Section: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Section]: ...
    def __getitem__(self, index: int | slice) -> Section | Sequence[Section]:
        return self._sections[index]

    def before(self, section: Section) -> Sequence[Section]:
        """Return the `defaults` sections before *section*; all of them if it is not in this configuration."""
        for number, page in enumerate(self._pages):
            found = page.summary(index_names).get(section.key, ())
            if any(one is section for one in found):
                place = number, place_in(page.items, section)
                return self._sections[: bisect_right(self._places, place) - (place in self._places)]
        return self._sections


class Config(msgspec.Struct, frozen=True, eq=False, dict=True):
    """A parsed haproxy.cfg."""

    sections: Paged[Section]
    preamble: tuple[Directive, ...] = ()
    """Lines before the first section: only directives such as `.if` and `.notice` are allowed there."""
    head: str = ""
    """The text before the first section."""

    @property
    def text(self) -> str:
        """The whole text; joined on each access."""
        return "".join([self.head, *(section.text for section in self.sections)])

    @cached_property
    def seal(self) -> bytes:
        """Content hash, 20 bytes, combined from the hashes of the sections."""
        return seal_of(b"".join([seal_of(self.head), *self.sections.summaries(seals_of)]))

    @property
    def digest(self) -> str:
        """Hash over the words, computed on each access: comments, blank lines and quoting do not count."""
        return digest_of("\n".join((digest_directives(self.preamble), *(one.digest for one in self.sections))))

    @cached_property
    def conditional(self) -> bool:
        """Whether any line depends on a directive such as `.if`; the text then does not show what HAProxy reads."""
        return bool(self.preamble) or any(self.sections.summaries(is_conditional))

    @cached_property
    def branched(self) -> bool:
        """Whether whole sections depend on `.if`; such a section may exist in several branches."""
        return bool(self.preamble) or any(self.sections.summaries(is_branched))

    @cached_property
    def bases(self) -> Bases:
        """The `defaults` sections."""
        return Bases(self)

    def all(self, kind: str) -> Iterator[Section]:
        """Yield the sections of *kind*, in order."""
        for sections in self.sections.summaries(index_kinds):
            yield from sections.get(kind, ())

    def find(self, kind: str, name: str = "") -> Section | None:
        """Return the first section with *kind* and *name*."""
        key = kind, name
        for page in self.sections.pages:
            found = page.summary(index_names).get(key)
            if found is not None:
                return found[0]
        return None

    def naming(self, path: str) -> Iterator[Directive]:
        """Yield the lines with a word that contains *path*, alone or as part of a longer word."""
        token = max(PATH.findall(path), key=len, default="")
        if "/" not in token:
            lines = (line for section in self.sections for line in (section.header, *section.directives))
            yield from (line for line in lines if any(path in word for word in line.words))
            return
        for lines_with in self.sections.summaries(index_paths):
            for line in lines_with.get(token, ()):
                if any(path in word for word in line.words):
                    yield line

    def changed(self, put: Iterable[Section] = ()) -> "Config":
        """Return a copy in which *put* replace the first sections of their kinds and names; new ones are appended.

        The text of each section must end with a line feed.
        """
        splices: list[Splice[Section]] = []
        added: list[Section] = []
        for section in put:
            at = self._place_of(section.key)
            if at is None:
                added.append(section)
            else:
                splices.append(Splice(at, 1, (section,)))
        splices.sort(key=lambda splice: splice.at)
        end = Splice(len(self.sections), 0, tuple(added))
        return Config(spliced(self.sections, [*splices, end]), self.preamble, self.head)

    def _place_of(self, key: tuple[str, str]) -> int | None:
        count = 0
        for page in self.sections.pages:
            found = page.summary(index_names).get(key)
            if found is not None:
                return count + place_in(page.items, found[0])
            count += len(page.items)
        return None

    def first_lines(self) -> Iterator[int]:
        """Yield the 1-based line at which each section begins."""
        line = 1 + self.head.count("\n")
        for section in self.sections:
            yield line
            line += section.text.count("\n")

    def locate(self, line: int) -> tuple[Section, int] | None:
        """Return the section that contains the 1-based *line*, and the line within it; None before all sections."""
        first = 1 + self.head.count("\n")
        if line < first:
            return None
        for page in self.sections.pages:
            count = page.summary(count_lines)
            if line < first + count:
                for section in page.items:
                    if line < first + section.text.count("\n"):
                        return section, line - first + 1
                    first += section.text.count("\n")
            first += count
        return None

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Config)
            and self.seal == other.seal
            and all(map(Section.__eq__, self.sections, other.sections))
        )

    def __ne__(self, other: object) -> bool:
        # The method of Struct would ignore __eq__ above.
        return not self == other

    def __hash__(self) -> int:
        return hash(self.seal)


class FileKind(StrEnum):
    """Kind of an auxiliary file."""

    MAP = "map"
    CERT = "cert"
    CRT_LIST = "crt-list"
    FILE = "file"


BY_LINE: Final = frozenset({FileKind.MAP, FileKind.CRT_LIST})
"""Files of many independent lines."""


class AuxFile(msgspec.Struct, frozen=True, dict=True, eq=False):
    """A file that the configuration names."""

    kind: FileKind
    path: str
    """Relative path with `/`, exactly as the configuration writes it, such as `maps/host.map`."""
    body: Lines | bytes
    known_digest: str = ""
    """Digest of the content if it is known in advance, or a substitute for it if the content is unknown."""
    secret: bool = False
    """Derived from a Secret: consoles, diffs and errors show the digest instead of the content."""
    namespace: str = ""
    """That of the object that has registered the file; empty if none has, or if it is not known."""

    @property
    def content(self) -> bytes:
        """The content; that of a file of lines is joined on each access."""
        return self.body if isinstance(self.body, bytes) else self.body.content

    @cached_property
    def digest(self) -> str:
        """Hash of the content; computed on first access, unless it was known."""
        return self.known_digest or digest_of(self.content)

    @cached_property
    def memo(self) -> dict[str, Any]:
        """Cache for values that other modules derive from the file, by names that they choose."""
        return {}

    @cached_property
    def lines(self) -> Lines:
        """The content by lines."""
        return Lines.of(self.body) if isinstance(self.body, bytes) else self.body

    @cached_property
    def seal(self) -> bytes:
        """Hash of kind, path and content, 20 bytes."""
        inner = self.lines.seal.hex() if self.kind in BY_LINE else self.digest
        return seal_of(f"{self.kind} {self.path}\n{inner}")

    @property
    def size(self) -> int:
        """Size of the content in bytes."""
        return len(self.body) if isinstance(self.body, bytes) else self.body.size

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, AuxFile) and self.seal == other.seal and self.secret == other.secret)

    def __ne__(self, other: object) -> bool:
        # The method of Struct would ignore __eq__ above.
        return not self == other

    def __hash__(self) -> int:
        return hash(self.seal)

    def __repr__(self) -> str:
        # The content may be a private key.
        return f"AuxFile({self.kind}, {self.path!r}, {self.size} bytes, {self.seal.hex()[:12]})"


class FileChange(msgspec.Struct, frozen=True):
    """A file that is added, removed, or changed."""

    path: str
    running: AuxFile | None
    desired: AuxFile | None


Files = FilePages[AuxFile]
"""Files by path, in the order of their paths."""


class Generation(msgspec.Struct, frozen=True):
    """Complete input of one HAProxy: the model of haproxy.cfg, and its files by path."""

    id: str
    config: Config
    files: Files

    @property
    def text(self) -> str:
        """The text of haproxy.cfg; joined on each access."""
        return self.config.text

    def files_of(self, kind: FileKind) -> Iterator[AuxFile]:
        """Yield the files of *kind*, in the order of their paths."""
        for page in self.files.paged.pages:
            yield from page.summary(_index_files).get(kind, ())

    def __repr__(self) -> str:
        return f"Generation({self.id[:12]}, {len(self.config.sections)} sections, {len(self.files)} files)"


def _index_files(files: tuple[AuxFile, ...]) -> dict[FileKind, list[AuxFile]]:
    found: dict[FileKind, list[AuxFile]] = {}
    for file in files:
        found.setdefault(file.kind, []).append(file)
    return found


def make_file(
    kind: FileKind,
    path: str,
    content: bytes | str | Paged[Piece],
    *,
    secret: bool = False,
    namespace: str = "",
    former: AuxFile | None = None,
) -> AuxFile:
    """Return an auxiliary file; a file of lines keeps the pages of *content*.

    Returns *former* itself if it has the same pages and nothing else differs.
    """
    if isinstance(content, Paged):
        if former is not None and (former.kind, former.path, former.secret) == (kind, path, secret):
            body = former.body
            if isinstance(body, Lines) and body.given.pages == content.pages:
                return former
        lines = Lines(content)
        return AuxFile(kind, path, lines if kind in BY_LINE else lines.content, "", secret, namespace)
    data = content.encode(errors="surrogateescape") if isinstance(content, str) else content
    return AuxFile(kind, path, Lines.of(data) if kind in BY_LINE else data, "", secret, namespace)


def make_files(files: Iterable[AuxFile]) -> Files:
    """Return *files* by path; of several files with one path the last one is used."""
    return Files.of(files)


def make_generation(
    config: Config, files: Iterable[AuxFile] | Files, *, former: Generation | None = None
) -> Generation:
    """Return the generation of *config* and *files*; its id depends only on their bytes, not on the order of files.

    Files that already are in pages are not copied; the files of *former* are
    reused if they have the same pages.
    """
    held = files if isinstance(files, FilePages) else Files.of(files)
    if former is not None and former.files.paged.pages == held.paged.pages:
        held = former.files
    return Generation(seal_of(config.seal + held.seal).hex(), config, held)
