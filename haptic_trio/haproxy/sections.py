"""Sections and directives of a configuration, with digests and indexes for a chunk of them.

Immutable, and compared by content.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

PATH: Final = re.compile(r"[\w./-]+")
"""Characters of a path; a path with other characters counts as several."""


def digest_of(content: bytes | str) -> str:
    """Return the content hash used everywhere: BLAKE2b-160 in hexadecimal.

    Bytes that are not UTF-8 may be in a string as surrogate escapes.
    """
    return seal_of(content).hex()


def seal_of(content: bytes | str) -> bytes:
    """Return the content hash as 20 bytes."""
    data = content.encode(errors="surrogateescape") if isinstance(content, str) else content
    return hashlib.blake2b(data, digest_size=20).digest()


class Directive(msgspec.Struct, frozen=True):
    """One configuration line, as HAProxy splits it into words."""

    words: tuple[str, ...]
    """Words with quoting and escapes resolved; the first is the keyword."""
    line: int = 0
    """1-based line in the text of its section, or in the configuration for a line before the first section."""
    raw: tuple[int, ...] = ()
    """Indices of words that refer to environment variables: those are kept exactly as written, quotes included."""
    dashed: tuple[int, ...] = ()
    """Indices of words that begin with `-` and are quoted or escaped, as emitters write data."""

    @property
    def keyword(self) -> str:
        """The first word."""
        return self.words[0]


class Section(msgspec.Struct, frozen=True):
    """A section (`global`, `defaults`, `frontend`, …) with its directives, in order.

    It does not contain its position in a configuration: lines count from its
    header, which is line 1.
    """

    kind: str
    name: str
    """Empty for unnamed sections."""
    header: Directive
    directives: tuple[Directive, ...]
    text: str
    """Exactly as written, comments included: from its header up to the next one."""
    seal: bytes
    """Content hash of `text`."""
    paths: tuple[Directive, ...] = ()
    """Directives, header included, that contain a slash and so may name files."""
    conditional: bool = False
    """Whether one of its lines begins with a dot, such as `.if`."""

    @property
    def key(self) -> tuple[str, str]:
        """Kind and name: what identifies the section within a configuration."""
        return self.kind, self.name

    @property
    def digest(self) -> str:
        """Hash over the words, computed on each access: comments, blank lines and quoting do not count."""
        return digest_directives((self.header, *self.directives))

    def same_as(self, other: "Section") -> bool:
        """Whether both have the same meaning for HAProxy."""
        return self.seal == other.seal or self.digest == other.digest

    def all(self, keyword: str) -> Iterator[Directive]:
        """Yield the directives that begin with *keyword*."""
        return (directive for directive in self.directives if directive.keyword == keyword)


def digest_directives(directives: Iterable[Directive]) -> str:
    """Return the hash over the words of *directives*."""
    # Words contain no NUL, and each line begins with its number of words, so the encoding is unique.
    parts = [
        f"{len(one.words)}\0" + "\0".join(one.words) + "\0"
        if not one.raw
        else f"{len(one.words)}:{one.raw}\0" + "\0".join(one.words) + "\0"
        for one in directives
    ]
    return digest_of("".join(parts))


def seals_of(sections: tuple[Section, ...]) -> bytes:
    """Return the content hashes of *sections*, in order."""
    return b"".join([section.seal for section in sections])


def is_conditional(sections: tuple[Section, ...]) -> bool:
    """Whether any of *sections* has a line that begins with a dot, such as `.if`."""
    return any(section.conditional for section in sections)


def is_branched(sections: tuple[Section, ...]) -> bool:
    """Whether one of *sections* opens or closes an `.if` for the sections after it."""
    return any(
        sum((line.keyword == ".if") - (line.keyword == ".endif") for line in section.directives)
        for section in sections
        if section.conditional
    )


def count_lines(sections: tuple[Section, ...]) -> int:
    """Return the number of lines of *sections*."""
    return sum(section.text.count("\n") for section in sections)


def index_kinds(sections: tuple[Section, ...]) -> dict[str, tuple[Section, ...]]:
    """Return *sections* by kind."""
    if len({section.kind for section in sections}) == 1:
        return {sections[0].kind: sections}
    found: dict[str, list[Section]] = {}
    for section in sections:
        found.setdefault(section.kind, []).append(section)
    return {kind: tuple(of_kind) for kind, of_kind in found.items()}


def index_names(sections: tuple[Section, ...]) -> dict[tuple[str, str], list[Section]]:
    """Return *sections* by kind and name."""
    found: dict[tuple[str, str], list[Section]] = {}
    for section in sections:
        found.setdefault((section.kind, section.name), []).append(section)
    return found


def index_paths(sections: tuple[Section, ...]) -> dict[str, list[Directive]]:
    """Return the lines that may name files, by each possible path in them, without prefixes and suffixes as well."""
    found: dict[str, list[Directive]] = {}
    for section in sections:
        for line in section.paths:
            tokens = {token for word in line.words if "/" in word for token in PATH.findall(word)}
            for part in {part for token in tokens for part in _parts_of(token)}:
                found.setdefault(part, []).append(line)
    return found


def _parts_of(token: str) -> Iterator[str]:
    """Yield *token* without leading folders and without suffixes, in all combinations."""
    start = 0
    while "/" in (rest := token[start:]):
        end = rest.find(".", rest.rfind("/") + 2)
        while end > 0:
            yield rest[:end]
            end = rest.find(".", end + 1)
        yield rest
        start += rest.find("/") + 1


def place_in(sections: Sequence[Section], section: Section) -> int:
    """Return the index of *section* in *sections*, compared by identity."""
    return next(number for number, one in enumerate(sections) if one is section)
