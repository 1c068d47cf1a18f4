"""YAML document to plain data, with the scalar rules of `kubectl`.

The data is built from parser events with a stack of our own: PyYAML's
composer recurses in C and crashes the process on deep nesting. Scalars mean
what they mean to kubectl, which turns YAML 1.1 into JSON: `yes`, `on` and
`y` are true, `0644` is octal, dates are text; there is no base 60. Tags
that would make other objects are refused, as are duplicate keys.
"""

import math
import re
from sys import intern
from typing import Any, Final

import yaml

from haptic_trio.errors import HapticError
from haptic_trio.k8s.resource import text_of

MAX_DEPTH: Final = 100
MAX_EXPANDED: Final = 100_000
"""How many nodes a document may gain through aliases."""

_TAG: Final = "tag:yaml.org,2002:"
_HINTED: Final = frozenset("+-.0123456789~yYnNtTfFoO")
_DIGITS: Final = frozenset("+-.0123456789")
_CONSTANTS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("~", "null", "Null", "NULL"), None),
}
_INT: Final = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")

# In C where PyYAML was built with it, many times as fast. Only the parser's events are used; nothing is constructed.
_Parser: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


class DocumentError(HapticError):
    """The document cannot be read; trying again helps only after it has changed."""

    def __init__(self, message: str, *, detail: str = "", line: int = 0, column: int = 0, hint: str = "") -> None:
        self.message = message
        self.detail = detail
        """What of the document's own text is at fault; not for everyone's eyes if the document is a Secret."""
        self.line = line
        """1-based, within the document's text."""
        self.column = column
        self.hint = hint
        super().__init__(f"{message}: {detail}" if detail else message)


class Document:
    """The data of one document, and on which lines (1-based) the items of its top-level lists begin."""

    __slots__ = ("data", "item_lines", "line")

    def __init__(self) -> None:
        self.data: Any = None
        self.line = 1
        self.item_lines: dict[str, list[int]] = {}


class _Frame:
    """A mapping or sequence that is not complete yet."""

    __slots__ = ("anchor", "count", "height", "key", "mapping", "merges", "value")

    def __init__(self, anchor: str | None, count: int, mapping: dict[str, Any] | None) -> None:
        self.anchor = anchor
        self.count = count  # nodes of the document before this one
        self.height = 1
        self.mapping = mapping
        self.value: Any = [] if mapping is None else mapping
        self.key: str | None = None
        self.merges: list[Any] | None = None


class _Anchored:
    __slots__ = ("height", "size", "value")

    def __init__(self, value: Any, size: int, height: int) -> None:
        self.value = value
        self.size = size
        self.height = height


def read_document(text: str) -> Document:
    """Return the data of the one document in *text*, or raise `DocumentError`."""
    try:
        return _Builder(_Parser(text)).build()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 0)
        if line > text.count("\n") + 1:
            # The parser adds a line where the last one is not ended.
            line, column = line - 1, len(text) - text.rfind("\n")
        message = error.problem or error.context or "cannot be read"
        raise DocumentError(message, line=line, column=column, hint=_syntax_hint(message, text, line)) from error
    except yaml.reader.ReaderError as error:
        # The parser in C counts bytes.
        before = text.encode(errors="replace")[: error.position].decode(errors="ignore")
        character = f" (U+{error.character:04X})" if isinstance(error.character, int) else ""
        raise DocumentError(
            f"{error.reason}{character}",
            line=before.count("\n") + 1,
            column=len(before) - before.rfind("\n"),
            hint="remove the character, or write it as an escape in double quotes",
        ) from error


