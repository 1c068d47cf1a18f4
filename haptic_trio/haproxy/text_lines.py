"""Lines of a text file in chunks, for files with thousands of entries."""

import hashlib
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final

from haptic_trio.chunked import Page, Paged, Piece

LINES_IN_PIECE: Final = 64
"""Lines in a piece, and in its page, of a content that is not given in pages."""

_SEAL_SIZE: Final = 16


class Lines:
    """A text in pages, each of which ends with a line feed, except for the last.

    Its `seal` identifies it: a hash of the hashes of its lines, which does
    not depend on the boundaries of pages.
    """

    def __init__(self, pages: Paged[Piece]) -> None:
        self.given = pages
        """The pages that the text was created from."""
        if not all(page.summary(_ends_whole) for page in pages.pages[:-1]):
            pages = _paged("".join([piece.text for piece in pages]))
        self.pages = pages
        self.unique: dict[str, bool] = {}
        """Whether no key is repeated, by the name of the parser of lines; entries are added once they are known."""

    @classmethod
    def of(cls, content: bytes) -> "Lines":
        """Return the lines of *content*; bytes that are not UTF-8 become surrogate escapes."""
        return cls(_paged(content.decode(errors="surrogateescape")))

    @cached_property
    def seal(self) -> bytes:
        """Hash of the content, 20 bytes."""
        return hashlib.blake2b(b"".join(self.pages.summaries(_seals_of)), digest_size=20).digest()

    @property
    def content(self) -> bytes:
        """The whole content; joined on each access."""
        return b"".join([encode_pieces(page.items) for page in self.pages.pages])

    @cached_property
    def size(self) -> int:
        """Size of the content in bytes."""
        return sum(self.pages.summaries(_size_of))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lines) and (self is other or self.seal == other.seal)

    def __hash__(self) -> int:
        return hash(self.seal)


def encode_pieces(pieces: tuple[Piece, ...]) -> bytes:
    """Return the bytes of *pieces*."""
    return "".join([piece.text for piece in pieces]).encode(errors="surrogateescape")


def lines_in(pieces: tuple[Piece, ...]) -> tuple[bytes, ...]:
    """Return the lines of *pieces*, each with its line feed."""
    lines = encode_pieces(pieces).split(b"\n")
    last = lines.pop()
    return (*(line + b"\n" for line in lines), *((last,) if last else ()))


def pages_of(lines: Iterable[bytes]) -> Paged[Piece]:
    """Return *lines* in new pages."""
    return _paged(b"".join(lines).decode(errors="surrogateescape"))


def _ends_whole(pieces: tuple[Piece, ...]) -> bool:
    text = next((piece.text for piece in reversed(pieces) if piece.text), "\n")
    return text.endswith("\n")


def _size_of(pieces: tuple[Piece, ...]) -> int:
    return len(encode_pieces(pieces))


def _seals_of(pieces: tuple[Piece, ...]) -> bytes:
    lines = encode_pieces(pieces).split(b"\n")
    last = lines.pop()
    hash_line = hashlib.blake2b
    seals = [hash_line(line, digest_size=_SEAL_SIZE).digest() for line in lines]
    if last:
        seals.append(hash_line(last, digest_size=_SEAL_SIZE, salt=b"unended").digest())
    return b"".join(seals)


def _paged(text: str) -> Paged[Piece]:
    return Paged(Page((Piece(part),)) for part in _cut(text))


def _cut(text: str) -> Iterator[str]:
    lines = text.split("\n")
    for start in range(0, len(lines), LINES_IN_PIECE):
        part = "\n".join(lines[start : start + LINES_IN_PIECE])
        if start + LINES_IN_PIECE < len(lines):
            yield part + "\n"
        elif part:
            yield part
