"""HAProxy's configuration as data: directives, sections, files, and a whole generation.

Everything here is immutable and compared by content. A *generation* is
everything one HAProxy needs: its configuration and the auxiliary files that
the configuration names, with a content hash each.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType

import msgspec


def digest_of(content: bytes | str) -> str:
    """Return the content hash used everywhere: BLAKE2b-160 in hexadecimal.

    Bytes that are not UTF-8 may stand in a string as surrogate escapes.
    """
    data = content.encode(errors="surrogateescape") if isinstance(content, str) else content
    return hashlib.blake2b(data, digest_size=20).hexdigest()


class Directive(msgspec.Struct, frozen=True):
    """One configuration line, as HAProxy splits it into words."""

    words: tuple[str, ...]
    """Words with quoting and escapes resolved; the first is the keyword."""
    line: int = 0
    """1-based line in the source text; not part of equality of sections."""
    raw: tuple[int, ...] = ()
    """Indices of words that refer to environment variables: those are kept exactly as written, quotes included."""

    @property
    def keyword(self) -> str:
        """The first word."""
        return self.words[0]


class Section(msgspec.Struct, frozen=True):
    """A section (`global`, `defaults`, `frontend`, …) with its directives, in order."""

    kind: str
    name: str
    """Empty for unnamed sections."""
    header: Directive
    directives: tuple[Directive, ...]
    digest: str
    """Hash over the words of header and directives: comments, blank lines and position do not count."""

    @property
    def key(self) -> tuple[str, str]:
        """Kind and name: what identifies the section within a configuration."""
        return self.kind, self.name

    def all(self, keyword: str) -> Iterator[Directive]:
        """Yield the directives that begin with *keyword*."""
        return (directive for directive in self.directives if directive.keyword == keyword)


class Config(msgspec.Struct, frozen=True):
    """A parsed haproxy.cfg."""

    sections: tuple[Section, ...]
    digest: str
    preamble: tuple[Directive, ...] = ()
    """What stands before the first section: only `.if`, `.notice` and their like may."""
    conditional: bool = False
    """Whether any line depends on `.if`: then the text alone does not tell what HAProxy read."""

    def all(self, kind: str) -> Iterator[Section]:
        """Yield the sections of *kind*, in order."""
        return (section for section in self.sections if section.kind == kind)

    def find(self, kind: str, name: str = "") -> Section | None:
        """Return the first section with *kind* and *name*."""
        return next((section for section in self.sections if section.key == (kind, name)), None)


class FileKind(StrEnum):
    """What an auxiliary file is to HAProxy."""

    MAP = "map"
    CERT = "cert"
    CRT_LIST = "crt-list"
    FILE = "file"


class AuxFile(msgspec.Struct, frozen=True):
    """A file that the configuration names."""

    kind: FileKind
    path: str
    """Relative path with `/`, exactly as the configuration writes it, such as `maps/host.map`."""
    content: bytes
    digest: str
    secret: bool = False
    """Derived from a Secret: consoles, diffs and errors show the digest instead of the content."""

    def __repr__(self) -> str:
        # The content may be a private key.
        return f"AuxFile({self.kind}, {self.path!r}, {len(self.content)} bytes, {self.digest[:12]})"


class Generation(msgspec.Struct, frozen=True):
    """All that one HAProxy needs: the text of haproxy.cfg, its model, and its files by path."""

    id: str
    text: str
    config: Config
    files: Mapping[str, AuxFile]

    def __repr__(self) -> str:
        return f"Generation({self.id[:12]}, {len(self.config.sections)} sections, {len(self.files)} files)"


def make_file(kind: FileKind, path: str, content: bytes | str, *, secret: bool = False) -> AuxFile:
    """Return an auxiliary file with its digest computed."""
    data = content.encode() if isinstance(content, str) else content
    return AuxFile(kind, path, data, digest_of(data), secret)


def make_generation(text: str, config: Config, files: Iterable[AuxFile]) -> Generation:
    """Return the generation of *text* and *files*; its id depends on their bytes alone, not on the order of files."""
    by_path = {file.path: file for file in sorted(files, key=lambda file: file.path)}
    summary = hashlib.blake2b(digest_of(text).encode(), digest_size=20)
    for file in by_path.values():
        summary.update(f"\n{file.kind} {file.path} {file.digest}".encode())
    return Generation(summary.hexdigest(), text, config, MappingProxyType(by_path))
