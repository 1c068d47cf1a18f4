"""State of a run: shared by renders that belong together, kept for later ones.

A run is used once, for all templates of a configuration, or again and again:
then `touch` says what has changed, and rendering a template does only what
has asked for it. Nothing that is done twice harms, and what is not done stays
pending: so a render may be given up at any moment.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jinja2 import Template
from jinja2.environment import TemplateModule

from haptic_trio.templating.incremental.outputs import FragmentOutput, Recall
from haptic_trio.templating.incremental.records import (
    Child,
    Claims,
    Dependency,
    DependencyIndex,
    Kept,
    Module,
    Node,
    Position,
    Region,
    Root,
    Site,
    Trace,
    Unit,
)
from haptic_trio.templating.incremental.scope import Memo
from haptic_trio.templating.incremental.shares import Claim, NamespaceShares
from haptic_trio.templating.incremental.versions import Versioned
from haptic_trio.templating.incremental.withheld import Withheld, touch_fragments
from haptic_trio.templating.values.limits import Meter, RenderLimits
from haptic_trio.templating.values.paths import Paths, RenderedFile
from haptic_trio.templating.values.remark_list import RemarkList
from haptic_trio.templating.values.subjects import FragmentKey, Origin, Refusal, Remark, Subject


class RenderRun(Meter):
    """Budgets, files, origins, refusals, and the record of everything. Not to be shared between threads."""

    def __init__(
        self, limits: RenderLimits | None = None, *, paths: Paths | None = None, recall: Recall | None = None
    ) -> None:
        super().__init__(limits or RenderLimits())
        self.shares = NamespaceShares(self.limits)
        self.recall = recall or Recall()
        self.paths = paths or Paths()
        self.secret_stores: frozenset[str] = frozenset()
        """Names of the stores that hold Secrets."""
        self.roots: dict[str, Root] = {}
        self.index = DependencyIndex()
        self.claims = Claims()
        self.produced: Versioned[FragmentKey, FragmentOutput] = Versioned()
        """What each fragment gave, stand-ins included."""
        self.origins: dict[int, Origin] = {}
        """By number; marks in the text are such numbers."""
        self.rendered = 0
        """How many fragments have been rendered so far."""
        self.changed: set[FragmentKey] = set()
        """Fragments whose output has come, changed or gone; for the caller to clear."""
        self.changed_files: set[str] = set()
        """Paths of registered files that have come, changed or gone; for the caller to clear."""
        self.captured: set[Site] = set()
        """Bodies of `{% each %}` whose text is taken hold of, and must be there at once."""
        self.opened: list[Region] = []
        """The regions that the root in hand has come to so far."""
        self.woken: list[Child] = []
        """Children that have become pending through a file."""
        self._refusing: dict[Unit, None] = {}
        self._refusals: tuple[Refusal, ...] | None = ()
        self._remarks = RemarkList()
        self._next_origin = 0
        self._blocked_before: dict[FragmentKey, tuple[str, ...]] = {}
        self._held_before: frozenset[FragmentKey] = frozenset()
        self.withheld = Withheld()
        """The objects that are not served as they are, since one of their fragments fails."""
        self.is_closing = False
        """What is rendered is for an object that is rejected and has no fallback."""
        self.asks_rejected = False
        """Whether the template has asked for that."""
        self.failed_for: Subject | None = None
        """The object in hand when the newest render failed."""
        self.unanswered: dict[Dependency, bool] = {}
        """What renderings have failed for, and whether it could not be had; else it has not been tried. For the caller
        to touch once that may be otherwise."""
        self._begin_unit(None, None)

    def _begin_unit(self, root: Root | None, unit: Unit | None) -> None:
        self.root = root
        self.unit = unit
        self.trace = Trace(is_each=isinstance(unit, Child))
        self.unit_files: dict[str, RenderedFile] = {}
        self.file_positions: dict[str, Position] = {}
        self.ordinals: Counter[Any] = Counter()
        self.importing = 0
        self.subjects: list[Subject] = []
        """The objects in hand, outermost first."""
        self.within = ""
        """What the fragments of the unit say of where they are."""
        self.keeping: dict[FragmentKey, Kept] = {}
        self.memo: Memo = {}
        self.claimed: Counter[Claim] = Counter()
        """By namespace and resource: what the unit uses more than when it was last rendered."""
        self.under: dict[tuple[int, str], tuple[Any, dict[str, Any]]] = {}
        """What the filter `under` has found for the unit, by the identity of the mapping, and that mapping."""

    @property
    def variables(self) -> Mapping[str, Any]:
        """The variables of the render in hand."""
        return self.root.context if self.root is not None else {}

    @property
    def files(self) -> dict[str, RenderedFile]:
        """Files registered while rendering, by path."""
        return {path: file for path in self.claims if (file := self.claims.first(path)) is not None}

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """The fragments whose objects could not be rendered, in the order of rendering."""
        if self._refusals is None:
            placed = [placed for unit in self._refusing for placed in unit.refusals]
            found = tuple(refusal for _, refusal in sorted(placed, key=lambda item: item[0]))
            self._refusals = found + self.withheld.lasting(found)
        return self._refusals

    def forget_refusals(self) -> None:
        """Have `refusals` put together again when they are asked for."""
        self._refusals = None

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """What owners of objects should know, each thing once, in order; the same tuple until it changes."""
        return self._remarks.all()

    def restart(self, recall: Recall) -> None:
        """Begin another round, with new budgets, and what *recall* has come to know since."""
        self.recall = recall
        self.reset()
        self.touch_freed()
        self.shares.overall.restart()
        keys = {key for key, digests in recall.blocked.items() if self._blocked_before.get(key) != tuple(digests)}
        keys |= self.withheld.others_than(recall)
        keys |= recall.held.keys() ^ self._held_before
        keys |= self.withheld.pause(self)
        if keys:
            touch_fragments(self, keys)
        self.withheld.restart(self, keys)
        self._blocked_before = {key: tuple(digests) for key, digests in recall.blocked.items()}
        self._held_before = frozenset(recall.held)

    def touch_freed(self) -> bool:
        """Have fragments rendered again that found no room in a namespace that has less output now; False if none."""
        questions = [question for question in self.shares.take_freed() if question in self.index]
        for question in questions:
            self.touch(question)
        return bool(questions)

    # What templates ask for while they are rendered.

    def ask(self, question: Dependency) -> None:
        """Note that what is rendered depends on the answer to *question*."""
        self.trace.asked.add(question)

    def need(self, question: Dependency, *, is_failing: bool) -> None:
        """Note that what is rendered fails for want of the answer to *question*; see `unanswered`."""
        self.trace.asked.add(question)
        self.unanswered[question] = is_failing

    def own_state(self) -> Trace:
        """Return the owner of what is about to be made and can be changed in place."""
        return self.trace

    def touch_state(self, owner: Trace) -> bool:
        """Note that something is used that can be changed in place; False where that is not allowed."""
        if owner is not self.trace:
            self.trace.is_volatile = True
        return owner is self.trace or not self.trace.is_each

    def module(self, template: Template) -> TemplateModule:
        """Return *template* as imported without context; it sees the render's variables, not the importer's."""
        root = self.root
        assert root is not None
        module = root.modules.get(template.name)
        if module is None:
            outer, self.trace = self.trace, Trace()
            self.importing += 1
            try:
                made = template.make_module(dict(self.variables))
                module = Module(root, template.name, made, self.trace.asked)
            except BaseException:
                # Who fails for what it has asked is to be rendered again when that changes.
                outer.asked |= self.trace.asked
                raise
            finally:
                self.trace = outer
                self.importing -= 1
            self.index.add(module, module.asked)
            root.modules[template.name] = module
        self.trace.asked.update(module.asked)
        return module.module  # type: ignore[no-any-return]

    def number_of(self, name: str, subject: Subject) -> int:
        """Return how many fragments of this name and object the unit had before this one, which counts from now on."""
        counted = self.within, name, subject.kind, subject.namespace, subject.name
        ordinal = self.ordinals[counted]
        self.ordinals[counted] = ordinal + 1
        self.trace.ordinals.append((counted, ordinal))
        return ordinal

    def number_origin(self, origin: Origin) -> int:
        """Return the number that *origin* has in marks, for as long as its unit is not rendered again."""
        self._next_origin += 1
        self.origins[self._next_origin] = origin
        self.trace.origins.append(self._next_origin)
        return self._next_origin

    def known_file(self, path: str) -> RenderedFile | None:
        """Return what has been registered for *path* before this moment in the order of rendering."""
        known = self.unit_files.get(path)
        if known is None and self.unit is not None:
            known = self.claims.before(path, self.unit, self.unit.position)
        return known

    def register(self, file: RenderedFile) -> None:
        """Register *file*, whose path nobody has taken before."""
        self.trace.files[file.path] = file
        self.unit_files[file.path] = file
        if self.unit is not None:
            self.file_positions[file.path] = self.unit.position

    def forget_file(self, path: str) -> None:
        """Undo the registration of *path*."""
        self.trace.files.pop(path, None)
        self.unit_files.pop(path, None)

    # What has changed.

    def touch(self, question: Dependency) -> None:
        """Have everything rendered again that depends on the answer to *question*."""
        for node in self.index.askers(question):
            self.invalidate(node)

    def invalidate(self, node: Node) -> None:
        """Have *node* rendered again."""
        if isinstance(node, Child):
            node.region.pending.add(node)
            self.withheld.retry(node.object_id)
            return
        if isinstance(node, Kept):
            node.is_valid = False
        elif isinstance(node, Module):
            self.index.discard(node, node.asked)
            node.root.modules.pop(node.name, None)
            return
        (node if isinstance(node, Root) else node.root).is_valid = False

    # Units.

    @contextmanager
    def rendering(self, root: Root, unit: Unit, within: str) -> Iterator[Trace]:
        """Render *unit*, a part of *root* or *root* itself; may be nested once, a child in its root."""
        outer = (
            self.root, self.unit, self.trace, self.unit_files, self.file_positions, self.ordinals, self.importing,
            self.subjects, self.within, self.keeping, self.memo, self.claimed, self.under,
        )  # fmt: skip
        self._begin_unit(root, unit)
        self.within = within
        try:
            yield self.trace
        except BaseException:
            if self.failed_for is None and self.subjects:
                self.failed_for = self.subjects[-1]
            raise
        finally:
            (
                self.root, self.unit, self.trace, self.unit_files, self.file_positions, self.ordinals, self.importing,
                self.subjects, self.within, self.keeping, self.memo, self.claimed, self.under,
            ) = outer  # fmt: skip

    def commit(self, unit: Unit) -> None:
        """Take what has been rendered as that of *unit*."""
        trace = self.trace
        if trace.asked != set(unit.asked):
            node: Any = unit
            kept = [question for question in unit.asked if question in trace.asked]
            # What is asked still is not given up in between: its answer would be.
            self.index.discard(node, [question for question in unit.asked if question not in trace.asked])
            unit.asked = (*kept, *self.index.add(node, trace.asked.difference(kept)))
        self.withheld.forget_gone(unit, trace)
        self._commit_outputs(unit, trace.outputs)
        if unit.refusals or trace.refusals:
            self._refusals = None
            unit.refusals = tuple(trace.refusals)
            if unit.refusals:
                self._refusing[unit] = None
            else:
                self._refusing.pop(unit, None)
        if unit.remarks or trace.remarks:
            self._commit_remarks(unit, tuple(trace.remarks))
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

    def _commit_remarks(self, unit: Unit, remarks: tuple[Remark, ...]) -> None:
        if unit.remarks != remarks:
            self._remarks.change(unit.remarks, remarks)
            unit.remarks = remarks

    def _commit_files(self, unit: Unit, files: tuple[RenderedFile, ...]) -> None:
        before = {file.path: file for file in unit.files}
        after = {file.path: file for file in files}
        unit.files = files
        for path in {**before, **after}:
            was, now = before.get(path), after.get(path)
            places = []
            if was is not None:
                places.append(self.claims.remove(unit, path))
            if now is not None:
                places.append(self.file_positions.get(path, unit.position))
                self.claims.add(unit, places[-1], now)
            self.changed_files.add(path)
            if len(set(places)) > 1 or was is None or now is None or (was.kind, was.text) != (now.kind, now.text):
                self._touch_file(path, unit, min(places))

    def _touch_file(self, path: str, unit: Unit, place: Position) -> None:
        """Have those rendered again that come after *place*, where *unit* has taken or given up *path*."""
        for node in self.index.askers(("file", path)):
            if isinstance(node, Child):
                if node is not unit and node.position > place:
                    self.invalidate(node)
                    self.woken.append(node)
            elif isinstance(node, Root | Kept):
                root = node if isinstance(node, Root) else node.root
                if root is not unit and root.position > place:
                    self.invalidate(node)

    def drop(self, unit: Unit) -> None:
        """Forget *unit*, which is not part of anything any more."""
        node: Any = unit
        self.index.discard(node, unit.asked)
        self.withheld.forget_gone(unit, Trace())
        self._commit_outputs(unit, {})
        if unit.refusals:
            self._refusals = None
            self._refusing.pop(unit, None)
        if unit.remarks:
            self._commit_remarks(unit, ())
        if unit.files:
            self._commit_files(unit, ())

    def drop_region(self, region: Region) -> None:
        """Forget *region* and all that it has rendered."""
        for child in region.children.values():
            self.drop(child)
        region.children = {}

    def drop_root(self, root: Root) -> None:
        """Forget *root* and all that it has rendered."""
        for region in root.regions:
            self.drop_region(region)
        self.forget_kept(root.kept.values())
        for module in tuple(root.modules.values()):
            self.invalidate(module)
        self.forget_origins(root.origins)
        self.drop(root)
        fresh = Root(root.name, root.number, root.context)
        self.roots[root.name] = fresh

    def forget_kept(self, fragments: Iterable[Kept]) -> None:
        """Forget *fragments*, which are not put in any more."""
        for kept in fragments:
            self.index.discard(kept, kept.asked)

    def forget_origins(self, numbers: Iterable[int]) -> None:
        """Give up *numbers* of origins, whose marks are in no text any more."""
        for number in numbers:
            self.origins.pop(number, None)


CURRENT: ContextVar[RenderRun] = ContextVar("haptic_trio_render_run")
current_run = CURRENT.get
