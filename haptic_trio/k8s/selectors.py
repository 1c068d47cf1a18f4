"""Label and field selectors in the syntax of the Kubernetes API."""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, TypeAlias

import msgspec

from haptic_trio.errors import Problem, ProblemsError
from haptic_trio.jsonpath import JSONPathError, Path, compile_path
from haptic_trio.k8s.resource import Resource, text_of

_WORD: Final = re.compile(r"\s*(!=|==|[=!,()<>]|[^\s=!,()<>]+)")
_LABEL_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-\w.]{0,61}[A-Za-z0-9])?", re.ASCII)
_LABEL_PREFIX: Final = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_SYNTAX: Final = "write requirements such as app=web, tier in (a, b), !legacy, separated by commas"
_FIELD_SYNTAX: Final = "write requirements such as metadata.name=web,status.phase!=Failed, separated by commas"
_END: Final = ""


class SelectorError(ProblemsError):
    """The selector cannot be read; trying again helps only with another selector."""


class Operator(StrEnum):
    """Operator of a requirement on a label."""

    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    ABSENT = "absent"


class Requirement(msgspec.Struct, frozen=True):
    """One condition on one label."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, Any]) -> bool:
        """Whether *labels* meet it; an absent label meets `!=` and `notin`."""
        present = self.key in labels
        match self.operator:
            case Operator.IN:
                return present and text_of(labels[self.key]) in self.values
            case Operator.NOT_IN:
                return not present or text_of(labels[self.key]) not in self.values
            case Operator.EXISTS:
                return present
            case Operator.ABSENT:
                return not present


class LabelSelector(msgspec.Struct, frozen=True):
    """All requirements must be met; none are met by everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, resource: Resource) -> bool:
        """Whether the labels of *resource* meet all requirements."""
        if not self.requirements:
            return True
        labels = (resource.get("metadata") or {}).get("labels") or {}
        return all(requirement.matches(labels) for requirement in self.requirements)


class FieldRequirement:
    """One condition on the value at one path; a field that is absent counts as empty text."""

    __slots__ = ("_path", "equal", "value")

    def __init__(self, path: Path, value: str, *, equal: bool) -> None:
        self._path = path
        self.value = value
        self.equal = equal

    @property
    def expression(self) -> str:
        """The path as it was written."""
        return self._path.expression

    def matches(self, resource: Resource) -> bool:
        """Whether *resource* meets it; of several values at the path one must be equal, or none for `!=`."""
        values = {text_of(value) for value in self._path.find(resource) if value is not None}
        return (self.value in (values or {""})) is self.equal


class FieldSelector:
    """All requirements must be met; none are met by everything."""

    __slots__ = ("requirements",)

    def __init__(self, requirements: tuple[FieldRequirement, ...] = ()) -> None:
        self.requirements = requirements

    def matches(self, resource: Resource) -> bool:
        """Whether *resource* meets all requirements."""
        return all(requirement.matches(resource) for requirement in self.requirements)


def parse_label_selector(text: str) -> LabelSelector:
    """Read a label selector; empty text selects everything. Raises `SelectorError`."""
    if not text.strip():
        return LabelSelector()
    return LabelSelector(tuple(_LabelParser(text).requirements()))


def parse_field_selector(text: str) -> FieldSelector:
    r"""Read a field selector; empty text selects everything. Raises `SelectorError`.

    Any plain path may be asked for. In values `\,`, `\=` and `\\` stand for
    the characters themselves.
    """
    return FieldSelector(
        tuple(_field_requirement(text, term, position) for term, position in _terms(text) if term.strip())
    )


_Word: TypeAlias = tuple[str, int]


class _LabelParser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._words: list[_Word] = [(match[1], match.start(1)) for match in _WORD.finditer(text)]
        self._words.append((_END, len(text)))
        self._next = 0

    def requirements(self) -> Iterator[Requirement]:
        while True:
            yield self._requirement()
            word, position = self._take()
            if word == _END:
                return
            if word != ",":
                raise self._error(f"unexpected {word!r}", position)

    def _requirement(self) -> Requirement:
        if self._peek() == "!":
            self._take()
            return Requirement(self._key(), Operator.ABSENT)
        key = self._key()
        operator, position = self._words[self._next]
        if operator in {_END, ","}:
            return Requirement(key, Operator.EXISTS)
        self._take()
        match operator:
            case "=" | "==":
                return Requirement(key, Operator.IN, frozenset((self._value(),)))
            case "!=":
                return Requirement(key, Operator.NOT_IN, frozenset((self._value(),)))
            case "in" | "notin":
                return Requirement(key, Operator(operator), self._values())
        hint = "select by equality or by sets of values" if operator in "<>" else _SYNTAX
        raise self._error(f"unexpected {operator!r} after {key!r}", position, hint)

    def _key(self) -> str:
        key, position = self._take()
        prefix, slash, name = key.rpartition("/")
        if not _LABEL_NAME.fullmatch(name) or (slash and not _LABEL_PREFIX.fullmatch(prefix)):
            found = repr(key) if key else "the end"
            raise self._error(f"a label's name is expected, not {found}", position)
        return key

    def _value(self) -> str:
        value, position = self._words[self._next]
        if value in {_END, ",", ")"}:
            return ""
        self._take()
        if not _LABEL_NAME.fullmatch(value):
            hint = "at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends"
            raise self._error(f"{value!r} is not a valid label value", position, hint)
        return value

    def _values(self) -> frozenset[str]:
        word, position = self._take()
        if word != "(":
            raise self._error("'(' is expected", position, "write the values as (a, b)")
        values = {self._value()}
        while True:
            word, position = self._take()
            if word == ")":
                return frozenset(values)
            if word != ",":
                raise self._error("')' is expected", position, "write the values as (a, b)")
            values.add(self._value())

    def _peek(self) -> str:
        return self._words[self._next][0]

    def _take(self) -> _Word:
        word = self._words[self._next]
        if word[0] != _END:
            self._next += 1
        return word

    def _error(self, message: str, position: int, hint: str = _SYNTAX) -> SelectorError:
        return _error("label selector", self._text, message, position, hint)


def _terms(text: str) -> Iterator[tuple[str, int]]:
    """Yield what stands between commas that are not escaped, and where."""
    start = position = 0
    while position < len(text):
        if text[position] == "\\":
            position += 1
        elif text[position] == ",":
            yield text[start:position], start
            start = position + 1
        position += 1
    yield text[start:], start


def _field_requirement(text: str, term: str, position: int) -> FieldRequirement:
    match = re.search(r"!=|==|=", term)
    if not match:
        raise _error("field selector", text, f"{term.strip()!r} compares nothing", position, _FIELD_SYNTAX)
    try:
        path = compile_path(term[: match.start()].strip())
    except JSONPathError as error:
        raise _error("field selector", text, error.message, position + error.position, error.hint) from error
    if not path.steps:
        raise _error("field selector", text, f"{path} is not a plain path", position, _FIELD_SYNTAX)
    return FieldRequirement(path, _unescaped(term[match.end() :].strip()), equal=match.group() != "!=")


def _unescaped(value: str) -> str:
    return re.sub(r"\\([\\,=])", r"\1", value)


def _error(kind: str, text: str, message: str, position: int, hint: str) -> SelectorError:
    return SelectorError([Problem(message=f"{kind} {text!r}: {message}", column=position + 1, hint=hint)])
