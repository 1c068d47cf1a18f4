"""Quarantined objects: when one fragment of an object fails, all its fragments use fallbacks from one configuration.

The fragments still render from the current object, which decides when it is
released, but that output is not used. Lookups of other fragments find the
object as it was in the fallback (see `pipeline.session`). Fallbacks come from
the newest configuration that passed phase 1, or, if one of them is unusable,
from the newest that HAProxy accepted. A fallback without an access guard that
the object now asks for is unusable, and so is an output of a deleted object
that had the same name. Without usable fallbacks, the object is rejected: its
fragments output the text that the template has for this case, mostly nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeAlias

from haptic_trio.templating.incremental.dependencies import keys_of, records_of
from haptic_trio.templating.incremental.outputs import BodyResult, Earlier, Fallback, FragmentOutput, Paused, Recall
from haptic_trio.templating.incremental.questions import Dependency
from haptic_trio.templating.incremental.records import (
    ObjectId,
    Trace,
    Unit,
    id_of_key,
    id_of_subject,
    keys_in,
    turns_of,
)
from haptic_trio.templating.incremental.settling.blank_fallbacks import BlankFallbacks
from haptic_trio.templating.incremental.settling.contested_files import ContestedFiles
from haptic_trio.templating.incremental.settling.renewals import Renewals
from haptic_trio.templating.incremental.settling.run_state import RunState
from haptic_trio.templating.values.subjects import FragmentKey, Rejection, Subject, uid_of

Choices: TypeAlias = tuple[dict[ObjectId, Fallback], frozenset[ObjectId]]
"""The fallbacks of objects, and the objects whose good outputs are used as they were."""


class QuarantinedObjects:
    """Decides which objects are quarantined; one for all renders of a run."""

    def __init__(self, contested: ContestedFiles) -> None:
        self._contested = contested
        self._fallbacks: dict[ObjectId, Fallback] = {}
        self._unusable: set[ObjectId] = set()
        """Objects with a fallback that turned out to be unusable."""
        self._returned: set[ObjectId] = set()
        """Objects that have been released in this render."""
        self._lasting: dict[ObjectId, tuple[Rejection, ...]] = {}
        """Objects that failed again after their release in this render, with the reason: they stay quarantined."""
        self._reasons: dict[ObjectId, tuple[Rejection, ...]] = {}
        """Why objects were quarantined when that was last decided."""
        self._held: dict[ObjectId, tuple[Rejection, ...]] = {}
        """Objects that do not fail any more, with the former reason: they stay quarantined until `release`."""
        self._undecided: set[ObjectId] = set()
        """Objects that were quarantined before this render, and of which that is decided again."""
        self._failing_soon: set[ObjectId] = set()
        """Objects that will fail with the change that is being rendered ahead."""
        self._found: dict[FragmentKey, Earlier] = {}
        """Fallbacks of fragments whose own outputs are not used."""
        self._demands: dict[FragmentKey, frozenset[str]] = {}
        """Guards that fragments ask for whose own outputs are not used."""
        self._demanding: set[ObjectId] = set()
        """Objects whose fragments ask for other guards than before, or have a fallback of another object."""
        self._failures: dict[FragmentKey, tuple[BodyResult, ObjectId]] = {}
        """Results of fragments that failed when they last rendered, and the objects in whose turns they did."""
        self._known: set[FragmentKey] = set()
        """Those of them that render again only to use another fallback."""
        self._settled_for: tuple[Rejection, ...] | None = None
        self._paused = Paused()
        self.renewals = Renewals()
        self._blank = BlankFallbacks()

    def __bool__(self) -> bool:
        return bool(self._fallbacks)

    def for_trial(self) -> "QuarantinedObjects":
        """Return the same decisions; what is noted there does not count."""
        trial = QuarantinedObjects(ContestedFiles())
        trial._fallbacks, trial.renewals = self._fallbacks, self.renewals.for_trial()
        trial._blank = self._blank.for_trial()
        return trial

    def choices(self) -> Choices:
        """Return which fallbacks are used; see `return_to`."""
        return dict(self._fallbacks), self.renewals.kept

    def return_to(self, run: RunState, choices: Choices) -> bool:
        """Let objects that are still quarantined use the fallbacks of *choices* again; return whether any changes."""
        fallbacks, kept = choices
        changed = {found for found, one in self._fallbacks.items() if fallbacks.get(found, one) is not one}
        changed |= self.renewals.return_to(kept, fallbacks.keys() & self._fallbacks.keys())
        for found in changed:
            self._fallbacks[found] = fallbacks[found]
            run.touch_object(found)
        return bool(changed)

    def concerns(self, asked: Iterable[Dependency]) -> bool:
        """Whether *asked* has the question of an object that is quarantined now; see `question_of`."""
        return any(isinstance(one, tuple) and one[0] == "quarantined" and one[1:] in self._fallbacks for one in asked)

    @property
    def objects(self) -> tuple[ObjectId, ...]:
        """The objects that are quarantined now."""
        return tuple(self._fallbacks)

    def fallback_versions(self, run: RunState) -> dict[ObjectId, Any]:
        """Return the objects that are served by a fallback, each in the version from which that was rendered."""
        versions = {found: self.version_of(run, found, fallback) for found, fallback in self._fallbacks.items()}
        return {found: version for found, version in versions.items() if version is not None}

    def fallback_of(self, subject: Subject) -> Fallback | None:
        """Return the kind of fallback of *subject*; None if it is not quarantined."""
        return self._fallbacks.get(id_of_subject(subject)) if self._fallbacks else None

    def is_blank(self, subject: Subject) -> bool:
        """Whether the fallback of *subject* outputs nothing at present."""
        return id_of_subject(subject) in self._blank

    def give_up(self, subject: Subject) -> None:
        """Record that a fallback of *subject* is unusable, and so are those of the same configuration."""
        if self.fallback_of(subject) in (Fallback.PREPARED, Fallback.VALID):
            self._unusable.add(id_of_subject(subject))

    def demand(self, key: FragmentKey, guards: frozenset[str]) -> None:
        """Note that the fragment *key* is to be guarded by *guards*, although its own output is not used."""
        if self._demands.get(key, frozenset()) != guards:
            self._demands[key] = guards
            self._demanding.add(id_of_key(key))

    def find(self, recall: Recall, key: FragmentKey, fallback: Fallback | None, resource: Any) -> FragmentOutput | None:
        """Return the fallback that the fragment *key* of *resource* outputs; None without one."""
        # A Secret is often recreated when its certificate is renewed, and many objects depend on it.
        uid = "" if key.kind == "Secret" else uid_of(resource)
        self._blank.note(key)
        earlier = self._found[key] = Earlier(recall.prepared(key), recall.valid.get(key), uid)
        if fallback is Fallback.CLOSED:
            return None
        found = earlier.valid if fallback is Fallback.VALID else earlier.prepared
        if earlier.is_of_another(found):
            self._demanding.add(id_of_key(key))
            return None
        return found

    def renew(self, key: FragmentKey, output: FragmentOutput | None) -> None:
        """Note the *output* of the fragment *key* for the version of its fallback; None if that fails."""
        self.renewals.note(key, output)
        if output is not None and output.original is not None and output.guards != output.original.guards:
            self._demanding.add(id_of_key(key))
        self.offer(key)

    def offer(self, key: FragmentKey, *, is_known: bool = True) -> None:
        """Take the files of the fallbacks of *key* into account, if it *is_known* which these are."""
        earlier = self._found[key][:2] if is_known else ()
        self._contested.offer(key, [self.renewals.in_use(key, one) for one in earlier])

    def forget(self, key: FragmentKey) -> None:
        """Note that the own output of the fragment *key* is used."""
        self._demands.pop(key, None)
        if self._found.pop(key, None) is not None:
            self._blank.note(key)
        self._failures.pop(key, None)
        self._known.discard(key)
        self.renewals.forget(key)
        self._contested.offer(key, ())

    def note_result(self, key: FragmentKey, made: BodyResult, within: ObjectId) -> None:
        """Record the result *made* of the fragment *key* in the turn of the object *within*, if it failed."""
        self._failures.pop(key, None)
        self._known.discard(key)
        if made.problem is not None:
            self._failures[key] = made, within

    def known_failure(self, key: FragmentKey) -> BodyResult | None:
        """Return the failed result of the fragment *key* if nothing has changed for it since; otherwise None."""
        if key not in self._known:
            return None
        self._known.discard(key)
        return self._failures[key][0]

    def retry(self, found: ObjectId) -> None:
        """Note that something has changed for fragments of an object."""
        if self._known:
            self._known = {key for key in self._known if found not in (id_of_key(key), self._failures[key][1])}

    def forget_gone(self, unit: Unit, trace: Trace) -> None:
        """Forget fragments that *unit* has had before, and *trace*, its newest rendering, has not."""
        if self._found:
            for key in keys_in(unit) - keys_in(trace):
                self.forget(key)

    def lasting(self, known: tuple[Rejection, ...]) -> tuple[Rejection, ...]:
        """Return the rejections that keep objects quarantined although no fragment fails now, ordered by object.

        *known* are the rejections of this render. Which of them came first depends on the renders before.
        """
        lasting = {**self._held, **self._lasting}
        if not lasting:
            return ()
        failing = {id_of_subject(rejection.subject) for rejection in known}
        return tuple(rejection for found in sorted(lasting) if found not in failing for rejection in lasting[found])

    @property
    def staying(self) -> Iterator[ObjectId]:
        """The objects that stay quarantined whether they fail or not."""
        yield from self._held
        yield from self._lasting

    def choose_again(self, found: Iterable[ObjectId]) -> None:
        """Choose the fallbacks of the objects *found* again, if these are quarantined: others may be usable now."""
        self._demanding.update(found)

    @property
    def held(self) -> tuple[ObjectId, ...]:
        """The objects that stay quarantined although they do not fail, until `release`."""
        return tuple(self._held)

    def hold_as(self, run: RunState, other: "QuarantinedObjects") -> None:
        """Keep the objects quarantined that *other* holds."""
        self._held = dict(other._held)  # noqa: SLF001  the two are of one class
        run.forget_rejections()

    def release(self, run: RunState, found: ObjectId) -> None:
        """Let the next render release an object that was held."""
        if self._held.pop(found, None) is not None:
            run.forget_rejections()
            self._settled_for = None

    def expect(self, found: ObjectId, *, is_failing: bool) -> None:
        """Note whether the object *found* will fail with the change that has been rendered ahead."""
        (self._failing_soon.add if is_failing else self._failing_soon.discard)(found)

    def quarantine_expected(self, run: RunState, changed: Iterable[ObjectId]) -> bool:
        """Quarantine those of *changed* that are expected to fail; return whether there are any.

        Others then find these in the version that they know. The records are those before the change.
        """
        expected = [found for found in changed if found in self._failing_soon and found not in self._fallbacks]
        self._failing_soon.difference_update(expected)
        quarantined = False
        for found in expected:
            known = next(turns_of(run.roots, found), None)
            fallback = self._fallback_for(run, found)
            if known is not None and self.version_of(run, found, fallback) is known.resource:
                self._fallbacks[found] = fallback
                # It may not fail after all.
                self._settled_for = None
                run.touch_object(found)
                quarantined = True
        return quarantined

    def pause(self, run: RunState) -> set[FragmentKey]:
        """Take what is paused for this render; return the fragments of which that differs from the render before."""
        before, self._paused = self._paused, run.recall.paused
        if self._paused == before:
            return set()
        keys = {*run.produced.snapshot(), *(rejection.key for rejection in run.rejections)}
        return {key for key in keys if self._paused.problem_of(key) != before.problem_of(key)}

    def restart(self, run: RunState, changed: set[FragmentKey]) -> None:
        """Begin another render; *changed* are fragments whose blocked outputs have changed."""
        if self._lasting:
            for found in self._due(run):
                del self._lasting[found]
            run.forget_rejections()
            self._settled_for = None
        self._returned.clear()
        self.renewals.restart()
        self._known.clear()
        others = {id_of_key(key) for key, earlier in self._found.items() if earlier.differs(run.recall, key)}
        for found in others:
            run.touch_object(found)
        for found in ({id_of_key(key) for key in changed} | others) & self._fallbacks.keys():
            # Decided again, with what is known now.
            del self._fallbacks[found]
            self._undecided.add(found)
            self._settled_for = None

    def _due(self, run: RunState) -> set[ObjectId]:
        """Return the lasting objects that this render may release: changed ones, and the one that has waited longest.

        If it released all of them, they would fail together again, in each render.
        """
        regions = [region for root in run.roots.values() for region in root.regions]
        pending = {child.object_id for region in regions for child in region.pending}
        gone = (found for found in self._lasting if next(records_of(run.roots, run.index, found), None) is None)
        return {next(iter(self._lasting)), *(pending & self._lasting.keys()), *gone}

    def settle(
        self, run: RunState, find_heavy: Callable[[Iterable[ObjectId]], set[ObjectId]] = lambda _: set()
    ) -> bool:
        """Decide again, after everything has been rendered; True if fragments of some object have to be rendered again.

        In one render an object is released at most once, so that this comes to an end. Those that *find_heavy*
        returns are not released, but held.
        """
        for found in [found for found in self._held if next(records_of(run.roots, run.index, found), None) is None]:
            # It is deleted.
            self.release(run, found)
        rejections = run.rejections
        noted = self._unusable, self._demanding, self.renewals.is_undecided, self._blank.is_undecided
        if rejections is self._settled_for and not any(noted):
            return False
        failing: dict[ObjectId, list[Rejection]] = {}
        for rejection in rejections:
            if not rejection.is_apart:
                failing.setdefault(id_of_subject(rejection.subject), []).append(rejection)
        released = (self._fallbacks.keys() | self._undecided) - failing.keys()
        released -= self._hold(run, find_heavy(released) if released else set(), failing)
        self._undecided.clear()
        self._reasons = {found: tuple(one) for found, one in failing.items()}
        added = dict.fromkeys(found for found in failing if found not in self._fallbacks)
        worse = {found for found in self._unusable if found in self._fallbacks}
        self._unusable.clear()
        self._returned |= released
        for found in released:
            self._fallbacks.pop(found, None)
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
        changed = {*released, *added, *worse, *others, *self.renewals.settle()}
        # At last, when the outputs are those that will be served.
        changed = changed or self._blank.settle(partial(self._served_of, run))
        for found in changed:
            run.touch_object(found)
        # Whether these fail is known, and may have taken them all the time that a fragment has.
        keys = {rejection.key for found in changed for rejection in failing.get(found, ())}
        self._known |= keys & self._failures.keys()
        return bool(changed)

    def _hold(self, run: RunState, heavy: set[ObjectId], failing: dict[ObjectId, list[Rejection]]) -> set[ObjectId]:
        """Hold the *heavy* objects, and add them to the *failing* ones; return them."""
        held = {found: self._reasons[found] for found in heavy if found in self._reasons}
        if held:
            self._held |= held
            failing.update((found, list(reasons)) for found, reasons in held.items())
            run.forget_rejections()
        return set(held)

    def _fallback_for(self, run: RunState, found: ObjectId, *, without_prepared: bool = False) -> Fallback:
        """Return the first kind of fallback that is usable, and whose files no other object has."""
        for kind, _outputs in self.usable_fallbacks(run, found, without_prepared=without_prepared):
            if not run.contested.is_denied(found, kind):
                return kind
        return Fallback.CLOSED

    def usable_fallbacks(
        self, run: RunState, found: ObjectId, *, without_prepared: bool = False
    ) -> Iterator[tuple[Fallback, tuple[FragmentOutput, ...]]]:
        """Yield the kinds of fallbacks that are usable, with their outputs.

        HAProxy rejects none of these, and they have all guards that the object now asks for.
        """
        keys, recall = set(keys_of(run.roots, run.index, found)), run.recall
        demands: set[str] = set()
        for key in keys:
            now = run.produced.get(key)
            demands |= self._demands.get(key, now.guards if now is not None else frozenset())
        for kind in (Fallback.VALID,) if without_prepared else (Fallback.PREPARED, Fallback.VALID):
            outputs = self._fallbacks_of(run, found, kind)
            used = tuple(self.renewals.in_use(key, one) for key, one in outputs.items())
            if recall.are_usable(outputs, used, demands):
                yield kind, used

    def _fallbacks_of(self, run: RunState, found: ObjectId, fallback: Fallback) -> dict[FragmentKey, FragmentOutput]:
        """Return the outputs of the object's fragments that *fallback* means, without those of another object."""
        keys, recall = tuple(keys_of(run.roots, run.index, found)), run.recall
        # All fragments render from the same version of the object; those with own outputs are not in `_found`.
        now = next((self._found[key] for key in keys if key in self._found), Earlier(None, None))
        outputs = {
            key: recall.prepared(key) if fallback is Fallback.PREPARED else recall.valid.get(key) for key in keys
        }
        return {key: one for key, one in outputs.items() if one is not None and not now.is_of_another(one)}

    def _served_of(self, run: RunState, found: ObjectId) -> Iterator[FragmentOutput]:
        """Yield what the object outputs, if it has a fallback."""
        if self._fallbacks.get(found, Fallback.CLOSED) is not Fallback.CLOSED:
            outputs = map(run.produced.get, keys_of(run.roots, run.index, found))
            yield from (output for output in outputs if output is not None)

    def version_of(self, run: RunState, found: ObjectId, fallback: Fallback) -> Any | None:
        """Return the version of the object from which its *fallback* was rendered; None without one."""
        if fallback is Fallback.CLOSED:
            return None
        outputs = self._fallbacks_of(run, found, fallback)
        return next((one.resource for one in outputs.values() if one.resource is not None), None)
