"""Decisions for which everything must have been rendered; what they change renders again in the same render."""

from collections.abc import Iterator
from functools import partial
from typing import Final

from haptic_trio.errors import Problem
from haptic_trio.templating.incremental.records import ObjectId, id_of_key, id_of_subject
from haptic_trio.templating.incremental.run import RenderRun

_ROUNDS: Final = 100
"""Rounds of a render that concern no object."""
_ROUNDS_PER_OBJECT: Final = 50
_NAMED: Final = 5
"""Objects that an error names."""


def settle_rounds(run: RenderRun) -> bool:
    """Decide again whose password hashes find room; True if fragments have to be rendered again for that."""
    keys = run.shares.overall.settle(run.recall, run.rejections)
    if keys:
        run.touch_fragments(set(keys))
    for key in keys:
        run.quarantined.retry(id_of_key(key))
    return bool(keys)


def settle_files(run: RenderRun) -> bool:
    """Decide again which objects may have the files that they want; True if fragments have to be rendered again."""
    candidates = partial(run.quarantined.usable_fallbacks, run)
    objects, others = run.contested.settle(run.rejections, run.quarantined.staying, candidates)
    for found in objects:
        run.touch_object(found)
        run.quarantined.retry(found)
    run.quarantined.choose_again(others)
    return bool(objects)


class SettlingLimit:
    """Limit on the rounds of one render: in each of them, a decision has made fragments render again.

    Each decision about an object ends after a few rounds, so the limit grows with the number of objects. Only two
    decisions that contradict each other reach it. Without the limit, such a render would never end.
    """

    def __init__(self) -> None:
        self._rounds = 0
        self._objects: set[ObjectId] = set()

    def begin_round(self, run: RenderRun) -> Problem | None:
        """Count a round, in which the pending fragments of *run* render; return the problem if it is one too many."""
        self._rounds += 1
        pending = set(_pending_objects(run))
        self._objects |= pending
        if self._rounds <= _ROUNDS + _ROUNDS_PER_OBJECT * len(self._objects):
            return None
        named = [f"{kind} {namespace}/{name}" for namespace, name, kind in sorted(pending)[:_NAMED]]
        more = f" and {len(pending) - _NAMED} more" if len(pending) > _NAMED else ""
        return Problem(
            message=f"the render does not end: after {self._rounds:,} rounds, decisions about"
            f" {', '.join(named) or 'no object'}{more} still change",
            hint="this is a bug of haptic-trio, please report it; a change of one of these objects may end it",
        )


def _pending_objects(run: RenderRun) -> Iterator[ObjectId]:
    for root in run.roots.values():
        for region in root.regions:
            for child in region.pending:
                yield child.object_id
        if not root.is_valid:
            for kept in root.kept.values():
                if not kept.is_valid:
                    yield id_of_subject(kept.origin.subject)
