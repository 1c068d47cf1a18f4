"""Quarantine: objects that are rejected, the reason, and their fallback; also warnings for owners of objects.

The unit is an object with all its *fragments*. When one of them fails, the
newest outputs of all that were part of a valid configuration stand in for
them; without any, nothing of the object is served. A fragment is rendered
again when something that it has looked up changes, so that whatever mends it,
be it another object, releases its object. An output that HAProxy refused is
remembered by its digest, and is as good as failed for as long as the fragment
gives it.

The good outputs outlive an iteration. Where a new configuration breaks what
the one before it could render, the templates are at fault, not the objects:
then the cycle fails, and everything stays as it is deployed.
"""

from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

import msgspec

from haptic_trio.errors import Problem
from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.pipeline.field_paths import without_emitter
from haptic_trio.pipeline.rejection.setbacks import Setbacks
from haptic_trio.templating.incremental.outputs import FragmentOutput, Paused, Recall
from haptic_trio.templating.values.subjects import FragmentKey, Refusal, Remark

FindFields = Callable[[ResourceRef, str], tuple[str, ...]]
"""Where in an object the texts are that a message refuses."""

_MOST_PENDING: Final = 100


class QuarantinedObject(msgspec.Struct, frozen=True, kw_only=True):
    """One object that is not served as it is."""

    ref: ResourceRef
    version: str
    problem: Problem
    """The first of them, where several fragments fail."""
    has_stand_in: bool
    """Something of it is served as it was last good."""


