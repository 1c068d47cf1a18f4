"""Limit on the rounds of all password hashes together; beyond it, the youngest objects are rejected first.

What is part of a valid configuration keeps what it has, so that no object
takes anything from those that are served. Room that is left goes to objects
in the order of their age, whatever the order in which they are rendered. An
output of a former version, rendered again, may have more rounds than it had,
if there is room for them then.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from haptic_trio.templating.incremental.outputs import Recall
from haptic_trio.templating.values.limits import LimitReachedError
from haptic_trio.templating.values.subjects import FragmentKey, Rejection

_UNKNOWN_AGE: Final = "~"
"""Younger than every timestamp."""


class _Want(NamedTuple):
    rounds: int
    created: str


class OverallRounds:
    """The decision which fragments find room; one for all renders of a run."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._wants: dict[FragmentKey, _Want] = {}
        self._total = 0
        self._added: dict[FragmentKey, int] = {}
        """By fragment that is served by a former version: its rounds beyond those of the good output."""
        self._total_added = 0
        self._rejected: frozenset[FragmentKey] = frozenset()
        self._served_of_rejected: dict[FragmentKey, int] = {}
        """By fragment in `_rejected`: the rounds that it has in what is served."""
        self._total_rejected = 0
        """Rounds that these fragments want beyond those."""
        self._is_changed = False
        self._is_first = True

    def copied(self) -> "OverallRounds":
        """Return the same state, which changes by itself."""
        copy = OverallRounds(self._limit)
        copy._wants, copy._total, copy._rejected = dict(self._wants), self._total, self._rejected
        copy._added, copy._total_added = dict(self._added), self._total_added
        copy._served_of_rejected, copy._total_rejected = self._served_of_rejected, self._total_rejected
        # Decided again: what is served is known by the next render.
        copy._is_changed = True
        return copy

    def restart(self) -> None:
        """Begin another render."""
        self._is_first = True

    def claim(self, key: FragmentKey, rounds: int, resource: Any) -> None:
        """Note that the fragment *key* asks for *rounds*; raises `LimitReachedError` if `settle` has rejected it."""
        if not rounds and key not in self._wants:
            return
        self._want(key, _Want(rounds, created_of(resource)) if rounds else None)
        if rounds and key in self._rejected:
            raise LimitReachedError(
                "there is no room for its password hashes:"
                f" those of all namespaces have {self._limit:,} rounds at most",
                "use fewer users or fewer rounds, or raise templating.maxHashRounds",
            )

    def drop(self, key: FragmentKey) -> None:
        """Note that the fragment *key* gives nothing any more."""
        if key not in self._rejected:
            self._want(key, None)

    def keep(self, key: FragmentKey, rounds: int, resource: Any) -> None:
        """Note that the fragment *key* gets no more than *rounds*, which it has now."""
        if key not in self._rejected:
            self._want(key, _Want(rounds, created_of(resource)) if rounds else None)

    def has_room(self, key: FragmentKey, more: int) -> bool:
        """Whether the fragment *key* may be served by a former version that has *more* rounds than its good output."""
        added = self._total_added - self._added.get(key, 0) + more
        return more <= 0 or self._total - self._total_rejected + added <= self._limit

    def add(self, key: FragmentKey, more: int) -> None:
        """Note that the fragment *key* is served with *more* rounds than its good output; 0 if it is not."""
        before = self._added.pop(key, 0)
        if more > 0:
            self._added[key] = more
        if more != before:
            self._total_added += max(more, 0) - before
            self._is_changed = True

    def _want(self, key: FragmentKey, want: _Want | None) -> None:
        self._total_rejected -= self._excess(key)
        before = self._wants.pop(key, None)
        if want is not None:
            self._wants[key] = want
        self._total_rejected += self._excess(key)
        if want != before:
            self._total += (want.rounds if want else 0) - (before.rounds if before else 0)
            self._is_changed = True

    def _excess(self, key: FragmentKey) -> int:
        """Return the part of `_total_rejected` that is due to the fragment *key*."""
        if key not in self._served_of_rejected or key not in self._wants:
            return 0
        return max(self._wants[key].rounds - self._served_of_rejected[key], 0)

    def settle(self, recall: Recall, rejections: Iterable[Rejection]) -> frozenset[FragmentKey]:
        """Decide again, after everything has been rendered; return the fragments that have to be rendered again.

        *rejections* are those of all that has failed. After the first time in a render
        no fragment is admitted any more, so that this comes to an end.
        """
        if self._rejected:
            for key in self._rejected.difference(rejection.key for rejection in rejections):
                self._want(key, None)
        if not self._is_changed:
            return frozenset()
        self._is_changed = False
        is_full = self._total + self._total_added > self._limit
        rejected = self._without_room(recall) if is_full else frozenset()
        if not self._is_first:
            rejected |= self._rejected & self._wants.keys()
        self._is_first = False
        # What a rejected object wants takes no room from others.
        self._served_of_rejected = {key: _served(recall, key) for key in rejected}
        self._total_rejected = sum(map(self._excess, rejected))
        former, self._rejected = self._rejected, rejected
        return (former ^ rejected) & self._wants.keys()

    def _without_room(self, recall: Recall) -> frozenset[FragmentKey]:
        served = {key: min(want.rounds, _served(recall, key)) for key, want in self._wants.items()}
        room = self._limit - self._total_added - sum(served.values())
        rejected = set()
        growing = (key for key, want in self._wants.items() if want.rounds > served[key])
        for key in sorted(growing, key=lambda key: (self._wants[key].created, key.namespace, key.name, key.fragment)):
            more = self._wants[key].rounds - served[key]
            if more <= room:
                room -= more
            else:
                rejected.add(key)
        return frozenset(rejected)


def _served(recall: Recall, key: FragmentKey) -> int:
    """Return how many rounds the fragment *key* has in what is served."""
    outputs = recall.valid.get(key), recall.prepared(key)
    return max((output.rounds for output in outputs if output is not None), default=0)


def created_of(resource: Any) -> str:
    """Return the `creationTimestamp` of *resource*, by which objects are sorted; without one it is younger than all."""
    metadata = resource.get("metadata") if isinstance(resource, Mapping) else None
    created = metadata.get("creationTimestamp") if isinstance(metadata, Mapping) else None
    return created if isinstance(created, str) and created else _UNKNOWN_AGE
