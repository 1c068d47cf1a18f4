"""Quarantine: objects that are rejected, the reason, and their fallback; also warnings for owners of objects.

The unit is an object with all its *fragments*. If one fragment fails, all of
them fall back to the newest outputs that passed the parser, or else to those
of the last valid configuration. An object without usable outputs is not served. A
fragment renders again when a lookup result changes, so a correction of
another object can release the object as well. An output that HAProxy rejected
is remembered by its digest, and counts as failed for as long as the fragment
returns it.

The next configuration takes over the good outputs. If a new configuration of haptic-trio fails
on objects that the previous one rendered, the templates are at fault, not the
objects: the cycle fails, and the deployed configuration stays.
"""

from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

import msgspec

from haptic_trio.errors import Problem
from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.pipeline.rejection.setbacks import Setbacks
from haptic_trio.templating.incremental.outputs import FragmentOutput, Paused, Recall
from haptic_trio.templating.values.subjects import FragmentKey, ObjectWarning, Rejection

NameFields = Callable[[ResourceRef, Problem], Problem]
"""Returns a problem of an object with the paths of the fields at fault."""

_MOST_PENDING: Final = 100


class QuarantinedObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object whose present version is not served."""

    ref: ResourceRef
    version: str
    problem: Problem
    """The first problem, if several fragments fail."""
    has_fallback: bool
    """Whether its last good output is served."""


class Quarantine:
    """Quarantined objects and good outputs of one configuration. Plain state without locks or tasks."""

    def __init__(self, settings: Mapping[str, Any] = MappingProxyType({})) -> None:
        """*settings* are the variables of the configuration."""
        self._settings = settings
        # Good outputs of former configurations with other settings, of objects that have been rejected since.
        self._outdated: dict[FragmentKey, FragmentOutput] = {}
        self._good: dict[FragmentKey, FragmentOutput] = {}
        self._rejected: dict[FragmentKey, dict[str, Problem]] = {}
        self._objects: dict[ResourceRef, QuarantinedObject] = {}
        # The same objects, with problems that do not name fields yet.
        self._found: dict[ResourceRef, QuarantinedObject] = {}
        self._rejections: tuple[Rejection, ...] = ()
        self.warnings: tuple[ObjectWarning, ...] = ()
        """Warnings for owners of objects, without duplicates; the same tuple until it changes."""
        self.reported_warnings: tuple[ObjectWarning, ...] = ()
        """The warnings that events have reported, also those of earlier configurations."""
        # Outputs that each render changed and that are not part of a valid configuration yet: its serial number,
        # whether it started from nothing, and the outputs.
        self._pending: list[tuple[int, bool, dict[FragmentKey, FragmentOutput | None]]] = []
        # Pending outputs that passed the parser and may be deployed already: those of renders up to `_prepared`,
        # except the renders up to `_distrusted`, which HAProxy rejected.
        self._newer: dict[FragmentKey, FragmentOutput | None] = {}
        self._prepared = 0
        self._distrusted = 0
        # Fragments that the previous configuration rendered without a failure, until the first valid generation.
        self._inherited: frozenset[FragmentKey] = frozenset()
        self.setbacks = Setbacks()
        """Objects on which HAProxy has failed repeatedly."""
        self._paused = Paused()

    @property
    def objects(self) -> tuple[QuarantinedObject, ...]:
        """Objects that are quarantined now."""
        return tuple(self._objects.values())

    @property
    def count(self) -> int:
        """Number of objects that are quarantined now."""
        return len(self._objects)

    def first_objects(self, most: int) -> tuple[QuarantinedObject, ...]:
        """Return at most *most* of the objects that are quarantined now."""
        return tuple(islice(self._objects.values(), most))

    def is_quarantined(self, ref: ResourceRef) -> bool:
        """Whether the object *ref* is quarantined now."""
        return ref in self._objects

    def successor(self, settings: Mapping[str, Any] = MappingProxyType({})) -> "Quarantine":
        """Return a quarantine for another configuration, with the good outputs as fallbacks and without rejections.

        *settings* are its variables. An object of which another value permitted
        an output keeps no good output: the new value may forbid it. May be
        called from another thread.
        """
        found, good, objects = Quarantine(settings), dict(self._good), tuple(self._objects)
        former = {_object_of(key) for key, output in good.items() if not _is_permitted(output, settings)}
        if former:
            good = {key: output for key, output in good.items() if _object_of(key) not in former}
        failing = {(ref.kind, ref.namespace, ref.name) for ref in objects}
        found._good = good
        found._outdated = dict(good) if settings != self._settings else self._outdated
        found._inherited = frozenset(good if not failing else (key for key in good if _object_of(key) not in failing))
        found.setbacks = self.setbacks.released()
        found.reported_warnings = self.reported_warnings
        return found

    @property
    def has_inherited(self) -> bool:
        """Whether `find_template_faults` may find any: no configuration has been valid yet."""
        return bool(self._inherited)

    def pause(self, now: float) -> None:
        """Let the next renders omit new versions of objects that wait at the clock time *now*."""
        self._paused = self.setbacks.paused(now)

    def recall(
        self,
        omitted: Mapping[FragmentKey, Problem] | None = None,
        instead: Mapping[FragmentKey, FragmentOutput] | None = None,
    ) -> Recall:
        """Return the good and rejected outputs for the next render.

        For a trial render, *omitted* fragments count as failed, and outputs in
        *instead* replace their good outputs.
        """
        good = ChainMap(dict(instead), self._good) if instead else self._good
        return Recall(good, self._rejected, omitted or {}, self._newer, self._paused, self._outdated)

    def find_suspects(
        self, serial: int, produced: Mapping[FragmentKey, FragmentOutput]
    ) -> dict[ResourceRef, tuple[FragmentKey, ...]]:
        """Return, by object, the fragments whose output is not part of a valid configuration yet, newest last.

        *produced* has the outputs of the render with the number *serial*.
        """
        found: dict[ResourceRef, dict[FragmentKey, None]] = {}
        for key in self._changed(lambda number: number <= serial):
            output, good = produced.get(key), self._good.get(key)
            if output is None or output is good or (good is not None and output.digest() == good.digest()):
                continue
            found.setdefault(ResourceRef(*_object_of(key)), {})[key] = None
        return {ref: tuple(keys) for ref, keys in found.items()}

    def find_newer(self, serial: int, produced: Mapping[FragmentKey, FragmentOutput]) -> frozenset[FragmentKey]:
        """Return the fragments whose output differs from *produced*, made by the render with the number *serial*."""
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
        self, produced: Mapping[FragmentKey, FragmentOutput], rejections: Collection[Rejection]
    ) -> tuple[Problem, ...]:
        """Return a problem for each fragment that fails for all objects, including objects that were good before.

        An object was good before if the previous configuration rendered the same version of it. A changed object may
        be at fault itself, and is ignored.
        """
        if not self._inherited or not rejections:
            return ()
        good = {_object_of(key): self._good[key].version for key in self._inherited}
        failed = {rejection.key for rejection in rejections}
        succeeded = {key.fragment for key in produced if key not in failed}
        faults: dict[str, Problem] = {}
        for rejection in rejections:
            is_good = good.get(_object_of(rejection.key)) == rejection.subject.resource_version
            if is_good and rejection.fragment not in succeeded:
                faults.setdefault(rejection.fragment, rejection.problem)
        return tuple(faults.values())

    def reject(
        self,
        suspects: Mapping[FragmentKey, Problem],
        produced: Mapping[FragmentKey, FragmentOutput],
        *,
        whole: Collection[FragmentKey] = (),
    ) -> bool:
        """Remember that HAProxy rejects the outputs of *suspects* in *produced*; False if no output is newly rejected.

        Fragments in *whole* stay rejected until the version of their object
        changes, whatever they return. Outputs that the previous configuration
        of haptic-trio served are never rejected because of the new one.
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
        """Record the outputs that the render with the number *serial* changed; None for a removed output.

        *is_new*: the render started from nothing, so *changed* has all outputs. Numbers must ascend.
        """
        good = {key: self._good_of(key, output) if output is not None else None for key, output in changed.items()}
        self._pending.append((serial, is_new, good))
        if len(self._pending) > _MOST_PENDING:
            # No valid configuration for long: merge the oldest two, which bounds the memory.
            (_, first_new, first), (number, second_new, second) = self._pending[:2]
            merged = second if second_new else first | second
            self._pending[:2] = [(number, first_new or second_new, merged)]

    def _good_of(self, key: FragmentKey, output: FragmentOutput) -> FragmentOutput:
        """Return what is the good output of the fragment *key* once *output* is valid."""
        if output.is_renewed and self._outdated.get(key) is output.original is not None:
            # It has the present settings, whether they change its content or not.
            return msgspec.structs.replace(output, original=None)
        return output.as_good()

    def prepare(self, serial: int) -> None:
        """Record that the parser accepted the render with the number *serial*.

        Its outputs may be deployed before `haproxy -c` ends, so an object that breaks meanwhile falls back to them.
        """
        for number, _, changed in self._pending:
            if self._prepared < number <= serial:
                self._newer.update(changed)
        self._prepared = serial

    def distrust(self, serial: int) -> None:
        """Record that HAProxy rejected the render with the number *serial* for an unknown part."""
        self._distrusted = serial
        self._collect_newer()

    def _collect_newer(self) -> None:
        # A new dictionary, since a thread may be reading the old one.
        newer: dict[FragmentKey, FragmentOutput | None] = {}
        for number, _, changed in self._pending:
            if self._distrusted < number <= self._prepared:
                bad = {_object_of(key) for key in self._rejected if self._is_rejected(key, changed.get(key))}
                # An object that was rejected in this render falls back to its outputs in earlier ones.
                newer.update(
                    changed
                    if not bad
                    else {key: output for key, output in changed.items() if _object_of(key) not in bad}
                )
        self._newer = newer

    def _is_rejected(self, key: FragmentKey, output: FragmentOutput | None) -> bool:
        rejected = self._rejected[key]
        return output is not None and (output.digest() in rejected or output.edition in rejected)

    def accept(self, serial: int, rejections: Collection[Rejection]) -> None:
        """Record that the render with the number *serial* is valid: its outputs, and all earlier ones, become good."""
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
        still = {_object_of(rejection.key) for rejection in rejections}
        self._outdated = {
            key: output
            for key, output in self._outdated.items()
            if _object_of(key) in still and self._good.get(key) is output
        }
        # HAProxy may reject what the good version of a rejected object has now, although no fragment fails for it.
        self._rejected = {key: digests for key, digests in self._rejected.items() if _object_of(key) in still}

    def update(
        self, rejections: tuple[Rejection, ...], name_fields: NameFields = lambda _ref, problem: problem
    ) -> tuple[list[QuarantinedObject], list[QuarantinedObject]]:
        """Quarantine the objects of *rejections*, and release all others.

        Returns the objects that are quarantined newly or for another reason,
        and the released objects. *name_fields* supplies the path of a problem.
        """
        if rejections is self._rejections:
            return [], []
        self._rejections = rejections
        now: dict[ResourceRef, QuarantinedObject] = {}
        for rejection in rejections:
            subject = rejection.subject
            ref = ResourceRef(subject.kind, subject.namespace, subject.name)
            first = now.get(ref)
            now[ref] = QuarantinedObject(
                ref=ref,
                version=subject.resource_version,
                problem=first.problem if first else rejection.problem,
                has_fallback=rejection.has_fallback or (first is not None and first.has_fallback),
            )
        found, self._found = self._found, now
        news = [ref for ref, entry in now.items() if found.get(ref) != entry]
        before, self._objects = self._objects, {ref: self._objects.get(ref, entry) for ref, entry in now.items()}
        for ref in news:
            self._objects[ref] = msgspec.structs.replace(now[ref], problem=name_fields(ref, now[ref].problem))
        return [self._objects[ref] for ref in news], [entry for ref, entry in before.items() if ref not in now]


def _is_permitted(output: FragmentOutput, settings: Mapping[str, Any]) -> bool:
    return all(name in settings and settings[name] == value for name, value in output.permits)


def _object_of(key: FragmentKey) -> tuple[str, str, str]:
    return key.kind, key.namespace, key.name
