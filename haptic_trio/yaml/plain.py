"""Fast reader for the YAML that most manifests are made of: block mappings and lists with short scalars.

It reads what `yaml.dump` and `kubectl` write for most objects in half of the
time that events of a parser take, and nothing else: at the first line that is
not certain to have one meaning it gives up, and the complete parser reads the
document.
"""

import re
from functools import lru_cache
from sys import intern
from typing import Any, Final, NamedTuple

from haptic_trio.yaml.scalars import resolve_plain

# A plain scalar may have any of these characters behind its first one, and a blank or colon before any of them.
_INNER: Final = r"[A-Za-z0-9_./=+()|$*?^~@,;&<>\\%-]"
_LINE: Final = re.compile(
    r"(?P<indent> *)(?P<dash>- )?"
    r"(?:(?P<key>[A-Za-z_][A-Za-z0-9_./-]{0,200}):(?: +|$))?"
    rf"(?:(?P<plain>[A-Za-z0-9_/.]{_INNER}*(?:(?: +|:){_INNER}+)*)"
    r"|'(?P<single>[ -&(-~]*)'"
    r'|"(?P<double>[ !#-\[\]-~]*)"'
    r"|(?P<empty>\{\}|\[\]))? *"
).fullmatch
_NO_CONTENT: Final = re.compile(r" *(?:#[ -~]*)?").fullmatch
_TRUTHS: Final = frozenset(
    word
    for text in ("y", "n", "yes", "no", "true", "false", "on", "off", "null")
    for word in (text, text.title(), text.upper())
)
"""Keys that are no texts."""
_MAX_DEPTH: Final = 50
_MOST_KNOWN: Final = 1_024
_LONGEST_KNOWN: Final = 64
"""Longer lines are rarely repeated, and may be the data of a Secret."""


class Plain(NamedTuple):
    """The data of a document; see `reader.Document`."""

    data: Any
    line: int
    item_lines: dict[str, list[int]]


def read_plain(text: str) -> Plain | None:
    """Return the data of the only document in *text*; None if only the complete parser can read it, or reject it."""
    reader = _Reader()
    for number, line in enumerate(text.split("\n"), 1):
        parts = _known_parts(line) if len(line) <= _LONGEST_KNOWN else _parts(line)
        if parts is None:
            if not _NO_CONTENT(line):
                return None
        elif not reader.take(number, *parts):
            return None
    return Plain(reader.root, reader.first_line, reader.item_lines) if reader.root is not None else None


def _parts(line: str) -> tuple[int, bool, str | None, bool, Any, str | None] | None:
    """Return the parts of *line*, see `_Reader.take`; None if it may be wrong, or have another meaning."""
    match = _LINE(line)
    if match is None:
        return None
    spaces, dash, key, plain, single, double, empty = match.groups()
    if key in _TRUTHS:
        return None
    value = resolve_plain(plain) if plain is not None else single if single is not None else double
    has_value = plain is not None or value is not None or empty is not None
    return len(spaces), dash is not None, key and intern(key), has_value, value, empty


# Objects of one kind have most of their lines in common.
_known_parts: Final = lru_cache(maxsize=_MOST_KNOWN)(_parts)


class _Reader:
    """The containers of a document that are not complete, from the outermost to the innermost."""

    def __init__(self) -> None:
        self.root: Any = None
        self.first_line = 0
        self.item_lines: dict[str, list[int]] = {}
        self._stack: list[tuple[int, Any]] = []
        """With the column in which each begins."""
        self._key = self._root_key = ""
        self._is_open = False
        """Whether the value of the key may follow in the next line."""

    def take(
        self,
        number: int,
        column: int,
        is_item: bool,
        key: str | None,
        has_value: bool,
        value: Any,
        empty: str | None,
    ) -> bool:
        """Take in a line; return False if it may be wrong, or have another meaning.

        It begins in *column*, with a dash if it is an item of a list, and has *value*, or an *empty* container.
        """
        if empty is not None:
            value = {} if empty == "{}" else []
        if key is None and not is_item:
            # A blank line, or one more line of a scalar.
            return not has_value
        container = self._container(number, column, list if is_item else dict)
        if container is None:
            return False
        if is_item:
            if len(self._stack) == 2 and type(self.root) is dict:
                self.item_lines.setdefault(self._root_key, []).append(number)
            if key is None:
                container.append(value)
                return has_value
            item: dict[str, Any] = {}
            container.append(item)
            container = item
            self._stack.append((column + 2, item))
        if key in container:
            return False
        assert key is not None
        self._key = key
        if container is self.root:
            self._root_key = self._key
        self._is_open = not has_value
        container[self._key] = value
        return True

    def _container(self, number: int, column: int, kind: type) -> Any:
        """Return the container of a line that begins in *column*, an item of a list or a key; None if it has none."""
        stack, is_open = self._stack, self._is_open
        self._is_open = False
        if self.root is None:
            self.first_line = number
            self.root = kind()
            stack.append((column, self.root))
            return self.root
        if is_open and (column > stack[-1][0] or (column == stack[-1][0] and kind is list)):
            if len(stack) > _MAX_DEPTH:
                return None
            container = stack[-1][1][self._key] = kind()
            stack.append((column, container))
            return container
        while stack and (stack[-1][0] > column or (stack[-1][0] == column and type(stack[-1][1]) is not kind)):
            stack.pop()
        return stack[-1][1] if stack and stack[-1][0] == column else None
