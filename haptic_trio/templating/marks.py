"""Invisible marks round the text of a fragment, so that its lines can be told after all templates have run.

A mark is made of Unicode noncharacters: it survives macros, set blocks,
`indent` and `trim`, data cannot hold it, and it is gone from the result.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from haptic_trio.templating.emit import SENTINELS, Emitted
from haptic_trio.templating.subjects import LineRange, Origin, RenderedText

_OPENED: Final = "\ufdd0"
_CLOSED: Final = "\ufdd1"
_DIGITS: Final = "".join(chr(0xFDE0 + digit) for digit in range(16))
_MARK: Final = re.compile(f"([{_DIGITS}]+){_OPENED}|{_CLOSED}")
_ANY: Final = re.compile(f"[{SENTINELS}]")
_INTO_MARK: Final = str.maketrans("0123456789abcdef", _DIGITS)
_FROM_MARK: Final = str.maketrans(_DIGITS, "0123456789abcdef")
_LEADING: Final = re.compile(f"[\\s{SENTINELS}]*")
_TRAILING: Final = re.compile(f"[\\s{SENTINELS}]*\\Z")


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
    trailing = _TRAILING.search(text, start)
    end = trailing.start() if trailing else len(text)
    return _only_marks(text[:start]) + text[start:end] + _only_marks(text[end:])


def strip_marks(text: str) -> str:
    """Return *text* without marks."""
    return _ANY.sub("", text)


def read_marks(text: str, origins: Sequence[Origin]) -> RenderedText:
    """Return *text* without marks, and the line ranges that they stood for.

    Where fragments share a line, the innermost has it, and of neighbours the first.
    """
    if not _ANY.search(text):
        return RenderedText(text)
    parts: list[str] = []
    ranges: list[LineRange] = []
    line, depth_of_last = 1, 0
    for part, stack in _pieces(text):
        parts.append(part)
        breaks = part.count("\n")
        if stack and part:
            first, last = line, line + breaks - part.endswith("\n")
            if ranges and first <= ranges[-1].last:
                if len(stack) > depth_of_last:
                    _cut(ranges, first)
                else:
                    first = ranges[-1].last + 1
            if first <= last:
                _add(ranges, LineRange(first, last, origins[stack[-1]]))
                depth_of_last = len(stack)
        line += breaks
    return RenderedText("".join(parts), tuple(ranges))


def _pieces(text: str) -> Iterator[tuple[str, list[int]]]:
    stack: list[int] = []
    position = 0
    for match in _MARK.finditer(text):
        yield text[position : match.start()], stack
        position = match.end()
        if match.group(1):
            stack.append(int(match.group(1).translate(_FROM_MARK), 16))
        elif stack:
            stack.pop()
    yield text[position:], stack


def _cut(ranges: list[LineRange], before: int) -> None:
    last = ranges.pop()
    if last.first < before:
        ranges.append(LineRange(last.first, before - 1, last.origin))


def _add(ranges: list[LineRange], item: LineRange) -> None:
    if ranges and ranges[-1].origin is item.origin and ranges[-1].last + 1 == item.first:
        ranges[-1] = LineRange(ranges[-1].first, item.last, item.origin)
    else:
        ranges.append(item)


def _only_marks(text: str) -> str:
    return "".join(_ANY.findall(text))
