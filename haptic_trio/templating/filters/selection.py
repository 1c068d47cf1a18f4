"""Filters that select, order and inspect objects by JSONPath."""

import fnmatch
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from jinja2 import Undefined

from haptic_trio.jsonpath import JSONPathError, Path, compile_path
from haptic_trio.templating.filters.emit import TemplateFaultError
from haptic_trio.templating.missing import MissingValue

_MODIFIERS: Final = re.compile(r"^(?P<path>.*?)\s*(?P<length>\|\s*length\s*)?(?P<modifiers>(?::[a-z]+)*)$", re.DOTALL)
_LONGEST_PATTERN: Final = 1_000
_NO_DEFAULT: Final = object()


class Group(NamedTuple):
    """Items that share a value; unpacks as `for key, members in …`."""

    key: Any
    members: list[Any]


class _Criterion(NamedTuple):
    path: Path
    by_length: bool
    by_existence: bool
    descending: bool


def dig(value: Any, path: str, default: Any = _NO_DEFAULT) -> Any:
    """Return the first value at the JSONPath *path* that is not null.

    Without one: *default*, or something absent where no default is given.
    """
    compiled = _compiled(path)
    if value is not None and not isinstance(value, Undefined):
        for found in compiled.find(value):
            if found is not None:
                return found
    return MissingValue(f"there is nothing at {path!r}", name=str(path)) if default is _NO_DEFAULT else default


def group_by(items: Iterable[Any], path: str) -> list[Group]:
    """Group *items* by the value at JSONPath *path*, in the order of first appearance; absent is None."""
    compiled = _compiled(path)
    groups: dict[Any, Group] = {}
    for item in items:
        found = compiled.find(item)
        key = found[0] if found else None
        groups.setdefault(_hashable(key), Group(key, [])).members.append(item)
    return list(groups.values())


def sort_by(items: Iterable[Any], criteria: str | Iterable[str]) -> list[Any]:
    """Sort *items* by JSONPath criteria, the most significant first; stable.

    A criterion may end in `| length`, and then in `:exists` (present values
    first) and `:desc`. Absent values come last, also with `:desc`; numbers
    come before text.
    """
    result = list(items)
    for criterion in reversed([criteria] if isinstance(criteria, str) else list(criteria)):
        parsed = _criterion(str(criterion))
        keyed = [(_sort_key(item, parsed), item) for item in result]
        present = [pair for pair in keyed if pair[0] is not None]
        absent = [item for key, item in keyed if key is None]
        present.sort(key=lambda pair: pair[0] or (0, 0), reverse=parsed.descending)
        result = [item for _, item in present] + absent
    return result


def order_by(item: Any, criteria: Iterable[str]) -> tuple[Any, ...]:
    """Return a key that sorts as `sort_by` would; equal for what that leaves in the order it had."""
    keys: list[Any] = []
    for text in criteria:
        criterion = _criterion(text)
        key = _sort_key(item, criterion)
        keys.append((1,) if key is None else (0, _Descending(key) if criterion.descending else key))
    return tuple(keys)


class _Descending:
    """A key that sorts the other way round."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key

    def __lt__(self, other: "_Descending") -> bool:
        return bool(other.key < self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and bool(other.key == self.key)

    def __hash__(self) -> int:
        return hash(self.key)


def glob_match(value: Any, pattern: str) -> Any:
    """Whether the text *value* matches the shell *pattern*; of a list, the items that do. Case matters."""
    if len(pattern) > _LONGEST_PATTERN:
        raise TemplateFaultError("glob_match: the pattern is too long")
    if isinstance(value, str):
        return fnmatch.fnmatchcase(value, pattern)
    if isinstance(value, Iterable):
        return [item for item in value if isinstance(item, str) and fnmatch.fnmatchcase(item, pattern)]
    raise TemplateFaultError("glob_match: neither text nor a list")


@lru_cache(maxsize=1024)
def _criterion(text: str) -> _Criterion:
    match = _MODIFIERS.match(text.strip())
    path = match.group("path") if match else text
    modifiers = [part for part in (match.group("modifiers") if match else "").split(":") if part]
    unknown = [part for part in modifiers if part not in ("desc", "exists")]
    if unknown:
        raise TemplateFaultError(f"sort_by: unknown modifier ':{unknown[0]}'", "use :desc or :exists")
    by_length = bool(match and match.group("length"))
    return _Criterion(_compiled(path), by_length, "exists" in modifiers, "desc" in modifiers)


def _compiled(path: str) -> Path:
    try:
        return compile_path(str(path))
    except JSONPathError as error:
        raise TemplateFaultError(str(error)) from None


def _sort_key(item: Any, criterion: _Criterion) -> tuple[int, Any] | None:
    found = [value for value in criterion.path.find(item) if value is not None]
    if criterion.by_existence:
        # `:exists` puts the present first; `:desc`, which is often written with it, must not turn that round.
        rank = 0 if found else 1
        return (0, -rank if criterion.descending else rank)
    if criterion.by_length:
        return (0, len(found[0]) if found and isinstance(found[0], str | list | Mapping) else 0)
    if not found:
        return None
    value = found[0]
    if isinstance(value, bool | int | float):
        return (0, value)
    return (1, value) if isinstance(value, str) else (2, repr(value))


def _hashable(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | type(None)) else repr(value)
