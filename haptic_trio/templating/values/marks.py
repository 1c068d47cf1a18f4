"""Invisible marks around the text of a fragment, which keep its lines traceable.

Marks are Unicode noncharacters: they survive macros, set blocks, `indent`
and `trim`, data cannot contain them, and the result has none.
"""

import re
from collections.abc import Mapping
from typing import Final

from haptic_trio.chunked import Paged, Piece
from haptic_trio.templating.values.subjects import Origin, RenderedText
from haptic_trio.templating.values.text import SENTINELS, Emitted

_OPENED: Final = "\ufdd0"
_CLOSED: Final = "\ufdd1"
REGION: Final = "\ufdd2"
"""Placeholder for text that is inserted later."""
_DIGITS: Final = "".join(chr(0xFDE0 + digit) for digit in range(16))
_MARK: Final = re.compile(f"([{_DIGITS}]+){_OPENED}|{_CLOSED}")
_ANY: Final = re.compile(f"[{SENTINELS}]")
_INTO_MARK: Final = str.maketrans("0123456789abcdef", _DIGITS)
_FROM_MARK: Final = str.maketrans(_DIGITS, "0123456789abcdef")
_LEADING: Final = re.compile(f"[\\s{SENTINELS}]*")
_BLANK: Final = re.compile(f"[\\s{SENTINELS}]").match


def mark(text: str, index: int) -> Emitted:
    """Return *text* marked as made by the origin at *index*."""
    return Emitted(f"{index:x}".translate(_INTO_MARK) + _OPENED + text + _CLOSED)


def is_blank(line: str) -> bool:
    """Whether *line* holds nothing but blanks and marks."""
    match = _LEADING.match(line)
    return match is not None and match.end() == len(line)


def trim(text: str) -> str:
    """Strip blanks at both ends, across marks, which stay."""
    leading = _LEADING.match(text)
    start = leading.end() if leading else 0
    end = len(text)
    # A search for blanks at the end would try at each blank before it.
    while end > start and _BLANK(text, end - 1):
        end -= 1
    return _only_marks(text[:start]) + text[start:end] + _only_marks(text[end:])


def strip_marks(text: str) -> str:
    """Return *text* without marks."""
    # Nearly all texts are ASCII, which is known without a look at them.
    return str.__str__(text) if text.isascii() else _ANY.sub("", text)


def split_marks(text: str, origins: Mapping[int, Origin], outermost: Origin | None = None) -> list[Piece]:
    """Return the pieces of *text* between its marks, each with the innermost origin; empty ones are left out.

    What is in no mark has the origin *outermost*.
    """
    if text.isascii() or not _ANY.search(text):
        return [Piece(str.__str__(text), outermost)] if text else []
    pieces: list[Piece] = []
    stack = [outermost]
    position = 0
    for match in _MARK.finditer(text):
        if match.start() > position:
            pieces.append(Piece(text[position : match.start()], stack[-1]))
        position = match.end()
        if match.group(1):
            stack.append(origins[int(match.group(1).translate(_FROM_MARK), 16)])
        elif len(stack) > 1:
            stack.pop()
    if position < len(text):
        pieces.append(Piece(text[position:], stack[-1]))
    return pieces


def read_marks(text: str, origins: Mapping[int, Origin]) -> RenderedText:
    """Return *text* without marks, and what they stood for."""
    return RenderedText(Paged.of(split_marks(text, origins)))


def _only_marks(text: str) -> str:
    return "".join(_ANY.findall(text))
