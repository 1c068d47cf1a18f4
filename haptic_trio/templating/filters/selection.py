"""Filters that select, order and inspect objects by JSONPath; wrong arguments raise `TemplateFaultError`."""

import fnmatch
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from jinja2 import Undefined, UndefinedError

from haptic_trio.templating.missing import MissingValue
from haptic_trio.templating.values.faults import TemplateFaultError
from haptic_trio.templating.values.sort_keys import compiled_path, criterion_of, sort_key

_LONGEST_PATTERN: Final = 1_000
_NO_DEFAULT: Final = object()


class Group(NamedTuple):
    """Items that share a value; unpacks as `for key, members in …`."""

    key: Any
    members: list[Any]


def dig(value: Any, path: str, default: Any = _NO_DEFAULT) -> Any:
    """Return the first value at the JSONPath *path* that is not null.

    Without one: *default*, or something absent where no default is given.
    """
    compiled = compiled_path(path)
    if value is not None and not isinstance(value, Undefined):
        found = compiled.first(value)
        if found is not None:
            return found
    if default is not _NO_DEFAULT:
        return default
    return MissingValue(f"there is nothing at {path!r}", name=str(path), exc=UndefinedError)


def group_by(items: Iterable[Any], path: str) -> list[Group]:
    """Group *items* by the value at JSONPath *path*, in the order of first appearance; absent is None."""
    compiled = compiled_path(path)
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
        parsed = criterion_of(str(criterion))
        keyed = [(sort_key(item, parsed), item) for item in result]
        present = [pair for pair in keyed if pair[0] is not None]
        absent = [item for key, item in keyed if key is None]
        present.sort(key=lambda pair: pair[0] or (0, 0), reverse=parsed.descending)
        result = [item for _, item in present] + absent
    return result


def glob_match(value: Any, pattern: str) -> Any:
    """Whether the text *value* matches the shell *pattern*; of a list, the items that do. Case matters."""
    if len(pattern) > _LONGEST_PATTERN:
        raise TemplateFaultError("glob_match: the pattern is too long")
    if isinstance(value, str):
        return fnmatch.fnmatchcase(value, pattern)
    if isinstance(value, Iterable):
        return [item for item in value if isinstance(item, str) and fnmatch.fnmatchcase(item, pattern)]
    raise TemplateFaultError("glob_match: the value is neither text nor a list")


def _hashable(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | type(None)) else repr(value)
