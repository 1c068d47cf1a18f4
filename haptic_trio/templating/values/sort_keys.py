"""Sort keys of objects by JSONPath criteria, of the filter `sort_by` and of `{% each … by … %}`."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from haptic_trio.jsonpath import JSONPathError, Path, compile_path
from haptic_trio.templating.values.faults import NamedFaultError

_MODIFIERS: Final = re.compile(r"^(?P<path>.*?)\s*(?P<length>\|\s*length\s*)?(?P<modifiers>(?::[a-z]+)*)$", re.DOTALL)


class Criterion(NamedTuple):
    """A JSONPath and its modifiers."""

    path: Path
    by_length: bool
    by_existence: bool
    descending: bool


def order_by(item: Any, criteria: Iterable[str]) -> tuple[Any, ...]:
    """Return a key that sorts as `sort_by` does; equal for items whose order `sort_by` keeps."""
    keys: list[Any] = []
    for text in criteria:
        criterion = criterion_of(text)
        key = sort_key(item, criterion)
        # Flat, since there is one key for each object: two of them differ in length only after the first difference.
        if key is None:
            keys.append(1)
        elif criterion.descending:
            keys += (0, _Descending(key))
        else:
            keys += (0, *key)
    return tuple(keys)


class _Descending:
    """A key that sorts in descending order."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key

    def __lt__(self, other: "_Descending") -> bool:
        return bool(other.key < self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and bool(other.key == self.key)

    def __hash__(self) -> int:
        return hash(self.key)


@lru_cache(maxsize=1024)
def criterion_of(text: str) -> Criterion:
    """Parse a criterion such as `$.spec.rules | length:desc`; raise `NamedFaultError` if it is malformed."""
    match = _MODIFIERS.match(text.strip())
    path = match.group("path") if match else text
    modifiers = [part for part in (match.group("modifiers") if match else "").split(":") if part]
    unknown = [part for part in modifiers if part not in ("desc", "exists")]
    if unknown:
        raise NamedFaultError(f"sort_by: unknown modifier ':{unknown[0]}'", "use :desc or :exists")
    by_length = bool(match and match.group("length"))
    return Criterion(compiled_path(path), by_length, "exists" in modifiers, "desc" in modifiers)


def compiled_path(path: str) -> Path:
    """Compile a JSONPath; raise `NamedFaultError` if it is malformed."""
    try:
        return compile_path(str(path))
    except JSONPathError as error:
        raise NamedFaultError(str(error)) from None


def sort_key(item: Any, criterion: Criterion) -> tuple[int, Any] | None:
    """Return the key of *item* in ascending order; None if the item has no value, which sorts last."""
    value = criterion.path.first(item)
    if criterion.by_existence:
        # `:exists` puts the present first; `:desc`, which is often written with it, must not turn that round.
        rank = 0 if value is not None else 1
        return (0, -rank if criterion.descending else rank)
    if criterion.by_length:
        return (0, len(value) if isinstance(value, str | list | Mapping) else 0)
    if value is None:
        return None
    if isinstance(value, str):
        return (1, value)
    return (0, value) if isinstance(value, bool | int | float) else (2, repr(value))
