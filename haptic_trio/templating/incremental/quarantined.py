"""Quarantined objects: when one fragment of an object fails, all its fragments use fallbacks from one configuration.

The fragments still render from the current object, which decides when it is
released, but that output is not used. Lookups of other fragments find the
object as it was in the fallback (see `pipeline.session`). Fallbacks come from
the newest configuration that passed phase 1, or, if one of them is unusable,
from the newest that HAProxy accepted. A fallback without an access guard that
the object now asks for is unusable. Without usable fallbacks, the object is
rejected: its fragments output the text that the template has for this case,
mostly nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import TYPE_CHECKING, Any

from haptic_trio.templating.incremental.outputs import BodyResult, FragmentOutput, Paused, Recall
from haptic_trio.templating.incremental.questions import Dependency
from haptic_trio.templating.incremental.records import Child, Kept, ObjectId, Root, Trace, Unit
from haptic_trio.templating.values.subjects import FragmentKey, Rejection, Subject

if TYPE_CHECKING:
    from haptic_trio.templating.incremental.run import RenderRun


class Fallback(Enum):
    """Output of the fragments of a quarantined object."""

    PREPARED = "prepared"
    """Their newest outputs that passed phase 1, checked by phase 2 or not."""
    VALID = "valid"
    """Their outputs in the last configuration that was valid."""
    CLOSED = "closed"
    """No output, or the text for a rejected object."""


class QuarantinedObjects:
    """Decides which objects are quarantined; one for all renders of a run."""

    def __init__(self) -> None:
        self._fallbacks: dict[ObjectId, Fallback] = {}
        self._unusable: set[ObjectId] = set()
        """Objects with a fallback that turned out to be unusable."""
        self._returned: set[ObjectId] = set()
        """Objects that have been released in this render."""
        self._lasting: dict[ObjectId, tuple[Rejection, ...]] = {}
        """Objects that failed again after their release in this render, with the reason: they stay quarantined."""
        self._found: dict[FragmentKey, tuple[FragmentOutput | None, FragmentOutput | None]] = {}
        """Fallbacks of fragments whose own outputs are not used: the prepared and the valid one."""
        self._demands: dict[FragmentKey, frozenset[str]] = {}
        """Guards that fragments ask for whose own outputs are not used."""
        self._demanding: set[ObjectId] = set()
        """Objects whose fragments ask for other guards than before."""
        self._failures: dict[FragmentKey, BodyResult] = {}
        """Results of fragments that failed when they last rendered."""
        self._known: set[FragmentKey] = set()
        """Those of them that render again only to use another fallback."""
        self._settled_for: tuple[Rejection, ...] | None = None
        self._paused = Paused()

    def __bool__(self) -> bool:
        return bool(self._fallbacks)

    def for_trial(self) -> "QuarantinedObjects":
        """Return the same decisions; what is noted there does not count."""
        trial = QuarantinedObjects()
        trial._fallbacks = self._fallbacks
        return trial

    def concerns(self, asked: Iterable[Dependency]) -> bool:
        """Whether *asked* has the question of an object that is quarantined now; see `question_of`."""
        return any(question[0] == "quarantined" and question[1:] in self._fallbacks for question in asked)

    @property
    def objects(self) -> tuple[ObjectId, ...]:
        """The objects that are quarantined now."""
        return tuple(self._fallbacks)

    def fallback_versions(self, run: "RenderRun") -> dict[ObjectId, Any]:
        """Return the objects that are served by a fallback, each in the version from which that was rendered."""
        found: dict[ObjectId, Any] = {}
        for object_id, fallback in self._fallbacks.items():
            if fallback is Fallback.CLOSED:
                continue
            for key in _keys_of(run, object_id):
                output = run.recall.prepared(key) if fallback is Fallback.PREPARED else run.recall.valid.get(key)
                if output is not None and output.resource is not None:
                    found[object_id] = output.resource
                    break
        return found

    def fallback_of(self, subject: Subject) -> Fallback | None:
        """Return the kind of fallback of *subject*; None if it is not quarantined."""
        return self._fallbacks.get(id_of_subject(subject)) if self._fallbacks else None

    def give_up(self, subject: Subject) -> None:
        """Record that a fallback of *subject* is unusable, and so are those of the same configuration."""
        if self.fallback_of(subject) in (Fallback.PREPARED, Fallback.VALID):
            self._unusable.add(id_of_subject(subject))

    def demand(self, key: FragmentKey, guards: frozenset[str]) -> None:
        """Note that the fragment *key* is to be guarded by *guards*, although its own output is not used."""
        if self._demands.get(key, frozenset()) != guards:
            self._demands[key] = guards
            self._demanding.add(_id_of_key(key))

    def find(self, recall: Recall, key: FragmentKey, fallback: Fallback | None) -> FragmentOutput | None:
        """Return the fallback that the fragment *key* outputs; None without one."""
        prepared, valid = self._found[key] = recall.prepared(key), recall.valid.get(key)
        if fallback is Fallback.CLOSED:
            return None
        return valid if fallback is Fallback.VALID else prepared

    def others_than(self, recall: Recall) -> set[FragmentKey]:
        """Return the fragments for which *recall* has others than those that were found."""
        return {
            key
            for key, (prepared, valid) in self._found.items()
            if recall.prepared(key) is not prepared or recall.valid.get(key) is not valid
        }

    def forget(self, key: FragmentKey) -> None:
        """Note that the own output of the fragment *key* is used."""
        self._demands.pop(key, None)
        self._found.pop(key, None)
        self._failures.pop(key, None)

    def fail(self, key: FragmentKey, made: BodyResult) -> None:
        """Record the failed result *made* of the fragment *key*."""
        self._failures[key] = made

    def known_failure(self, key: FragmentKey) -> BodyResult | None:
        """Return the failed result of the fragment *key* if nothing has changed for it since; otherwise None."""
        if key not in self._known:
            return None
        self._known.discard(key)
        return self._failures.get(key)

    def retry(self, found: ObjectId) -> None:
        """Note that something has changed for fragments of an object."""
        if self._known:
            self._known = {key for key in self._known if _id_of_key(key) != found}

    def forget_gone(self, unit: Unit, trace: Trace) -> None:
        """Forget fragments that *unit* has had before, and *trace*, its newest rendering, has not."""
        if self._found:
            for key in _keys_in(unit) - _keys_in(trace):
                self.forget(key)

    def lasting(self, known: tuple[Rejection, ...]) -> tuple[Rejection, ...]:
        """Return the rejections that keep objects quarantined although no fragment fails now, ordered by object.

        *known* are the rejections of this render. Which of them came first depends on the renders before.
        """
        if not self._lasting:
            return ()
        failing = {id_of_subject(rejection.subject) for rejection in known}
        return tuple(
            rejection for found in sorted(self._lasting) if found not in failing for rejection in self._lasting[found]
        )

    def pause(self, run: "RenderRun") -> set[FragmentKey]:
        """Take what is paused for this render; return the fragments of which that differs from the render before."""
        before, self._paused = self._paused, run.recall.paused
        if self._paused == before:
            return set()
        keys = {*run.produced.snapshot(), *(rejection.key for rejection in run.rejections)}
        return {key for key in keys if self._paused.problem_of(key) != before.problem_of(key)}

    def restart(self, run: "RenderRun", changed: set[FragmentKey]) -> None:
        """Begin another render; *changed* are fragments whose fallbacks or blocked outputs have changed."""
        if self._lasting:
            self._lasting.clear()
            run.forget_rejections()
            self._settled_for = None
        self._returned.clear()
        self._known.clear()
        for found in {_id_of_key(key) for key in changed} & self._fallbacks.keys():
            # Decided again, with what is known now.
            del self._fallbacks[found]
            self._settled_for = None

    def settle(self, run: "RenderRun") -> bool:
        """Decide again, after everything has been rendered; True if fragments of some object have to be rendered again.

        In one render an object is released at most once, so that this comes to an end.
        """
        rejections = run.rejections
        if rejections is self._settled_for and not self._unusable and not self._demanding:
            return False
        failing: dict[ObjectId, list[Rejection]] = {}
        for rejection in rejections:
            if not rejection.is_apart:
                failing.setdefault(id_of_subject(rejection.subject), []).append(rejection)
        released = self._fallbacks.keys() - failing.keys()
        added = dict.fromkeys(found for found in failing if found not in self._fallbacks)
        worse = {found for found in self._unusable if found in self._fallbacks}
        self._unusable.clear()
        self._returned |= released
        for found in released:
            del self._fallbacks[found]
        for found in added:
            self._fallbacks[found] = self._fallback_for(run, found)
            if found in self._returned:
                self._lasting[found] = tuple(failing[found])
                run.forget_rejections()
        for found in worse - released:
            first = self._fallbacks[found] is Fallback.PREPARED
            self._fallbacks[found] = self._fallback_for(run, found, without_prepared=True) if first else Fallback.CLOSED
        others = set()
        for found in self._demanding & self._fallbacks.keys() - added.keys() - worse:
            fallback = self._fallback_for(run, found)
            if fallback is not self._fallbacks[found]:
                self._fallbacks[found] = fallback
                others.add(found)
        self._demanding.clear()
        self._settled_for = run.rejections
        changed = {*released, *added, *worse, *others}
        for found in changed:
            touch_object(run, found)
            # Whether these fail is known, and may have taken them all the time that a fragment has.
            self._known.update(rejection.key for rejection in failing.get(found, ()) if rejection.key in self._failures)
        return bool(changed)

    def _fallback_for(self, run: "RenderRun", found: ObjectId, *, without_prepared: bool = False) -> Fallback:
        """Return the first kind of fallback that is usable: HAProxy rejects none of its outputs, and they have all
        guards that the object now asks for.
        """
        keys, recall = set(_keys_of(run, found)), run.recall
        demands: set[str] = set()
        for key in keys:
            now = run.produced.get(key)
            demands |= self._demands.get(key, now.guards if now is not None else frozenset())
        if not without_prepared and _are_usable(recall, {key: recall.prepared(key) for key in keys}, demands):
            return Fallback.PREPARED
        if _are_usable(recall, {key: recall.valid.get(key) for key in keys}, demands):
            return Fallback.VALID
        return Fallback.CLOSED


def settle_rounds(run: "RenderRun") -> bool:
    """Decide again whose password hashes find room; True if fragments have to be rendered again for that."""
    keys = run.shares.overall.settle(run.recall, run.rejections)
    if keys:
        touch_fragments(run, set(keys))
    for key in keys:
        run.quarantined.retry(_id_of_key(key))
    return bool(keys)


def touch_fragments(run: "RenderRun", keys: set[FragmentKey]) -> None:
    """Make the fragments *keys* pending; visits all fragments."""
    for root in run.roots.values():
        if _concerns(root, keys):
            root.is_valid = False
            for kept in root.kept.values():
                kept.is_valid = kept.is_valid and not _concerns(kept.trace, keys)
        for region in root.regions:
            region.pending.update(child for child in region.children.values() if _concerns(child, keys))


def _concerns(unit: Unit | Trace, keys: set[FragmentKey]) -> bool:
    return not keys.isdisjoint(unit.outputs) or any(rejection.key in keys for _, rejection in unit.rejections)


def _keys_in(unit: Unit | Trace) -> set[FragmentKey]:
    return {*unit.outputs, *(rejection.key for _, rejection in unit.rejections)}


def touch_object(run: "RenderRun", found: ObjectId) -> None:
    """Make all fragments of an object pending; the cost depends on these only."""
    for child in turns_of(run, found):
        child.region.pending.add(child)
    run.touch(question_of(found))


def turns_of(run: "RenderRun", found: ObjectId) -> Iterator[Child]:
    """Yield the turns of an object."""
    for root in run.roots.values():
        for region in root.regions:
            child = region.children.get(found)
            if child is not None:
                yield child


def is_turn_of(run: "RenderRun", subject: Subject) -> bool:
    """Whether the current unit is the turn of an `{% each %}` over this object."""
    unit = run.unit
    return isinstance(unit, Child) and unit.object_id == id_of_subject(subject)


def question_of(found: ObjectId) -> Dependency:
    """Return the question of a fragment that is not a turn of an `{% each %}` over its object."""
    return ("quarantined", *found)


def id_of_subject(subject: Subject) -> ObjectId:
    """Return the identity of the object of *subject*."""
    return subject.namespace, subject.name, subject.kind


def _are_usable(
    recall: Recall, outputs: Mapping[FragmentKey, FragmentOutput | None], demands: AbstractSet[str]
) -> bool:
    known = {key: output for key, output in outputs.items() if output is not None}
    if any(recall.is_blocked(key, output) for key, output in known.items()):
        return False
    if not demands <= frozenset().union(*(output.guards for output in known.values())):
        return False
    # Without output the object was not served: it had another class then, for example.
    return any(output.text.strip() or output.files for output in known.values())


def _keys_of(run: "RenderRun", found: ObjectId) -> Iterator[FragmentKey]:
    for record in _records_of(run, found):
        for key in record.outputs:
            if _id_of_key(key) == found:
                yield key
        for _, rejection in record.rejections:
            if id_of_subject(rejection.subject) == found:
                yield rejection.key


def _records_of(run: "RenderRun", found: ObjectId) -> Iterator[Child | Root | Trace]:
    yield from turns_of(run, found)
    for node in run.index.askers(question_of(found)):
        if isinstance(node, Kept):
            yield node.trace
        elif isinstance(node, Child | Root):
            yield node


def _id_of_key(key: FragmentKey) -> ObjectId:
    return key.namespace, key.name, key.kind
