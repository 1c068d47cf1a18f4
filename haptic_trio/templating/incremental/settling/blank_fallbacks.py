"""Fallbacks that output nothing at present: what their objects referred to is gone, or another setting forbids it.

An object with such a fallback is not served, and its owner must not read that its last good version is. The version
stays the good one all the same: it is rendered again, and served as soon as it gives an output.
"""

from collections.abc import Callable, Iterable

from haptic_trio.templating.incremental.outputs import FragmentOutput
from haptic_trio.templating.incremental.records import ObjectId, id_of_key
from haptic_trio.templating.values.subjects import FragmentKey


class BlankFallbacks:
    """The quarantined objects whose fallbacks output nothing; one for all renders of a run."""

    def __init__(self) -> None:
        self._blank: frozenset[ObjectId] = frozenset()
        self._undecided: set[ObjectId] = set()

    def for_trial(self) -> "BlankFallbacks":
        """Return the same decisions; what is noted there does not count."""
        trial = BlankFallbacks()
        trial._blank = self._blank
        return trial

    def __contains__(self, found: ObjectId) -> bool:
        return found in self._blank

    @property
    def is_undecided(self) -> bool:
        """Whether anything has been noted that may change a decision."""
        return bool(self._undecided)

    def note(self, key: FragmentKey) -> None:
        """Note that the output of the fragment *key* may change, and is or was that of a fallback."""
        self._undecided.add(id_of_key(key))

    def settle(self, outputs_of: Callable[[ObjectId], Iterable[FragmentOutput]]) -> set[ObjectId]:
        """Decide again, after everything has been rendered; return the objects for which the decision changes.

        *outputs_of* returns the outputs of all fragments of an object, none for one that has no fallback.
        """
        changed = set()
        for found in self._undecided:
            outputs = tuple(outputs_of(found))
            is_blank = bool(outputs) and all(output.is_blank for output in outputs)
            if is_blank != (found in self._blank):
                changed.add(found)
        self._undecided.clear()
        if changed:
            self._blank ^= changed
        return changed
