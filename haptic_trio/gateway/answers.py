"""Lookups with remembered answers: dependents render again only if an answer changes."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, cast
from weakref import WeakValueDictionary

import msgspec

from haptic_trio.gateway.objects import Lookups

T = TypeVar("T")
_NOTHING: Final = object()


class _Answer:
    """The answer of one lookup, or a value derived from it; shared by all dependents."""

    __slots__ = ("__weakref__", "_aspect", "_keys", "_lookup", "_version", "changed", "value")

    def __init__(self, lookup: Any, keys: tuple[str, ...], aspect: Callable[[Sequence[Any]], Any]) -> None:
        self._lookup = lookup
        self._keys = keys
        self._aspect = aspect
        self._version = -1
        self.value: Any = _NOTHING
        self.changed = 0
        """The moment of the last change of `value`."""

    def renew(self, moment: int) -> None:
        """Look up again if the store has changed since; an equal value counts as unchanged."""
        version = self._lookup.version
        if version == self._version:
            return
        value = self._aspect(self._lookup.get(*self._keys) if self._keys else self._lookup.list())
        if self.value is _NOTHING or value != self.value:
            self.value, self.changed = value, moment
        self._version = version


class Record(msgspec.Struct, frozen=True):
    """The answers that one question used, and the moment of the question; keeps the answers in memory."""

    answers: tuple[Any, ...]
    moment: int


class _Remembering:
    """A lookup whose answers are remembered."""

    def __init__(self, owner: "Answers", name: str) -> None:
        self._owner = owner
        self._name = name

    def list(self) -> Sequence[Any]:
        return self.derive(_whole)

    def get(self, *keys: str) -> Sequence[Any]:
        return self.derive(_whole, *keys)

    def derive(self, aspect: Callable[[Sequence[Any]], T], *keys: str) -> T:
        return cast("T", self._owner.ask(self._name, keys, aspect))


class Answers:
    """Remembered answers of *lookups*, which are stores with a version. Not thread-safe.

    An answer is kept as long as a record with it.
    """

    def __init__(self, lookups: Lookups) -> None:
        self._lookups = lookups
        self._known: WeakValueDictionary[tuple[str, tuple[str, ...], Any], _Answer] = WeakValueDictionary()
        self._asked: dict[_Answer, None] = {}
        self._moment = 0
        self.lookups: Lookups = {name: _Remembering(self, name) for name in lookups}
        """The lookups to use in questions that `record` records."""

    def __len__(self) -> int:
        return len(self._known)

    def record(self, question: Callable[[], T]) -> tuple[T, Record]:
        """Return the result of *question*, which must use `self.lookups`, and the record of its lookups."""
        self._asked = {}
        self._moment += 1
        answer = question()
        return answer, Record(tuple(self._asked), self._moment)

    def holds(self, record: Record) -> bool:
        """Whether every answer in *record* is unchanged since *record* was made."""
        for answer in record.answers:
            answer.renew(self._moment + 1)
            if answer.changed > record.moment:
                return False
        return True

    def ask(self, name: str, keys: tuple[str, ...], aspect: Callable[[Sequence[Any]], Any]) -> Any:
        """Return *aspect* of the objects that the lookup *name* finds under *keys*."""
        known = self._known.get((name, keys, aspect))
        if known is None:
            known = self._known[name, keys, aspect] = _Answer(self._lookups[name], keys, aspect)
        known.renew(self._moment)
        self._asked[known] = None
        return known.value


def _whole(found: Sequence[Any]) -> Sequence[Any]:
    return found
