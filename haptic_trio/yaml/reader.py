"""YAML documents as plain data or as nodes with line numbers, with limits on depth and expansion.

Both are built from the events of libyaml's parser with an explicit stack:
PyYAML's composer recurses in C, and deep nesting would overflow the stack and
end the process. Aliases can make a small text expand without bound or contain
itself; their expansion is counted, and an anchor is known only after its end.

- `read_document` makes plain data in one pass, for manifests; what most of them are made of is read by `plain` in
  half of the time. Files of
  manifests are large and read often, and data from nodes would take several
  times as long. Scalars have the meaning that they have to `kubectl`, which
  turns YAML 1.1 into JSON (see `scalars.resolve_plain`). Duplicate keys are
  rejected, and tags of other types.
- `read_nodes` makes PyYAML's nodes, for configurations: its caller checks
  tags, keys and values, and reports each problem by line and path.
"""

import re
from sys import intern
from typing import Any, ClassVar, Final

import msgspec
import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.resolver import Resolver

from haptic_trio.errors import HapticError
from haptic_trio.yaml.plain import read_plain
from haptic_trio.yaml.scalars import TAG, resolve_plain

MAX_DEPTH: Final = 100
MAX_EXPANDED: Final = 100_000
"""Maximum number of nodes that a document may gain through aliases."""
MAX_NODES: Final = 200_000
"""Maximum number of nodes that `read_nodes` makes, including those gained through aliases."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class PythonParser(yaml.SafeLoader):
    """PyYAML's parser in Python. Like the one in C, it rejects escapes of surrogates, which no text may have."""

    def get_event(self) -> Any:
        """Return the next event."""
        event: Any = super().get_event()  # type: ignore[no-untyped-call]
        if type(event) is yaml.ScalarEvent and _SURROGATE.search(event.value):
            mark: Any = event.start_mark
            raise yaml.MarkedYAMLError(problem="found invalid Unicode character escape code", problem_mark=mark)
        return event


# In C where PyYAML was built with it, many times as fast. Only the parser's events are used; nothing is constructed.
_Parser: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else PythonParser

_LINE_BREAK: Final = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_CHARACTER_HINT: Final = "remove the character, or write it as an escape in double quotes"


class DocumentError(HapticError):
    """The document cannot be read; trying again helps only after it has changed."""

    def __init__(self, message: str, *, detail: str = "", line: int = 0, column: int = 0, hint: str = "") -> None:
        self.message = message
        self.detail = detail
        """The part of the document's text that is at fault; confidential if the document is a Secret."""
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

    __slots__ = ("count", "event", "height", "key", "mapping", "merges", "value")

    def __init__(self, event: Any, count: int, mapping: dict[str, Any] | None) -> None:
        self.event = event  # its start
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
    """Return the data of the only document in *text*; raises `DocumentError`."""
    plain = read_plain(text)
    if plain is None:
        return read_document_by_events(text)
    document = Document()
    document.data, document.line, document.item_lines = plain
    return document


def read_document_by_events(text: str) -> Document:
    """Return what `read_document` returns, by the complete parser alone."""
    return _build(_Builder, text)


def read_nodes(text: str) -> Node | None:
    """Return the root node of the only document in *text*, None if it is empty; raises `DocumentError`.

    Nodes that an alias repeats are shared. Tags are resolved by YAML 1.1, and
    merge keys (`<<`) stay what they are.
    """
    root: Node | None = _build(_NodeBuilder, text).data
    return root


def _build(builder: type["_Builder"], text: str) -> Document:
    try:
        return builder(_Parser(text)).build()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 0)
        lines = lines_of(text)
        if line > len(lines):
            # The parser adds a line where the last one is not ended.
            line, column = len(lines), len(lines[-1]) + 1
        message = error.problem or error.context or "cannot be read"
        raise DocumentError(message, line=line, column=column, hint=_syntax_hint(message, lines[line - 1])) from error
    except yaml.reader.ReaderError as error:
        # The parser in C counts bytes.
        before = text.encode(errors="replace")[: error.position].decode(errors="ignore")
        character = f" (U+{error.character:04X})" if isinstance(error.character, int) else ""
        raise DocumentError(
            f"{error.reason}{character}",
            line=before.count("\n") + 1,
            column=len(before) - before.rfind("\n"),
            hint=_CHARACTER_HINT,
        ) from error
    except UnicodeEncodeError as error:
        # A surrogate, which Python's strings may hold and the parser in C does not take.
        before = text[: error.start]
        raise DocumentError(
            f"character U+{ord(text[error.start]):04X} is not allowed",
            line=before.count("\n") + 1,
            column=len(before) - before.rfind("\n"),
            hint=_CHARACTER_HINT,
        ) from error


