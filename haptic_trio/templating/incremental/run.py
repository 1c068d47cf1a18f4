"""State of a run: shared by renders that belong together, kept for later ones.

A run serves one render of all templates of a configuration, or many: then
`touch` makes pending what depends on a change, and only that renders. Work may
be repeated, and work that is not done stays pending, so a render may be
abandoned at any moment.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from types import CodeType
from typing import Any, cast

from haptic_trio.templating.incremental.ahead import Ahead
from haptic_trio.templating.incremental.dependencies import Registrations
from haptic_trio.templating.incremental.outputs import FragmentOutput, Recall, frozen
from haptic_trio.templating.incremental.quarantined import QuarantinedObjects
from haptic_trio.templating.incremental.questions import Dependency, Question
from haptic_trio.templating.incremental.recorder import CURRENT, Recorder
from haptic_trio.templating.incremental.records import (
    Child,
    Kept,
    Module,
    Node,
    ObjectId,
    Region,
    Root,
    Trace,
    Unit,
    question_of,
    turns_of,
)
from haptic_trio.templating.incremental.shares import NamespaceShares
from haptic_trio.templating.values.limits import RenderLimits
from haptic_trio.templating.values.paths import FileKind, Paths, RenderedFile
from haptic_trio.templating.values.subjects import FragmentKey, ObjectWarning, Rejection, Subject
from haptic_trio.templating.values.versions import Versioned
from haptic_trio.templating.values.warning_list import WarningList


def _find_nothing(_question: Question) -> frozenset[str]:
    return frozenset()


class RenderRun(Recorder):
    """Records of all units, and what of them is invalid. Not to be shared between threads."""

    def __init__(
        self, limits: RenderLimits | None = None, *, paths: Paths | None = None, recall: Recall | None = None
    ) -> None:
        super().__init__(limits or RenderLimits(), paths or Paths())
        self.shares = NamespaceShares(self.limits)
        self.recall = recall or Recall()
        self.secret_stores: frozenset[str] = frozenset()
        """Names of the stores that hold Secrets."""
        self.endpoint_stores: frozenset[str] = frozenset()
        """Names of the stores that hold EndpointSlices."""
        self.find_addresses: Callable[[Question], frozenset[str]] = _find_nothing
        """Returns the addresses in EndpointSlices that a lookup finds now, and records that."""
        self.produced: Versioned[FragmentKey, FragmentOutput] = Versioned()
        """Output of each fragment, fallbacks included."""
        self.rendered = 0
        """Number of fragments that have been rendered so far."""
        self.turns_due = self.turns_done = 0
        """Turns that the present render has found pending so far, and those of them that it has rendered."""
        self.changed: set[FragmentKey] = set()
        """Fragments whose output was added, changed or removed; cleared by the caller."""
        self.changed_files: set[str] = set()
        """Paths of registered files that were added, changed or removed; cleared by the caller."""
        self.captured: set[CodeType] = set()
        """Bodies of `{% each %}` whose text is captured, so that they render in place."""
        self.opened: list[Region] = []
        """The regions that the current root has opened so far."""
        self.woken: list[Child] = []
        """Children that became pending because a file changed."""
        self.registrations = Registrations(self)
        """The objects that render again when a registered file changes hands."""
        self.ahead = Ahead()
        """Results of turns that were rendered for a change that is not taken in yet."""
        self.quarantined = QuarantinedObjects(self.contested)
        """The objects that are served by their fallbacks, since one of their fragments fails."""
        self.failed_for: Subject | None = None
        """The object whose fragment was being rendered when the newest render failed."""
        self._rejecting: dict[Unit, None] = {}
        self._rejections: tuple[Rejection, ...] | None = ()
        self._warnings = WarningList()
        self._blocked_before: dict[FragmentKey, tuple[str, ...]] = {}
        self._omitted_before: frozenset[FragmentKey] = frozenset()

    @property
    def files(self) -> dict[str, RenderedFile]:
        """Files registered while rendering, by path."""
        found = ((path, self.claims.first(path)) for path in self.claims)
        return {path: file for path, file in found if file is not None and file.kind is not FileKind.CLAIM}

    @property
    def rejections(self) -> tuple[Rejection, ...]:
        """The fragments that failed or are rejected, in the order of rendering."""
        if self._rejections is None:
            placed = [placed for unit in self._rejecting for placed in unit.rejections]
            found = tuple(rejection for _, rejection in sorted(placed, key=lambda item: item[0]))
            self._rejections = found + self.quarantined.lasting(found)
        return self._rejections

    def forget_rejections(self) -> None:
        """Drop the cached `rejections`."""
        self._rejections = None

    @property
    def warnings(self) -> tuple[ObjectWarning, ...]:
        """Warnings for owners of objects, without duplicates, sorted; the same tuple until they change."""
        return self._warnings.all()

    def take_reports(self, former: "RenderRun") -> None:
        """Begin with the warnings and rejections of *former*, by its units."""
        self._warnings = former._warnings.copied()  # noqa: SLF001  the two are of one class
        self._rejecting = dict(former._rejecting)  # noqa: SLF001  the two are of one class
        self._rejections = None

    def replace_units(self, units: Mapping[Any, Any]) -> None:
        """Replace the units that claims and rejections name by their copies; render again what is rejected."""
        self.claims.replace_units(units)
        self._rejecting = {units[unit]: None for unit in self._rejecting}
        for unit in self._rejecting:
            node: Any = unit
            self.invalidate(node)

    def restart(self, recall: Recall) -> None:
        """Begin another render, with new budgets and the results *recall* of earlier renders."""
        self.recall = recall
        self.turns_due = self.turns_done = 0
        self.reset()
        self.shared.clear()
        self.touch_freed()
        self.shares.restart()
        keys = {key for key, digests in recall.blocked.items() if self._blocked_before.get(key) != tuple(digests)}
        keys |= recall.omitted.keys() ^ self._omitted_before
        keys |= self.quarantined.pause(self)
        if keys:
            self.touch_fragments(keys)
        self.quarantined.restart(self, keys)
        self._blocked_before = {key: tuple(digests) for key, digests in recall.blocked.items()}
        self._omitted_before = frozenset(recall.omitted)

    def touch_freed(self) -> bool:
        """Make fragments pending that may find room now, all or the next one of a namespace; False without one."""
        freed = [(self.index.askers(question), is_less) for question, is_less in self.shares.take_freed()]
        for node in (node for askers, is_less in freed for node in (askers if is_less else askers[:1])):
            self.invalidate(node)
        return any(askers for askers, _ in freed)

    # Changes.

    def touch(self, question: Dependency) -> None:
        """Make everything pending that depends on the answer to *question*."""
        for node in self.index.askers(question):
            self.invalidate(node)

    def touch_object(self, found: ObjectId) -> None:
        """Make all fragments of an object pending; the cost depends on these only."""
        for child in turns_of(self.roots, found):
            child.region.pending.add(child)
        self.touch(question_of(found))

    def touch_fragments(self, keys: set[FragmentKey]) -> None:
        """Make the fragments *keys* pending; visits all fragments."""
        for root in self.roots.values():
            if _concerns(root, keys):
                root.is_valid = False
                for kept in root.kept.values():
                    kept.is_valid = kept.is_valid and not _concerns(kept.trace, keys)
            for region in root.regions:
                region.pending.update(child for child in region.children.values() if _concerns(child, keys))

    def invalidate(self, node: Node, file: str = "") -> None:
        """Make *node* pending; with *file*, only because the registered file at this path has changed."""
        if isinstance(node, Child):
            node.region.pending.add(node)
            self.ahead.forget(node, file)
            self.quarantined.retry(node.object_id)
            return
        if isinstance(node, Kept):
            node.is_valid = False
        elif isinstance(node, Module):
            self.index.discard(node, node.asked)
            node.root.modules.pop(node.name, None)
            return
        (node if isinstance(node, Root) else node.root).is_valid = False

    # Units.

    def rendering(self, root: Root, unit: Unit, within: str) -> "_Rendering":
        """Render *unit*, a part of *root* or *root* itself; may be nested once, a child in its root."""
        return _Rendering(self, root, unit, within)

    def begin_unit(self, root: Root, unit: Unit, within: str) -> tuple[Any, ...]:
        """Begin to render *unit*; return the state of the unit around it, for `end_unit`."""
        outer = (
            self.root, self.unit, self.trace, self.unit_files, self.file_positions, self.ordinals, self.importing,
            self.subjects, self.within, self.keeping, self.memo, self.claimed, self.under, self.fragment, self.clash,
        )  # fmt: skip
        self._begin_unit(root, unit)
        self.within = within
        return outer

    def end_unit(self, outer: tuple[Any, ...], *, is_failing: bool) -> None:
        """Go on with the unit around the one that has been rendered."""
        if is_failing and self.failed_for is None and self.subjects:
            self.failed_for = self.subjects[-1]
        (
            self.root, self.unit, self.trace, self.unit_files, self.file_positions, self.ordinals, self.importing,
            self.subjects, self.within, self.keeping, self.memo, self.claimed, self.under, self.fragment, self.clash,
        ) = outer  # fmt: skip

    def registered_since(self, before: int) -> tuple[RenderedFile, ...]:
        """Return the files that the unit registered after the first *before*; the cost is that of these."""
        count = len(self.unit_files) - before
        return tuple(islice(reversed(self.unit_files.values()), count))[::-1] if count > 0 else ()

    def loses_file(self, key: FragmentKey, path: str) -> bool:
        """As for any recorder; whether a turn that is rendered ahead loses is decided when its result is used."""
        return not self.ahead.is_rendering and super().loses_file(key, path)

    def known_file(self, path: str) -> RenderedFile | None:
        """As for any recorder; turns that are rendered ahead do not see files of other turns, which may change, too."""
        return self.unit_files.get(path) if self.ahead.is_rendering else super().known_file(path)

    def register(self, file: RenderedFile) -> None:
        """Register *file* at its path, which must be free."""
        super().register(self.shared_file(file))

    def shared_file(self, file: RenderedFile) -> RenderedFile:
        """As for any recorder; turns that are rendered ahead share equal files."""
        return self.ahead.shared(file) if self.ahead.is_rendering else file

    @contextmanager
    def rendering_ahead(self) -> Iterator[None]:
        """Have renderings inside the context leave no trace in the decisions about quarantine."""
        decided, self.quarantined = self.quarantined, self.quarantined.for_trial()
        self.ahead.is_rendering = True
        try:
            yield
        finally:
            self.ahead.is_rendering = False
            self.quarantined = decided

    def commit(self, unit: Unit) -> None:
        """Replace the records of *unit* with those of the rendering that just ended."""
        trace = self.trace
        node: Any = unit
        if not unit.asked:
            unit.asked = self.index.add(node, trace.asked)
        elif trace.asked != set(unit.asked):
            kept = [question for question in unit.asked if question in trace.asked]
            # Keep questions that are asked again: discarding a part would lose its answer.
            self.index.discard(node, [question for question in unit.asked if question not in trace.asked])
            unit.asked = (*kept, *self.index.add(node, trace.asked.difference(kept)))
        self.quarantined.forget_gone(unit, trace)
        self._commit_outputs(unit, trace.outputs)
        if unit.rejections or trace.rejections:
            self._rejections = None
            unit.rejections = tuple(trace.rejections)
            if unit.rejections:
                self._rejecting[unit] = None
            else:
                self._rejecting.pop(unit, None)
        if unit.warnings or trace.warnings:
            self._commit_warnings(unit, tuple(trace.warnings))
        if unit.wants or trace.wants:
            self.contested.change(unit.wants, trace.wants)
            unit.wants = trace.wants
        unit.clashes, unit.found, unit.unused = frozen(trace.clashes), frozen(trace.found), tuple(trace.unused)
        if unit.files or self.unit_files:
            self._commit_files(unit, tuple(self.unit_files.values()))

    def _commit_outputs(self, unit: Unit, outputs: Mapping[FragmentKey, FragmentOutput]) -> None:
        for key, before in unit.outputs.items():
            if key not in outputs:
                self.shares.change(key, before, None)
                self.produced.remove(key)
                self.changed.add(key)
        for key, output in outputs.items():
            if unit.outputs.get(key) is not output:
                self.shares.change(key, unit.outputs.get(key), output)
                self.produced.put(key, output)
                self.changed.add(key)
        unit.outputs = outputs

    def _commit_warnings(self, unit: Unit, warnings: tuple[ObjectWarning, ...]) -> None:
        if unit.warnings != warnings:
            self._warnings.change(unit.warnings, warnings)
            unit.warnings = warnings

    def _commit_files(self, unit: Unit, files: tuple[RenderedFile, ...]) -> None:
        before = {file.path: file for file in unit.files}
        after = {file.path: file for file in files}
        unit.files = files
        for path in {**before, **after}:
            former, now = self.claims.leading(path), after.get(path)
            if path in before:
                self.claims.remove(unit, path)
            if now is not None:
                self.claims.add(unit, self.file_positions.get(path, unit.position), now)
            self.changed_files.add(path)
            self.registrations.pass_on(path, unit, former, self.claims.leading(path))

    def drop(self, unit: Unit) -> None:
        """Forget *unit*, which no longer exists."""
        node: Any = unit
        self.index.discard(node, unit.asked)
        self.quarantined.forget_gone(unit, Trace())
        self._commit_outputs(unit, {})
        self.contested.change(unit.wants, {})
        if unit.rejections:
            self._rejections = None
            self._rejecting.pop(unit, None)
        if unit.warnings:
            self._commit_warnings(unit, ())
        if unit.files:
            self._commit_files(unit, ())

    def drop_region(self, region: Region) -> None:
        """Forget *region* and its turns."""
        for child in region.children.values():
            self.drop(child)
        region.children = {}

    def drop_root(self, root: Root) -> None:
        """Forget the records of *root* and render it from the start."""
        for region in root.regions:
            self.drop_region(region)
        self.forget_kept(root.kept.values())
        for module in tuple(root.modules.values()):
            self.invalidate(module)
        self.forget_origins(root.origins)
        self.drop(root)
        fresh = Root(root.name, root.number, root.context)
        self.roots[root.name] = fresh

    def dismantle(self) -> None:
        """Break the circles of references of the records, and drop them; no render may follow.

        What the run holds is then freed with the last reference to it, not by
        a collection of garbage, which stops all threads. Pops one item after
        another, so that other threads run meanwhile.
        """
        self.find_addresses = _find_nothing
        for root in self.roots.values():
            for region in root.regions:
                _empty(region.children)
                region.pending.clear()
                region.context, region.scope = None, {}
            _empty(root.kept)
            root.regions, root.parts, root.modules, root.context = [], [], {}, {}
        # Compiled macros hold the run in circles of their own.
        vars(self).update(vars(RenderRun(self.limits, paths=self.paths)))

    def forget_kept(self, fragments: Iterable[Kept]) -> None:
        """Forget *fragments*, which are no longer used."""
        for kept in fragments:
            self.index.discard(kept, kept.asked)

    def forget_origins(self, numbers: Iterable[int]) -> None:
        """Release *numbers* of origins whose marks are in no text any more."""
        for number in numbers:
            self.origins.pop(number, None)


class _Rendering:
    """The context of `RenderRun.rendering`; a generator would take three times as long, for each fragment."""

    __slots__ = ("_arguments", "_outer", "_run")

    def __init__(self, run: RenderRun, root: Root, unit: Unit, within: str) -> None:
        self._run = run
        self._arguments = root, unit, within
        self._outer: tuple[Any, ...] = ()

    def __enter__(self) -> Trace:
        self._outer = self._run.begin_unit(*self._arguments)
        return self._run.trace

    def __exit__(self, kind: object, *_others: object) -> None:
        self._run.end_unit(self._outer, is_failing=kind is not None)


def _concerns(unit: Unit | Trace, keys: set[FragmentKey]) -> bool:
    return not (keys.isdisjoint(unit.outputs) and keys.isdisjoint(unit.unused)) or any(
        rejection.key in keys for _, rejection in unit.rejections
    )


def _empty(records: dict[Any, Any]) -> None:
    while records:
        records.popitem()


current_run = cast("Callable[[], RenderRun]", CURRENT.get)