class _Builder:
    def __init__(self, parser: Any) -> None:
        self._parser = parser
        self._document = Document()
        self._stack: list[_Frame] = []
        self._anchors: dict[str, _Anchored] = {}
        self._count = 0
        self._expanded = 0

    def build(self) -> Document:
        next_event = self._parser.get_event
        stack = self._stack
        while True:
            event = next_event()
            kind = type(event)
            if kind is yaml.ScalarEvent:
                self._count += 1
                frame = stack[-1] if stack else None
                if frame is not None and frame.mapping is not None and frame.key is None:
                    self._take_key(frame, event)
                    continue
                value = resolve_plain(event.value) if event.implicit[0] else _tagged(event)
                if event.anchor:
                    self._anchors[event.anchor] = _Anchored(value, 1, 0)
                if len(stack) == 2:
                    self._note_item(event)
                self._add(value, 0, event)
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                self._open(event, {} if kind is yaml.MappingStartEvent else None)
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                self._close(event)
            elif kind is yaml.AliasEvent:
                self._expand(event)
            elif kind is yaml.StreamEndEvent:
                return self._document
            elif kind is yaml.DocumentStartEvent and self._count:
                raise _error("a second document begins", event, "separate documents with a line ---")

    def _open(self, event: Any, mapping: dict[str, Any] | None) -> None:
        if event.tag not in {None, "!", f"{_TAG}map", f"{_TAG}seq"}:
            raise _error("tag is not allowed", event, "remove it: manifests hold plain data", _short(event.tag))
        stack = self._stack
        if stack:
            parent = stack[-1]
            if parent.mapping is not None and parent.key is None:
                raise _error("a list or mapping is used as a key", event, "quote the key")
            if len(stack) == 2:
                self._note_item(event)
            if len(stack) >= MAX_DEPTH:
                raise _error(f"nested deeper than {MAX_DEPTH} levels", event, "no resource needs that")
        else:
            self._document.line = event.start_mark.line + 1
        stack.append(_Frame(event.anchor, self._count, mapping))
        self._count += 1

    def _close(self, event: Any) -> None:
        frame = self._stack.pop()
        if frame.merges:
            assert frame.mapping is not None
            for merged in frame.merges:
                for key, value in merged.items():
                    frame.mapping.setdefault(key, value)
        if frame.anchor:
            self._anchors[frame.anchor] = _Anchored(frame.value, self._count - frame.count, frame.height)
        self._add(frame.value, frame.height, event)

    def _expand(self, event: Any) -> None:
        anchored = self._anchors.get(event.anchor)
        if anchored is None:
            raise _error(
                "alias has no anchor before it",
                event,
                "quote a value that begins with *; an anchor cannot hold itself",
                f"*{event.anchor}",
            )
        self._count += anchored.size
        self._expanded += anchored.size
        if self._expanded > MAX_EXPANDED or len(self._stack) + anchored.height > MAX_DEPTH:
            raise _error("aliases expand to too much data", event, "write the data out")
        frame = self._stack[-1] if self._stack else None
        if frame is not None and frame.mapping is not None and frame.key is None:
            raise _error("an alias is used as a key", event, "write the key out")
        if len(self._stack) == 2:
            self._note_item(event)
        # The object is shared: nothing changes it afterwards, and its expanded size is bounded.
        self._add(anchored.value, anchored.height, event)

    def _note_item(self, event: Any) -> None:
        key = self._stack[0].key
        if key is not None and self._stack[1].mapping is None:
            self._document.item_lines.setdefault(key, []).append(event.start_mark.line + 1)

    def _add(self, value: Any, height: int, event: Any) -> None:
        if not self._stack:
            self._document.data = value
            return
        frame = self._stack[-1]
        if height >= frame.height:
            frame.height = height + 1
        if frame.mapping is None:
            frame.value.append(value)
            return
        key, frame.key = frame.key, None
        if key is _MERGE:
            sources = value if isinstance(value, list) else [value]
            if not all(isinstance(source, dict) for source in sources):
                raise _error("<< merges mappings only", event, "give it an alias of a mapping")
            frame.merges = (frame.merges or []) + sources
        else:
            assert key is not None
            frame.mapping[key] = value

    def _take_key(self, frame: _Frame, event: Any) -> None:
        assert frame.mapping is not None
        if event.implicit[0]:
            if event.value == "<<":
                frame.key = _MERGE
                return
            value = resolve_plain(event.value)
            key = value if type(value) is str else text_of(value)
        else:
            key = text_of(_tagged(event))
        if key in frame.mapping:
            raise _error("key is there twice", event, "remove one of them: only one would count", key)
        if event.anchor:
            self._anchors[event.anchor] = _Anchored(key, 1, 0)
        frame.key = intern(key)


class _MergeKey(str):
    __slots__ = ()


# Compared by identity: a quoted "<<" is an ordinary key.
_MERGE: Final = _MergeKey("<<")


def resolve_plain(text: str) -> str | int | float | bool | None:
    """Return what the unquoted scalar *text* means. Infinity and NaN, which JSON lacks, stay text."""
    if not text:
        return None
    if text[0] not in _HINTED:
        return text
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    return _number(text) if text[0] in _DIGITS else text


def _number(text: str) -> str | int | float:
    plain = text.replace("_", "")
    if _INT.fullmatch(plain) and len(plain) <= 70:
        sign, digits = (-1, plain[1:]) if plain[0] == "-" else (1, plain.lstrip("+"))
        prefixed = len(digits) > 1 and digits[0] == "0"
        if prefixed and digits[1] in "01234567":
            digits = f"0o{digits}"
        value = sign * int(digits, 0 if prefixed else 10)
        if -(2**63) <= value < 2**64:
            return value
    if not _FLOAT.fullmatch(plain):
        return text
    number = float(plain)
    if not math.isfinite(number):
        return text
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _tagged(event: Any) -> str | int | float | bool | None:
    """Return what a scalar that is quoted or has a tag means."""
    text: str = event.value
    if event.implicit[1] or event.tag in {None, "!", f"{_TAG}str"}:
        return text
    expected = {f"{_TAG}int": int, f"{_TAG}float": float, f"{_TAG}bool": bool, f"{_TAG}null": type(None)}.get(event.tag)
    if expected is None:
        raise _error("tag is not allowed", event, "remove it: manifests hold plain data", _short(event.tag))
    value = resolve_plain(text)
    if type(value) is not expected and not (expected is float and type(value) is int):
        raise _error(f"the value is no {_short(event.tag)}", event, "remove the tag or mend the value")
    return value


def _short(tag: str) -> str:
    return f"!!{tag.removeprefix(_TAG)}" if tag.startswith(_TAG) else tag


def _error(message: str, event: Any, hint: str, detail: str = "") -> DocumentError:
    mark = event.start_mark
    return DocumentError(message, detail=detail, line=mark.line + 1, column=mark.column + 1, hint=hint)


def _syntax_hint(message: str, text: str, line: int) -> str:
    if re.match(r" *\t", text.split("\n", line)[line - 1]):
        return "indent with spaces: YAML allows no tabs there"
    for part, hint in (
        ("mapping values are not allowed", "quote a value that contains ': ', and check the indentation"),
        ("expected <block end>", "check the indentation of this line and of the lines above"),
        ("could not find expected ':'", "a key needs ': ' after it; a text of several lines needs | or quotes"),
        ("unexpected end of stream", "a quote or bracket is not closed"),
        ("cannot start any token", "quote a value that begins with this character"),
    ):
        if part in message:
            return hint
    return "check quotes, brackets and indentation of this line and of the line above"