class Quarantine:
    """The memory of all cycles of a process; plain state, nobody waits for it."""

    def __init__(self) -> None:
        self._good: dict[FragmentKey, FragmentOutput] = {}
        self._rejected: dict[FragmentKey, dict[str, Problem]] = {}
        self._objects: dict[ResourceRef, QuarantinedObject] = {}
        # The same without the fields.
        self._found: dict[ResourceRef, QuarantinedObject] = {}
        self._refusals: tuple[Refusal, ...] = ()
        self.remarks: tuple[Remark, ...] = ()
        """What owners of objects should know, each thing once; the same tuple until it changes."""
        # What each render changed that is not part of a valid configuration yet, by its serial number.
        self._pending: list[tuple[int, bool, dict[FragmentKey, FragmentOutput | None]]] = []
        # What of it has passed phase 1, and may be deployed already: that of the renders up to this number, but not of
        # those up to the other one, since HAProxy has refused these.
        self._newer: dict[FragmentKey, FragmentOutput | None] = {}
        self._prepared = 0
        self._distrusted = 0
        # What the former configuration rendered afresh, until this one has made something valid.
        self._inherited: frozenset[FragmentKey] = frozenset()
        self.setbacks = Setbacks()
        """Objects on which HAProxy has failed again and again."""
        self._paused = Paused()

    @property
    def objects(self) -> tuple[QuarantinedObject, ...]:
        """What is held now."""
        return tuple(self._objects.values())

    def begin_iteration(self) -> None:
        """Start with another configuration: outputs stay as stand-ins, refusals are to be seen anew."""
        failing = {(held.ref.kind, held.ref.namespace, held.ref.name) for held in self._objects.values()}
        self._inherited = frozenset(key for key in self._good if _object_of(key) not in failing)
        self._rejected.clear()
        self.setbacks.release()
        self._paused = Paused()
        self._objects.clear()
        self._found.clear()
        self._refusals = ()
        self.remarks = ()
        self._pending.clear()
        # Another renderer counts from the beginning.
        self._newer, self._prepared, self._distrusted = {}, 0, 0

    def pause(self, now: float) -> None:
        """Have the next renders use nothing new of what is held back at the clock time *now*."""
        self._paused = self.setbacks.paused(now)

    def recall(
        self,
        held: Mapping[FragmentKey, Problem] | None = None,
        instead: Mapping[FragmentKey, FragmentOutput] | None = None,
    ) -> Recall:
        """Return what the next render should know.

        In one that serves as a trial, *held* fragments count as failed, and
        what is in *instead* stands in for their good outputs.
        """
        good = ChainMap(dict(instead), self._good) if instead else self._good
        return Recall(good, self._rejected, held or {}, self._newer, self._paused)

    def find_suspects(
        self, serial: int, produced: Mapping[FragmentKey, FragmentOutput]
    ) -> dict[ResourceRef, tuple[FragmentKey, ...]]:
        """Return by object the fragments whose output is part of no valid configuration yet, the newest last.

        *produced* is what the render with the number *serial* gave.
        """
        found: dict[ResourceRef, dict[FragmentKey, None]] = {}
        for key in self._changed(lambda number: number <= serial):
            output, good = produced.get(key), self._good.get(key)
            if output is None or output is good or (good is not None and output.digest() == good.digest()):
                continue
            found.setdefault(ResourceRef(*_object_of(key)), {})[key] = None
        return {ref: tuple(keys) for ref, keys in found.items()}

    def find_newer(self, serial: int, produced: Mapping[FragmentKey, FragmentOutput]) -> frozenset[FragmentKey]:
        """Return the fragments that give something else now than *produced*, by the render with the number *serial*."""
        newest: dict[FragmentKey, FragmentOutput | None] = {}
        for number, _, changed in self._pending:
            if number > serial:
                newest.update(changed)
        return frozenset(
            key
            for key, output in newest.items()
            if output is not None and (key not in produced or produced[key].digest() != output.digest())
        )

    def _changed(self, counts: Callable[[int], bool]) -> Iterator[FragmentKey]:
        for number, _, changed in self._pending:
            if counts(number):
                yield from sorted(changed, key=msgspec.structs.astuple)

    def find_template_faults(
        self, produced: Mapping[FragmentKey, FragmentOutput], refusals: Collection[Refusal]
    ) -> tuple[Problem, ...]:
        """Return a problem for each fragment that fails for everybody, objects that were good till now among them.

        Good means: the former configuration rendered this version of the object. One that has changed since may be at
        fault itself, and counts for nothing here.
        """
        if not self._inherited:
            return ()
        good = {_object_of(key): self._good[key].version for key in self._inherited}
        failed = {refusal.key for refusal in refusals}
        succeeded = {key.fragment for key in produced if key not in failed}
        faults: dict[str, Problem] = {}
        for refusal in refusals:
            is_good = good.get(_object_of(refusal.key)) == refusal.subject.resource_version
            if is_good and refusal.fragment not in succeeded:
                faults.setdefault(refusal.fragment, refusal.problem)
        return tuple(faults.values())

    def reject(
        self,
        suspects: Mapping[FragmentKey, Problem],
        produced: Mapping[FragmentKey, FragmentOutput],
        *,
        whole: Collection[FragmentKey] = (),
    ) -> bool:
        """Remember that HAProxy refuses what *suspects* gave; False when that leads nowhere.

        Those in *whole* are refused whatever they give, until the version of
        their object changes.
        What the former configuration served is never dropped for the sake of
        a new one that does not get along with it.
        """
        progress = False
        for key, problem in suspects.items():
            output = produced.get(key)
            if output is None or (key in self._inherited and output is self._good.get(key)):
                continue
            rejected = self._rejected.setdefault(key, {})
            mark = output.edition if key in whole else output.digest()
            progress |= mark not in rejected
            rejected[mark] = problem
        self._collect_newer()
        return progress

    def take(self, serial: int, changed: Mapping[FragmentKey, FragmentOutput | None], *, is_new: bool) -> None:
        """Note what the render with the number *serial* gave that the one before did not, None for what is gone.

        *is_new*: all that it does not name is gone. Numbers must ascend.
        """
        self._pending.append((serial, is_new, dict(changed)))
        if len(self._pending) > _MOST_PENDING:
            # Nobody has accepted anything for long: the oldest two will be accepted together.
            (_, first_new, first), (number, second_new, second) = self._pending[:2]
            merged = second if second_new else first | second
            self._pending[:2] = [(number, first_new or second_new, merged)]

    def prepare(self, serial: int) -> None:
        """Note that what the render with the number *serial* gave has passed phase 1.

        It may be deployed before phase 2 has come to it, so an object that breaks meanwhile falls back to it.
        """
        for number, _, changed in self._pending:
            if self._prepared < number <= serial:
                self._newer.update(changed)
        self._prepared = serial

    def distrust(self, serial: int) -> None:
        """Note that HAProxy refuses what the render with the number *serial* gave, and nobody knows for which part."""
        self._distrusted = serial
        self._collect_newer()

    def _collect_newer(self) -> None:
        # Another dictionary: a thread may be reading the former one.
        newer: dict[FragmentKey, FragmentOutput | None] = {}
        for number, _, changed in self._pending:
            if self._distrusted < number <= self._prepared:
                bad = {_object_of(key) for key in self._rejected if self._is_rejected(key, changed.get(key))}
                # Of an object that was refused then, what it was before is the newest that is as good as known.
                newer.update(
                    changed
                    if not bad
                    else {key: output for key, output in changed.items() if _object_of(key) not in bad}
                )
        self._newer = newer

    def _is_rejected(self, key: FragmentKey, output: FragmentOutput | None) -> bool:
        rejected = self._rejected[key]
        return output is not None and (output.digest() in rejected or output.edition in rejected)

    def accept(self, serial: int, refusals: Collection[Refusal]) -> None:
        """Take what the render with the number *serial* gave as good: a configuration with it is valid."""
        while self._pending and self._pending[0][0] <= serial:
            _, is_new, changed = self._pending.pop(0)
            if is_new:
                self._good = {}
            for key, output in changed.items():
                if output is None or output.is_closing:
                    self._good.pop(key, None)
                else:
                    self._good[key] = output
        self._inherited = frozenset()
        self._collect_newer()
        still = {refusal.key for refusal in refusals}
        self._rejected = {key: digests for key, digests in self._rejected.items() if key in still}

    def update(
        self, refusals: tuple[Refusal, ...], find_fields: FindFields = lambda _ref, _message: ()
    ) -> tuple[list[QuarantinedObject], list[QuarantinedObject]]:
        """Take *refusals* as what is held now; return what is held newly or for another reason, and what no longer.

        What *find_fields* finds of an object becomes the path of its problem.
        """
        if refusals is self._refusals:
            return [], []
        self._refusals = refusals
        now: dict[ResourceRef, QuarantinedObject] = {}
        for refusal in refusals:
            subject = refusal.subject
            ref = ResourceRef(subject.kind, subject.namespace, subject.name)
            first = now.get(ref)
            now[ref] = QuarantinedObject(
                ref=ref,
                version=subject.resource_version,
                problem=first.problem if first else refusal.problem,
                has_stand_in=refusal.has_stand_in or (first is not None and first.has_stand_in),
            )
        found, self._found = self._found, now
        news = [ref for ref, held in now.items() if found.get(ref) != held]
        before, self._objects = self._objects, {ref: self._objects.get(ref, held) for ref, held in now.items()}
        for ref in news:
            self._objects[ref] = _placed(now[ref], find_fields(ref, now[ref].problem.message))
        return [self._objects[ref] for ref in news], [held for ref, held in before.items() if ref not in now]


def _placed(held: QuarantinedObject, fields: tuple[str, ...]) -> QuarantinedObject:
    if not fields:
        return held
    problem = held.problem
    problem = msgspec.structs.replace(problem, path=", ".join(fields), message=without_emitter(problem.message))
    return msgspec.structs.replace(held, problem=problem)


def _object_of(key: FragmentKey) -> tuple[str, str, str]:
    return key.kind, key.namespace, key.name
