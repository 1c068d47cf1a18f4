"""JSONPath in the syntax of Kubernetes, compiled once and applied often.

Plain paths (names, indexes, wildcards), and names after `..`, become a closure;
everything else, such as a filter, is handed to the RFC 9535 implementation.
Both accept the same spellings: `metadata.name`, `.metadata.name`,
`$.metadata.name`, `{.metadata.name}`, names in brackets
(`labels['kubernetes.io/service-name']`) and dots escaped as kubectl wants them
(`labels.kubernetes\\.io/service-name`).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final, TypeAlias

import jsonpath_rfc9535

_NAME: Final = re.compile(r"(?:[\w\-/]|\\.)+")
_INDEX: Final = re.compile(r"-?(?:0|[1-9][0-9]*)")
_UNESCAPE: Final = re.compile(r"\\(.)")


class JSONPathError(ValueError):
    """The expression cannot be used; trying again helps only with another expression."""

    def __init__(self, expression: str, message: str, *, position: int = 0, hint: str = "") -> None:
        self.expression = expression
        self.message = message
        self.position = position
        """0-based offset into the expression."""
        self.hint = hint
        detail = f" ({hint})" if hint else ""
        super().__init__(f"JSONPath {expression!r}, column {position + 1}: {message}{detail}")


class Wildcard(Enum):
    """The step that selects every value of an object or a list."""

    ALL = "*"


_MOST_LEVELS: Final = 100
"""Levels that a descending path looks into, as in the library for RFC 9535."""

Step: TypeAlias = str | int | Wildcard
Find: TypeAlias = Callable[[Any], list[Any]]


class Path:
    """A compiled expression."""

    __slots__ = ("_find", "expression", "names", "steps")

    def __init__(self, expression: str, steps: tuple[Step, ...] | None, find: Find) -> None:
        self.expression = expression
        self.steps = steps
        """The steps of a plain path; None for one with filters, slices, unions or descent."""
        names = tuple(step for step in steps or () if isinstance(step, str))
        self.names = names if len(names) == len(steps or ()) else ()
        """The steps of a path that has nothing but names; otherwise empty."""
        self._find = find

    def find(self, obj: Any) -> list[Any]:
        """Return all values that the path selects in *obj*, in document order; an empty result is not an error.

        An object that is nested too deeply for a descending path (`..`)
        yields no value.
        """
        return self._find(obj)

    def first(self, obj: Any) -> Any:
        """Return the first value that `find` returns and that is not null; None without one."""
        value = obj
        # Nearly all paths have names only, and lead through plain dictionaries.
        for name in self.names:
            if type(value) is not dict:
                break
            value = value.get(name)
            if value is None:
                return None
        else:
            if self.names:
                return value
        return next((found for found in self._find(obj) if found is not None), None)

    @property
    def is_plain(self) -> bool:
        """Whether the path has only names, indexes and wildcards."""
        return self.steps is not None

    def __str__(self) -> str:
        return self.expression

    def __repr__(self) -> str:
        return f"Path({self.expression!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Path) and self.expression == other.expression

    def __hash__(self) -> int:
        return hash(self.expression)


@lru_cache(maxsize=1024)
def compile_path(expression: str) -> Path:
    """Compile *expression*, or raise `JSONPathError`."""
    segments = list(_segments(expression))
    steps = tuple(segment.step for segment in segments if segment.step is not None)
    if len(steps) == len(segments):
        return Path(expression, steps, lambda obj: _find_many(obj, steps))
    if all(segment.step is not None or segment.descendant is not None for segment in segments):
        return Path(expression, None, _descending_find(segments))
    return Path(expression, None, _rfc_find(expression, segments))


def remove_path(obj: Any, path: Path) -> Any:
    """Return *obj* without what *path* selects.

    *obj* itself is never changed: what lies on the path is copied, everything
    else is shared, and *obj* is returned as it is where there is nothing to
    remove. Raises `JSONPathError` unless the path is plain and has a step.
    """
    if not path.steps:
        raise JSONPathError(
            path.expression,
            "cannot be removed",
            hint="use a path of names, indexes and wildcards, such as metadata.managedFields",
        )
    value = obj
    for step in path.steps:
        # Most objects have nothing to remove, and most paths have names only.
        if type(value) is not dict or type(step) is not str:
            return _without(obj, path.steps, 0)
        if step not in value:
            return obj
        value = value[step]
    return _without(obj, path.steps, 0)


class _Segment:
    __slots__ = ("descendant", "origin", "step", "text")

    def __init__(self, origin: int, text: str, step: Step | None = None, descendant: str | None = None) -> None:
        self.origin = origin
        self.text = text
        """In the syntax of RFC 9535."""
        self.step = step
        """None unless the segment is plain."""
        self.descendant = descendant
        """The name after `..`; None for other segments."""


def _segments(expression: str) -> Iterator[_Segment]:
    start, end = _bounds(expression)
    position = start
    if expression.startswith("$", start, end):
        position += 1
    elif expression[start:end] and expression[start] not in ".[":
        segment, position = _dotted(expression, position, position, end, "")
        yield segment
    while position < end:
        if expression[position] == "[":
            close = _closing_bracket(expression, position, end)
            yield _bracketed(expression, position, close, position, "")
            position = close + 1
            continue
        if expression[position] != ".":
            raise JSONPathError(
                expression,
                f"unexpected {expression[position]!r}",
                position=position,
                hint="separate names with dots; write other characters in brackets, as in ['a b']",
            )
        dots = 2 if expression.startswith("..", position, end) else 1
        after = position + dots
        descent = ".." if dots == 2 else ""
        if expression.startswith("[", after, end) and descent:
            close = _closing_bracket(expression, after, end)
            yield _bracketed(expression, after, close, position, descent)
            position = close + 1
            continue
        segment, position = _dotted(expression, position, after, end, descent)
        yield segment


def _bounds(expression: str) -> tuple[int, int]:
    """Return where the path itself begins and ends: without blanks and braces around it."""
    start, end = 0, len(expression)
    while start < end and expression[start].isspace():
        start += 1
    while end > start and expression[end - 1].isspace():
        end -= 1
    if expression.startswith("{", start, end):
        if not expression.endswith("}", start, end):
            raise JSONPathError(expression, "'{' is not closed", position=start, hint="write {.metadata.name}")
        start, end = start + 1, end - 1
    if start == end:
        raise JSONPathError(expression, "is empty", position=start, hint="write a path such as metadata.name")
    return start, end


def _dotted(expression: str, origin: int, position: int, end: int, descent: str) -> tuple[_Segment, int]:
    """Read the name or wildcard at *position*; return it and where it ends."""
    if expression.startswith("*", position, end):
        return _Segment(origin, f"{descent}[*]", None if descent else Wildcard.ALL), position + 1
    match = _NAME.match(expression, position, end)
    if not match:
        found = repr(expression[position]) if position < end else "the end"
        raise JSONPathError(
            expression, f"a name is missing before {found}", position=position, hint="write a name or * after the dot"
        )
    name = _UNESCAPE.sub(r"\1", match.group())
    step, descendant = (None, name) if descent else (name, None)
    return _Segment(origin, f"{descent}[{_quoted(name)}]", step, descendant), match.end()


def _bracketed(expression: str, position: int, close: int, origin: int, descent: str) -> _Segment:
    inner = expression[position + 1 : close].strip()
    text = f"{descent}{expression[position : close + 1]}"
    if descent:
        return _Segment(origin, text)
    if inner == "*":
        return _Segment(origin, "[*]", Wildcard.ALL)
    if _INDEX.fullmatch(inner) and inner != "-0":
        return _Segment(origin, text, int(inner))
    name = _string_literal(inner)
    if name is not None:
        return _Segment(origin, f"[{_quoted(name)}]", name)
    return _Segment(origin, text)


def _string_literal(text: str) -> str | None:
    if len(text) < 2 or text[0] not in "'\"" or text[-1] != text[0]:
        return None
    body = text[1:-1]
    # Anything but a simple escape is left to the RFC's own parser.
    if re.search(r"(?<!\\)(?:\\\\)*" + text[0], body) or re.search(r"\\[^'\"\\/]", body) or body.endswith("\\"):
        return None
    return _UNESCAPE.sub(r"\1", body)


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _closing_bracket(expression: str, position: int, end: int) -> int:
    depth, quote, offset = 0, "", position
    while offset < end:
        char = expression[offset]
        if quote:
            if char == "\\":
                offset += 1
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
            if not depth:
                return offset
        offset += 1
    raise JSONPathError(expression, "'[' is not closed", position=position, hint="add the missing ]")


def _find_many(obj: Any, steps: tuple[Step, ...]) -> list[Any]:
    values = [obj]
    for step in steps:
        found: list[Any] = []
        for value in values:
            if type(value) is dict or isinstance(value, Mapping):
                if step is Wildcard.ALL:
                    found.extend(value.values())
                elif step in value:
                    found.append(value[step])
            elif type(value) is list:
                if step is Wildcard.ALL:
                    found.extend(value)
                elif type(step) is int and -len(value) <= step < len(value):
                    found.append(value[step])
        values = found
    return values


class _TooDeepError(Exception):
    """An object is nested too deeply for a descending path."""


def _descending_find(segments: list[_Segment]) -> Find:
    """Return the function for a path of plain steps and names after `..`; the RFC's library takes ten times as long."""

    def find(obj: Any) -> list[Any]:
        values = [obj]
        try:
            for segment in segments:
                if segment.descendant is None:
                    assert segment.step is not None
                    values = [inner for value in values for inner in _find_many(value, (segment.step,))]
                else:
                    found: list[Any] = []
                    for value in values:
                        _descend(value, segment.descendant, found, 1)
                    values = found
        except _TooDeepError:
            return []
        return values

    return find


