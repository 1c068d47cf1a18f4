"""Answers about Ingresses that are kept for the next question, limited in bytes.

The Ingresses that an answer was made from stay in memory with it, also after
they have changed or were deleted.
"""

from typing import Any, Final, Generic, TypeVar

import msgspec

from haptic_trio.gateway.objects import Resource

Key = TypeVar("Key")
Source = TypeVar("Source")
Answer = TypeVar("Answer")

MOST_KEPT: Final = 4 << 20
"""Bytes of JSON of the Ingresses whose answers are kept, which take up to ten times as much memory."""
_OVERHEAD: Final = 256
"""Bytes that count for each answer in addition."""


class KeptAnswers(Generic[Key, Source, Answer]):
    """Answers by key; each keeps its source, so that no other one gets its identity."""

    def __init__(self) -> None:
        self._found: dict[Key, tuple[Source, Answer, int]] = {}
        self._size = 0

    def find(self, key: Key, source: Source) -> Answer | None:
        """Return the answer that was made from *source*, compared by identity."""
        known = self._found.get(key)
        return known[1] if known is not None and known[0] is source else None

    def keep(self, key: Key, source: Source, answer: Answer, size: int) -> None:
        """Keep *answer*, whose *source* has *size* bytes, instead of a former one; without space drop all others."""
        former = self._found.pop(key, None)
        if former is not None:
            self._size -= former[2]
        size += _OVERHEAD
        if self._size + size > MOST_KEPT:
            self._found, self._size = {}, 0
        self._size += size
        self._found[key] = source, answer, size


def size_of(ingress: Resource) -> int:
    """Return the bytes of *ingress* as JSON; one that cannot be written so leaves no room for others."""
    try:
        return len(msgspec.json.encode(ingress))
    except (TypeError, ValueError):
        return MOST_KEPT


def size_of_all(ingresses: Any, most: int) -> int:
    """Return the bytes of *ingresses* as JSON, at most *most*."""
    size = 0
    for one in ingresses:
        size += size_of(one)
        if size >= most:
            return most
    return size
