"""Decoder from YAML to configuration structs; reports every problem with its place.

One walker goes over the document and the struct types side by side, so the
structs in `model` are the only schema.
"""

import difflib
from collections.abc import Hashable, Iterable, Mapping
from enum import Enum
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar, cast

import msgspec
from msgspec import inspect
from yaml.error import Mark
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from haptic_trio.config.duration import InvalidDurationError, parse_duration
from haptic_trio.config.model import Config
from haptic_trio.config.yaml.document import (
    MAP_TAG,
    SEQ_TAG,
    Document,
    pairs_of,
    parse_document,
)
from haptic_trio.config.yaml.errors import ConfigInvalidError
from haptic_trio.errors import Problem
from haptic_trio.yaml.paths import item_path, key_path
from haptic_trio.yaml.scalars import UnreadableScalarError, describe_node, read_scalar, shorten, tag_of

T = TypeVar("T")

UNKNOWN_FIELD = "unknown field"

_FAILED: Any = object()
"""Stands for a value that could not be made; its problem has been noted."""


class Place(NamedTuple):
    """A position in a text; line and column are 1-based."""

    line: int
    column: int


class Decoded(msgspec.Struct, Generic[T], frozen=True):
    """A value from a document, and where each part of it stands there."""

    value: T
    source: str
    places: Mapping[str, Place]
    """By path, such as `watchedResources.ingresses.indexBy[0]`."""


def decode_config(text: str, *, source: str) -> Config:
    """Return the configuration that the YAML *text* holds; raises `ConfigInvalidError` with all problems."""
    return decode_text(text, Config, source=source).value


def decode_text(text: str, model: type[T], *, source: str) -> Decoded[T]:
    """Return the struct *model* that the YAML *text* holds; raises `ConfigInvalidError` with all problems."""
    return decode_document(parse_document(text, source=source), model)


def decode_document(document: Document, model: type[T]) -> Decoded[T]:
    """Return the struct *model* that *document* holds; raises `ConfigInvalidError` with all problems."""
    root = document.root
    if root is None or tag_of(root) == "null":
        start = Mark(document.source, 0, 0, 0, None, 0)
        root = MappingNode(MAP_TAG, [], start, start)
    walker = _Walker(document)
    value = walker.decode(root, _shape_of(cast("Hashable", model)), "")
    if walker.problems:
        raise ConfigInvalidError(sorted(walker.problems, key=lambda problem: (problem.line, problem.column)))
    return Decoded(cast("T", value), document.source, walker.places)


@cache
def _shape_of(model: Hashable) -> inspect.Type:
    """Return what *model* consists of; worked out once, since it takes longer than to decode a usual document."""
    return inspect.type_info(model)


def nearest_hint(name: str, valid: Iterable[str]) -> str:
    """Return a hint that names the valid name most like *name*, or all of them if none is close."""
    folded: dict[str, str] = {}
    for candidate in valid:
        folded.setdefault(candidate.casefold(), candidate)
    close = difflib.get_close_matches(name.casefold().replace("_", ""), folded, n=1, cutoff=0.6)
    if close:
        return f"did you mean `{folded[close[0]]}`?"
    return f"valid are: {', '.join(sorted(folded.values()))}" if folded else ""