def _descend(value: Any, name: str, found: list[Any], depth: int) -> None:
    """Add the values of *name* in *value* and everything in it to *found*, outer ones first."""
    is_mapping = type(value) is dict or isinstance(value, Mapping)
    if not is_mapping and type(value) is not list:
        return
    if depth > _MOST_LEVELS:
        raise _TooDeepError
    if is_mapping and name in value:
        found.append(value[name])
    for item in value.values() if is_mapping else value:
        # Most values are scalars.
        if type(item) is not str and type(item) is not int:
            _descend(item, name, found, depth + 1)


def _rfc_find(expression: str, segments: list[_Segment]) -> Find:
    query = "$" + "".join(segment.text for segment in segments)
    try:
        compiled = jsonpath_rfc9535.compile(query)
    except (jsonpath_rfc9535.JSONPathRecursionError, RecursionError) as error:
        raise JSONPathError(expression, "is nested too deeply") from error
    except jsonpath_rfc9535.JSONPathError as error:
        message = Exception.__str__(error)
        token: Any = error.token
        # A tuple (kind, start, end) since version 2 of the library, which requires Python 3.12.
        index = token[1] if isinstance(token, tuple) else token.index if token else 0
        position = _origin(segments, index)
        key = re.search(r"\[\s*([A-Za-z_][\w./-]*)\s*\]", expression)
        hint = f"write ['{key[1]}']" if key else "filters are written as in [?@.type == 'Ready']"
        raise JSONPathError(expression, message, position=position, hint=hint) from error

    def find(obj: Any) -> list[Any]:
        try:
            return [node.value for node in compiled.finditer(_plain(obj))]
        except (jsonpath_rfc9535.JSONPathRecursionError, RecursionError):
            return []

    return find


