"""Lookups with remembered answers: dependents render again only if an answer changes."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, cast

import msgspec

from haptic_trio.gateway.objects import Lookups

T = TypeVar("T")
_NOTHING: Final = object()
_MOST_FOR_EACH: Final = 40
"""Answers for each object that is asked for, at most, before all are given up that nobody may ask for any more."""
_MOST_ANYWAY: Final = 100 * _MOST_FOR_EACH


class _Answer:
    """What one look-up finds, or what was made of it; shared by all who have asked."""

    __slots__ = ("_aspect", "_keys", "_lookup", "_version", "changed", "value")

    def __init__(self, lookup: Any, keys: tuple[str, ...], aspect: Callable[[Sequence[Any]], Any]) -> None:
        self._lookup = lookup
        self._keys = keys
        self._aspect = aspect
        self._version = -1
        self.value: Any = _NOTHING
        self.changed = 0
        """When it became what it is."""

    def renew(self, moment: int) -> None:
        """Look again if anything has been written since; what is equal has not changed."""
        version = self._lookup.version
        if version == self._version:
            return
        value = self._aspect(self._lookup.get(*self._keys) if self._keys else self._lookup.list())
        if self.value is _NOTHING or value != self.value:
            self.value, self.changed = value, moment
        self._version = version


class Record(msgspec.Struct, frozen=True):
    """What somebody has asked, and when."""

    answers: tuple[Any, ...]
    moment: int


class _Remembering:
    """A look-up whose answers are remembered."""

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
    """The look-ups of *lookups*, stores of which each has a version; not for several threads."""

    def __init__(self, lookups: Lookups) -> None:
        self._lookups = lookups
        self._known: dict[tuple[str, tuple[str, ...], Any], _Answer] = {}
        self._asked: dict[_Answer, None] = {}
        self._moment = 0
        self.lookups: Lookups = {name: _Remembering(self, name) for name in lookups}
        """For questions that are recorded."""

    def __len__(self) -> int:
        return len(self._known)

    def trim(self, objects: int) -> bool:
        """Give up all answers if there are more than are asked for *objects*; whether it was so.

        Nobody may ask for most of them any more then. Records stay what they are.
        """
        is_much = len(self._known) > _MOST_ANYWAY + _MOST_FOR_EACH * objects
        if is_much:
            self._known.clear()
        return is_much

    def record(self, question: Callable[[], T]) -> tuple[T, Record]:
        """Return what *question* returns, which asks `lookups`, and the record of that."""
        self._asked = {}
        self._moment += 1
        answer = question()
        return answer, Record(tuple(self._asked), self._moment)

    def holds(self, record: Record) -> bool:
        """Whether all is answered as it was when *record* was made."""
        for answer in record.answers:
            answer.renew(self._moment + 1)
            if answer.changed > record.moment:
                return False
        return True

    def ask(self, name: str, keys: tuple[str, ...], aspect: Callable[[Sequence[Any]], Any]) -> Any:
        """Return what *aspect* makes of what is found under *keys*."""
        known = self._known.get((name, keys, aspect))
        if known is None:
            known = self._known[name, keys, aspect] = _Answer(self._lookups[name], keys, aspect)
        known.renew(self._moment)
        self._asked[known] = None
        return known.value


def _whole(found: Sequence[Any]) -> Sequence[Any]:
    return found
