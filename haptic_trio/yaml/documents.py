"""Documents of a YAML text, without reading what is in them."""

import io
import math
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from haptic_trio.yaml.reader import DocumentError

_MARKER: Final = re.compile(r"(?:---|\.\.\.)(?=\s|$)")
_CONTENT: Final = re.compile(r"^[ \t]*[^\s#%]", re.MULTILINE)


class Chunk(NamedTuple):
    """One document of a text with several."""

    text: str
    start: int
    """Offset in the whole text."""
    line: int
    """1-based line in the whole text on which the chunk begins."""


def split_documents(text: str) -> Iterator[Chunk]:
    """Yield the documents of *text* that have content, see `documents_of`."""
    return documents_of(io.StringIO(text, newline="\n"))


def documents_of(lines: Iterable[str], *, limit: float = math.inf) -> Iterator[Chunk]:
    """Yield the documents of a text in *lines* that have content, each with what follows its marker on the same line.

    A line that begins with --- or ... ends a document wherever it stands,
    says YAML, even within quotes. Only one document is in memory at a time.
    Raises `DocumentError` for one of more than *limit* characters; long lines
    may come in pieces.
    """
    chunk: list[str] = []
    size = start = offset = 0
    first = line = 1
    is_line_start = True
    for text in lines:
        match = _MARKER.match(text) if is_line_start and text.startswith(("---", "...")) else None
        if match:
            yield from _with_content(chunk, start, first)
            start, first = offset + match.end(), line
            chunk, size = [text[match.end() :]], 0
        else:
            chunk.append(text)
        size += len(chunk[-1])
        if size > limit:
            raise DocumentError("the document is too large", line=first)
        offset += len(text)
        is_line_start = text.endswith("\n")
        line += is_line_start
    yield from _with_content(chunk, start, first)


def _with_content(lines: list[str], start: int, line: int) -> Iterator[Chunk]:
    text = "".join(lines)
    if _CONTENT.search(text):
        yield Chunk(text, start, line)