class _Builder:
    """Builds plain data."""

    second_document_hint: ClassVar = "separate documents with a line ---"

    def __init__(self, parser: Any) -> None:
        self._parser = parser
        self._document = Document()
        self._stack: list[_Frame] = []
        self._anchors: dict[str, _Anchored] = {}
        self._count = 0
        self._expanded = 0

    def build(self) -> Document:
        next_event, read_scalar = self._parser.get_event, self._read_scalar
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
                value = read_scalar(event)
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
                raise _error("a second document begins", event, self.second_document_hint)

    def _read_scalar(self, event: Any) -> Any:
        return resolve_plain(event.value) if event.implicit[0] else _tagged(event)

    def _open(self, event: Any, mapping: dict[str, Any] | None) -> None:
        if event.tag not in {None, "!", f"{TAG}map", f"{TAG}seq"}:
            raise _error("tag is not allowed", event, "remove it: manifests hold plain data", _short(event.tag))
        stack = self._stack
        if stack:
            parent = stack[-1]
            if parent.mapping is not None and parent.key is None:
                raise _error("a list or mapping is used as a key", event, "quote the key")
            if len(stack) == 2:
                self._note_item(event)
            if len(stack) >= MAX_DEPTH:
                raise _too_deep(event)
        else:
            self._document.line = event.start_mark.line + 1
        stack.append(_Frame(event, self._count, mapping))
        self._count += 1

    def _close(self, event: Any) -> None:
        frame = self._stack.pop()
        if frame.merges:
            assert frame.mapping is not None
            for merged in frame.merges:
                for key, value in merged.items():
                    frame.mapping.setdefault(key, value)
        if anchor := frame.event.anchor:
            self._anchors[anchor] = _Anchored(frame.value, self._count - frame.count, frame.height)
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
            key = value if type(value) is str else _key_text(value)
        else:
            key = _key_text(_tagged(event))
        if key in frame.mapping:
            raise _error("key is there twice", event, "remove one of them: only one would count", key)
        if event.anchor:
            self._anchors[event.anchor] = _Anchored(key, 1, 0)
        frame.key = intern(key)


class _NodeBuilder(_Builder):
    """Builds PyYAML's nodes; the children of a mapping are gathered as one list of keys and values in turn."""

    second_document_hint: ClassVar = "remove the `---` between the documents"
    _resolver: Final = Resolver()

    def _read_scalar(self, event: Any) -> ScalarNode:
        tag = self._tag(ScalarNode, event, event.value)
        return ScalarNode(tag, event.value, event.start_mark, event.end_mark, event.style)

    def _open(self, event: Any, mapping: dict[str, Any] | None) -> None:  # noqa: ARG002 - nodes hold no data
        if len(self._stack) >= MAX_DEPTH:
            raise _too_deep(event)
        self._stack.append(_Frame(event, self._count, None))
        self._count += 1

    def _close(self, event: Any) -> None:
        frame = self._stack[-1]
        start: Any = frame.event
        children = frame.value
        if self._count > MAX_NODES:
            raise _error(f"more than {MAX_NODES} values", start, "write less, or fewer aliases")
        is_mapping = type(start) is yaml.MappingStartEvent
        if is_mapping:
            tag, pairs = self._tag(MappingNode, start), list(zip(children[::2], children[1::2], strict=True))
            frame.value = MappingNode(tag, pairs, start.start_mark, event.end_mark, start.flow_style)
        else:
            tag = self._tag(SequenceNode, start)
            frame.value = SequenceNode(tag, children, start.start_mark, event.end_mark, start.flow_style)
        super()._close(event)

    def _tag(self, kind: type[Node], event: Any, value: str | None = None) -> str:
        if event.tag is None or event.tag == "!":
            return str(self._resolver.resolve(kind, value, event.implicit))  # type: ignore[no-untyped-call]
        return str(event.tag)


class _MergeKey(str):
    __slots__ = ()


# Compared by identity: a quoted "<<" is an ordinary key.
_MERGE: Final = _MergeKey("<<")


def _key_text(value: str | float | bool | None) -> str:
    return value if type(value) is str else msgspec.json.encode(value).decode()


def _tagged(event: Any) -> str | int | float | bool | None:
    """Return what a scalar that is quoted or has a tag means."""
    text: str = event.value
    if event.implicit[1] or event.tag in {None, "!", f"{TAG}str"}:
        return text
    expected = {f"{TAG}int": int, f"{TAG}float": float, f"{TAG}bool": bool, f"{TAG}null": type(None)}.get(event.tag)
    if expected is None:
        raise _error("tag is not allowed", event, "remove it: manifests hold plain data", _short(event.tag))
    value = resolve_plain(text)
    if type(value) is not expected and not (expected is float and type(value) is int):
        raise _error(f"the value is not a valid {_short(event.tag)}", event, "remove the tag or correct the value")
    return value


def _short(tag: str) -> str:
    return f"!!{tag.removeprefix(TAG)}" if tag.startswith(TAG) else tag


def _error(message: str, event: Any, hint: str, detail: str = "") -> DocumentError:
    mark = event.start_mark
    return DocumentError(message, detail=detail, line=mark.line + 1, column=mark.column + 1, hint=hint)


def _too_deep(event: Any) -> DocumentError:
    return _error(f"nested deeper than {MAX_DEPTH} levels", event, "no manifest or configuration needs that")


def lines_of(text: str) -> list[str]:
    """Return the lines of *text*, counted as YAML does: its line breaks are more than LF."""
    return _LINE_BREAK.split(text)


def _syntax_hint(message: str, line: str) -> str:
    if re.match(r" *\t", line):
        return "indent with spaces, not with tabs"
    for part, hint in (
        ("mapping values are not allowed", "put a value that contains ': ' in quotes, or check the indentation"),
        ("expected <block end>", "check the indentation of this line and of the lines above"),
        ("could not find expected ':'", "a key needs ': ' after it; a text of several lines needs | or quotes"),
        ("unexpected end of stream", "a quote or bracket is not closed"),
        (
            "Unicode character escape",
            "write the character itself: half of a pair of escapes names none",
        ),
        ("cannot start any token", "quote a value that begins with this character"),
    ):
        if part in message:
            return hint
    return "check quotes, brackets and indentation of this line and of the line above"