def _plain(obj: Any) -> Any:
    """Return *obj* with mappings of other kinds as dictionaries; looks into no dictionary, which holds plain data."""
    if isinstance(obj, list):
        return [_plain(item) for item in obj]
    if isinstance(obj, Mapping) and type(obj) is not dict:
        return {key: _plain(value) for key, value in obj.items()}
    return obj


def _origin(segments: list[_Segment], index: int) -> int:
    """Return where in the author's text the character *index* of the RFC's text comes from."""
    offset = 1
    for segment in segments:
        if index < offset + len(segment.text):
            # Only a segment without a plain step stands there as its author wrote it.
            return segment.origin + (index - offset if segment.step is None else 0)
        offset += len(segment.text)
    return segments[-1].origin if segments else 0


def _without(obj: Any, steps: tuple[Step, ...], depth: int) -> Any:
    step, is_last = steps[depth], depth == len(steps) - 1
    if type(obj) is dict:
        keys: list[Any] = list(obj) if step is Wildcard.ALL else [step] if step in obj else []
        copy: Any = obj
    elif type(obj) is list:
        keys = list(range(len(obj))) if step is Wildcard.ALL else []
        if type(step) is int and -len(obj) <= step < len(obj):
            keys = [step]
        copy = obj
    else:
        return obj
    # Backwards, so that the remaining indexes of a list stay valid.
    for key in reversed(keys):
        kept = None if is_last else _without(obj[key], steps, depth + 1)
        if not is_last and kept is obj[key]:
            continue
        if copy is obj:
            copy = obj.copy()
        if is_last:
            del copy[key]
        else:
            copy[key] = kept
    return copy
