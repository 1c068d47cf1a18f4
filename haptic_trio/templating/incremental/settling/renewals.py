"""Former versions of objects, rendered again: rejected objects are served with present lookups and settings.

A good output is what an object gave when it was rendered. Meanwhile a user may
have been removed from a Secret, a grant may be withdrawn, or the administrator
may deny a network. So the body of each fragment is called for the former version
again, and this output is used. Once it is valid, it is the good output of that
version: what has been withdrawn does not return. If rendering fails for one
fragment, all fragments of the object have their good outputs as they were: they
must fit together.
"""

from collections.abc import Collection
from typing import TypeVar

from haptic_trio.templating.incremental.outputs import FragmentOutput
from haptic_trio.templating.incremental.records import ObjectId, id_of_key
from haptic_trio.templating.values.subjects import FragmentKey

Good = TypeVar("Good", FragmentOutput, FragmentOutput | None)


class Renewals:
    """Results of rendering former versions again; one for all renders of a run."""

    def __init__(self) -> None:
        self._outputs: dict[FragmentKey, tuple[FragmentOutput, ...]] = {}
        """Of each good output that the fragment may use, the one that it had last."""
        self._failed: dict[ObjectId, set[FragmentKey]] = {}
        self._kept: frozenset[ObjectId] = frozenset()
        """Objects whose good outputs are used as they were."""
        self._undecided: set[ObjectId] = set()
        self._returned: set[ObjectId] = set()
        """Objects whose outputs have been renewed again in this render, after they had been kept as they were."""

    def restart(self) -> None:
        """Begin another render."""
        self._returned.clear()
        # They could not return a second time in the render before.
        self._undecided |= self._kept - self._failed.keys()

    def for_trial(self) -> "Renewals":
        """Return the same decisions; what is noted there does not count."""
        trial = Renewals()
        trial._kept = self._kept
        return trial

    def note(self, key: FragmentKey, output: FragmentOutput | None) -> None:
        """Note the *output* of the fragment *key* for a former version; None if that fails."""
        found = id_of_key(key)
        if output is not None:
            self._outputs[key] = (output, *self._besides(key, output.original))
            self._succeed(key, found)
            return
        self._outputs.pop(key, None)
        self._failed.setdefault(found, set()).add(key)
        self._undecided.add(found)

    def forget(self, key: FragmentKey) -> None:
        """Note that the fragment *key* has no former version in use."""
        self._outputs.pop(key, None)
        self._succeed(key, id_of_key(key))

    def besides(self, key: FragmentKey, used: FragmentOutput | None) -> list[FragmentOutput]:
        """Return the good outputs of the fragment *key* besides *used* of which renewed ones are known."""
        return [one.original for one in self._besides(key, used) if one.original is not None]

    def note_besides(self, key: FragmentKey, good: FragmentOutput, output: FragmentOutput | None) -> None:
        """Note the *output* for the version of *good*, which is not used; None if there is none any more."""
        found = self._besides(key, good)
        self._outputs[key] = (*found, output) if output is not None else tuple(found)

    def _besides(self, key: FragmentKey, good: FragmentOutput | None) -> list[FragmentOutput]:
        return [one for one in self._outputs.get(key, ()) if one.original is not good]

    def _succeed(self, key: FragmentKey, found: ObjectId) -> None:
        failed = self._failed.get(found)
        if failed is None:
            if found in self._kept:
                self._undecided.add(found)
            return
        failed.discard(key)
        if not failed:
            del self._failed[found]
            self._undecided.add(found)

    @property
    def kept(self) -> frozenset[ObjectId]:
        """The objects that are served as they were."""
        return self._kept

    def return_to(self, kept: frozenset[ObjectId], concerned: Collection[ObjectId]) -> set[ObjectId]:
        """Of *concerned*, serve those in *kept* as they were, and no others; return those that change."""
        changed = (self._kept ^ kept).intersection(concerned)
        self._kept ^= changed
        return set(changed)

    def keeps(self, key: FragmentKey) -> bool:
        """Whether the object of the fragment *key* is served as it was."""
        return bool(self._kept) and id_of_key(key) in self._kept

    def in_use(self, key: FragmentKey, good: Good) -> FragmentOutput | Good:
        """Return what is used of *good*, the good output of the fragment *key*: the renewed one, or itself."""
        renewed = next((one for one in self._outputs.get(key, ()) if one.original is good), None)
        return renewed if renewed is not None and not self.keeps(key) else good

    @property
    def is_undecided(self) -> bool:
        """Whether anything has been noted that may change a decision."""
        return bool(self._undecided)

    def settle(self) -> set[ObjectId]:
        """Decide again, after everything has been rendered; return the objects that have other outputs now.

        In one render the outputs of an object are renewed again at most once, so that this comes to an end: with the
        good outputs there may be room, or a free file, which the renewed ones do not leave to each other.
        """
        changed = {found for found in self._undecided if (found in self._failed) != (found in self._kept)}
        changed -= self._returned & self._kept
        self._returned |= changed & self._kept
        self._undecided.clear()
        if changed:
            self._kept ^= changed
        return changed