class _Walker:
    def __init__(self, document: Document) -> None:
        self._document = document
        self.problems: list[Problem] = []
        self.places: dict[str, Place] = {}

    def decode(self, node: Node, kind: inspect.Type, path: str) -> Any:
        """Return the value of *kind* that *node* stands for, or `_FAILED`."""
        mark = node.start_mark
        self.places.setdefault(path, Place(mark.line + 1, mark.column + 1))
        match kind:
            case inspect.StructType():
                return self._struct(node, kind, path)
            case inspect.DictType():
                return self._dict(node, kind, path)
            case inspect.ListType() | inspect.VarTupleType():
                return self._list(node, kind, path)
            case inspect.UnionType():
                return self._union(node, kind, path)
            case inspect.AnyType():
                return self._anything(node, path)
            case _:
                return self._scalar(node, kind, path)

    def _fail(self, node: Node, path: str, message: str, hint: str = "") -> Any:
        self.problems.append(self._document.problem(node, path, message, hint))
        return _FAILED

    def _expected(self, node: Node, path: str, expected: str, hint: str = "") -> Any:
        return self._fail(node, path, f"expected {expected}, found {describe_node(node)}", hint)

    def _entries(self, node: Node, path: str) -> dict[str, tuple[Node, Node]] | None:
        """Return key and value nodes by key; None if *node* is not a mapping."""
        if not isinstance(node, MappingNode) or node.tag != MAP_TAG:
            self._expected(node, path, "a mapping")
            return None
        entries: dict[str, tuple[Node, Node]] = {}
        for key, value in pairs_of(node):
            if not isinstance(key, ScalarNode) or not isinstance(_scalar_or_none(key), str):
                self._fail(key, path, f"keys must be text, found {describe_node(key)}", _quoting_hint(key))
            elif key.value in entries:
                # A distance, no line number: for the caller the text may be a part of a file.
                above = key.start_mark.line - entries[key.value][0].start_mark.line
                first = f"{above} line{'s' if above > 1 else ''} above" if above else "on the same line"
                self._fail(
                    key, key_path(path, key.value), f"{shorten(key.value)} is given twice", f"the first is {first}"
                )
            else:
                entries[key.value] = key, value
        return entries

    def _union(self, node: Node, kind: inspect.UnionType, path: str) -> Any:
        """Return what may be null, or a struct of the kind that the node's own tag field names."""
        kinds = _tags(kind)
        if not kinds:
            (inner,) = (member for member in kind.types if not isinstance(member, inspect.NoneType))
            return self.decode(node, inner, path)
        tag_field = next(iter(kinds.values())).tag_field or ""
        if not isinstance(node, MappingNode):
            return self._expected(node, path, f"a mapping with `{tag_field}`")
        for key, value in pairs_of(node):
            if isinstance(key, ScalarNode) and key.value == tag_field:
                name = value.value if isinstance(value, ScalarNode) else ""
                if name in kinds:
                    return self._struct(node, kinds[name], path)
                hint = nearest_hint(name, kinds)
                return self._fail(value, key_path(path, tag_field), f"there is no {tag_field} {shorten(name)!r}", hint)
        return self._fail(node, key_path(path, tag_field), f"`{tag_field}` is missing", nearest_hint("", kinds))

    def _struct(self, node: Node, kind: inspect.StructType, path: str) -> Any:
        entries = self._entries(node, path)
        if entries is None:
            return _FAILED
        entries.pop(kind.tag_field or "", None)
        fields = {field.encode_name: field for field in kind.fields}
        values: dict[str, Any] = {}
        for name, (key, value) in entries.items():
            field = fields.get(name)
            if field is None:
                self._fail(key, key_path(path, name), UNKNOWN_FIELD, nearest_hint(name, fields))
            elif not _is_absent(value, field):
                self.places[key_path(path, name)] = Place(key.start_mark.line + 1, key.start_mark.column + 1)
                values[field.name] = self.decode(value, field.type, key_path(path, name))
        missing = [field.encode_name for field in kind.fields if field.required and field.name not in values]
        for name in missing:
            self._fail(node, key_path(path, name), f"`{name}` is missing")
        if missing or _FAILED in values.values():
            return _FAILED
        return kind.cls(**values)

    def _dict(self, node: Node, kind: inspect.DictType, path: str) -> Any:
        entries = self._entries(node, path)
        if entries is None:
            return _FAILED
        decoded = {}
        for name, (key, value) in entries.items():
            self.places[key_path(path, name)] = Place(key.start_mark.line + 1, key.start_mark.column + 1)
            decoded[name] = self.decode(value, kind.value_type, key_path(path, name))
        return decoded

    def _list(self, node: Node, kind: inspect.ListType | inspect.VarTupleType, path: str) -> Any:
        if not isinstance(node, SequenceNode) or node.tag != SEQ_TAG:
            hint = f"write `[{shorten(node.value)}]`" if isinstance(node, ScalarNode) and tag_of(node) != "null" else ""
            return self._expected(node, path, "a list", hint)
        if len(node.value) < (kind.min_length or 0):
            return self._fail(node, path, f"expected a list of at least {kind.min_length}, found {len(node.value)}")
        items = [self.decode(item, kind.item_type, item_path(path, index)) for index, item in enumerate(node.value)]
        return tuple(items) if isinstance(kind, inspect.VarTupleType) else items

    def _anything(self, node: Node, path: str) -> Any:
        if isinstance(node, SequenceNode):
            return self._list(node, _ANY_LIST, path)
        if not isinstance(node, ScalarNode):
            return self._dict(node, _ANY_DICT, path)
        try:
            return read_scalar(node)
        except UnreadableScalarError as exc:
            return self._fail(node, path, exc.message, exc.hint)

    def _duration(self, node: Node, kind: inspect.CustomType | inspect.Metadata, path: str) -> Any:
        if not isinstance(node, ScalarNode) or tag_of(node) in {"null", "bool"}:
            return self._expected(node, path, "a duration such as `5s`")
        try:
            duration = parse_duration(node.value)
        except InvalidDurationError as exc:
            return self._fail(node, path, exc.message, exc.hint)
        extra = (kind.extra if isinstance(kind, inspect.Metadata) else None) or {}
        if extra.get("positive") and not duration:
            return self._fail(node, path, "must be longer than nothing")
        return duration

    def _scalar(self, node: Node, kind: inspect.Type, path: str) -> Any:
        value = _scalar_or_none(node) if isinstance(node, ScalarNode) else None
        match kind:
            case inspect.StrType():
                return value if isinstance(value, str) else self._expected(node, path, "text", _quoting_hint(node))
            case inspect.BoolType():
                return value if isinstance(value, bool) else self._expected(node, path, "true or false")
            case inspect.EnumType():
                return self._choice(node, kind.cls, path)
            case inspect.IntType():
                return self._integer(node, value, kind, path)
            case inspect.CustomType() | inspect.Metadata():
                return self._duration(node, kind, path)
            case _:
                raise TypeError(f"no way to decode {kind} at {path}")

    def _choice(self, node: Node, choices: type[Enum], path: str) -> Any:
        names = [choice.value for choice in choices]
        if not isinstance(node, ScalarNode):
            return self._expected(node, path, f"one of {', '.join(names)}")
        if node.value not in names:
            return self._expected(node, path, f"one of {', '.join(names)}", nearest_hint(node.value, names))
        return choices(node.value)

    def _integer(self, node: Node, value: object, kind: inspect.IntType, path: str) -> Any:
        low, high = kind.ge, kind.le
        if not isinstance(value, int) or isinstance(value, bool):
            return self._expected(node, path, "a whole number")
        # 0555 is octal in YAML and rarely meant so.
        if str(value) != node.value.replace("_", "").removeprefix("+"):
            return self._expected(node, path, "a whole number in decimal digits", f"this stands for {value}")
        if (low is not None and value < low) or (high is not None and value > high):
            limits = f"from {low} to {high}" if high is not None else f"of at least {low}"
            return self._expected(node, path, f"a number {limits}")
        return value


def _tags(kind: inspect.UnionType) -> dict[str, inspect.StructType]:
    """Return the structs of a union by their tags; empty for any other union."""
    return {str(member.tag): member for member in kind.types if isinstance(member, inspect.StructType) and member.tag}


_ANY_LIST = inspect.ListType(inspect.AnyType())
_ANY_DICT = inspect.DictType(inspect.StrType(), inspect.AnyType())


def _scalar_or_none(node: ScalarNode) -> object:
    try:
        return read_scalar(node)
    except UnreadableScalarError:
        return None


def _is_absent(node: Node, field: inspect.Field) -> bool:
    """Whether *node* is the null of an optional section, which counts as absent."""
    is_section = isinstance(
        field.type,
        inspect.StructType | inspect.DictType | inspect.ListType | inspect.VarTupleType | inspect.UnionType,
    )
    return tag_of(node) == "null" and is_section and not field.required


def _quoting_hint(node: Node) -> str:
    if isinstance(node, ScalarNode) and tag_of(node) in {"int", "float", "bool"}:
        return f'put it in quotes: "{shorten(node.value)}"'
    return ""
