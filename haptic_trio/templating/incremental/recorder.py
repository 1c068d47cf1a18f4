"""Interface of the template language to the incremental engine: what templates report while they render.

Each lookup, registered file, warning and guard is recorded for the unit that
is being rendered (see `records`). The recorder has the state of that unit;
`run.RenderRun` adds the records of all units, and decides what renders again.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextvars import ContextVar
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec
from jinja2 import Template
from jinja2.environment import TemplateModule

from haptic_trio.templating.incremental.dependencies import DependencyIndex
from haptic_trio.templating.incremental.outputs import OTHERWISE, Condition
from haptic_trio.templating.incremental.questions import Aspect, Dependency, Part, Question
from haptic_trio.templating.incremental.records import (
    Child,
    Claims,
    Kept,
    Module,
    Position,
    Root,
    Trace,
    Unit,
    Want,
)
from haptic_trio.templating.incremental.scope import Memo
from haptic_trio.templating.incremental.settling.contested_files import ContestedFiles, is_same_file
from haptic_trio.templating.incremental.settling.overall_rounds import created_of
from haptic_trio.templating.incremental.shares import Claimed
from haptic_trio.templating.values.faults import TemplateFaultError
from haptic_trio.templating.values.limits import Meter, RenderLimits
from haptic_trio.templating.values.paths import FileKind, Paths, RenderedFile
from haptic_trio.templating.values.report import with_callers
from haptic_trio.templating.values.subjects import (
    Concern,
    FragmentKey,
    ObjectWarning,
    Origin,
    RenderedText,
    Subject,
    size_of,
)

MOST_WARNINGS: Final = 10
"""Warnings of one rendering; further ones are dropped."""


T = TypeVar("T")


class Recorder(Meter):
    """State of the unit that is being rendered. Not to be shared between threads."""

    def __init__(self, limits: RenderLimits, paths: Paths) -> None:
        super().__init__(limits)
        self.paths = paths
        self.roots: dict[str, Root] = {}
        self.index = DependencyIndex()
        self.claims = Claims()
        self.contested = ContestedFiles()
        """The files that fragments want, and who may not have them."""
        self.origins: dict[int, Origin] = {}
        """By number; marks in the text are such numbers."""
        self.is_closing = False
        """The rendered object is rejected and has no fallback."""
        self.is_former = False
        """A former version of the object is rendered, whose output may be used instead of that of the present one."""
        self.asks_rejected = False
        """The template has called `is_rejected` since this was last cleared."""
        self.unanswered: dict[Question, bool] = {}
        """Questions without an answer that made renderings fail, and whether the attempt to get the answer failed; else
        there was none yet. The caller touches these questions when answers may be available."""
        self.shared: dict[Hashable, tuple[Any, set[Dependency]]] = {}
        """Results of `share`, each with the questions that it asked; cleared when answers change."""
        self._next_origin = 0
        self.alike = Memo()
        """Values that count as equal in scopes of a former configuration; empty once no such scope is left."""
        self._begin_unit(None, None)

    def _begin_unit(self, root: Root | None, unit: Unit | None) -> None:
        self.root = root
        self.unit = unit
        self.trace = Trace(is_each=isinstance(unit, Child))
        self.unit_files: dict[str, RenderedFile] = {}
        self.file_positions: dict[str, Position] = {}
        self.ordinals: defaultdict[Any, int] = defaultdict(int)
        self.importing = 0
        """Nesting depth of imports without context."""
        self.subjects: list[Subject] = []
        """The objects of the fragments that are being rendered, outermost first."""
        self.within = ""
        """`FragmentKey.within` of the unit's fragments."""
        self.fragment: tuple[FragmentKey, Any] | None = None
        """The innermost fragment that is being rendered, and its object."""
        self.clash: TemplateFaultError | None = None
        """The first attempt of that fragment to register a file that its object may not have."""
        self.keeping: dict[FragmentKey, Kept] = {}
        self.memo = self.alike.renewed() if self.alike else Memo()
        self.claimed: Claimed = {}
        self.under: dict[tuple[int, str], tuple[Any, dict[str, Any]]] = {}
        """Results of the filter `under` in this unit, by the identity of the mapping, with that mapping."""

    def take_origins(self, former: "Recorder") -> None:
        """Begin with the origins of *former*, so that marks in its texts keep their meaning."""
        self.origins, self._next_origin = dict(former.origins), former._next_origin  # noqa: SLF001  the two are of one class

    @property
    def variables(self) -> Mapping[str, Any]:
        """The variables of the current render."""
        return self.root.context if self.root is not None else {}

    # Lookups.

    def ask(self, question: Question) -> None:
        """Record that the current rendering depends on the answer to *question*."""
        self.trace.asked.add(question)

    def ask_part(self, question: Question, aspect: Aspect) -> Part:
        """Record that the current rendering depends on one *aspect* of the answer to *question*; return that part.

        The caller sets its answer in `index.answers` if there is none.
        """
        part = self.index.part(question, aspect)
        # First: a rendering that fails for an object that has to be fetched depends on it, too.
        self.trace.asked.add(part)
        return part

    def share(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the result of *compute*, called once for all units while no answer changes.

        Each unit depends on the lookups of *compute*, which does nothing else.
        *key* identifies all other input.
        """
        known = self.shared.get(key)
        if known is None:
            outer = self.trace.asked
            asked = self.trace.asked = set[Dependency]()
            try:
                known = compute(), asked
            finally:
                self.trace.asked = outer
                # A rendering that fails for a lookup depends on it, too.
                outer |= asked
            self.shared[key] = known
        else:
            self.trace.asked |= known[1]
        return known[0]

    def need(self, question: Question, *, is_failing: bool) -> None:
        """Record that the current rendering fails without the answer to *question*; see `unanswered`."""
        self.trace.asked.add(question)
        self.unanswered[question] = is_failing

    def has_entries(self, output: str) -> bool | None:
        """Whether the earlier output *output* has entries, as a recorded lookup; None without such an output."""
        root, own = self.roots.get(output), self.root
        if root is None or own is None or root.number >= own.number:
            return None
        self.ask(("lines", root.name))
        root.has_entries = root.text.has_entries
        return root.has_entries

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
                # The importer failed for what the import looked up, and renders again when that changes.
                outer.asked |= self.trace.asked
                raise
            finally:
                self.trace = outer
                self.importing -= 1
            self.index.add(module, module.asked)
            root.modules[template.name] = module
        self.trace.asked.update(module.asked)
        return module.module  # type: ignore[no-any-return]

    # Output of the current fragment besides its text.

    def guard(self, by: str, *otherwise: str) -> None:
        """Record that access to the output of the current fragment is guarded; see `FragmentOutput.guards`."""
        self.trace.guards.add(OTHERWISE.join((by, *filter(None, otherwise))))

    def permit(self, setting: str, value: Any) -> None:
        """Record that *setting* permits the output of the current fragment; see `FragmentOutput.permits`."""
        self.trace.permits[setting] = value

    def rely(self, condition: Condition) -> None:
        """Record a condition for the use of the current fragment's output as a fallback."""
        self.trace.conditions.append(condition)

    def is_rejected(self) -> bool:
        """Whether the rendered object is rejected and has no fallback; its text is output only if this is asked."""
        self.asks_rejected = True
        return self.is_closing

    def add_rounds(self, rounds: int) -> None:
        """Record the password hash *rounds* of the current fragment; see `FragmentOutput.rounds`."""
        self.trace.costs.rounds += rounds

    def add_warning(self, warning: ObjectWarning) -> None:
        """Record a warning for the owner of an object."""
        if len(self.trace.warnings) < MOST_WARNINGS:
            self.trace.warnings[warning] = None

    def add_concern(self, concern: Concern) -> None:
        """Record a warning for the case that the current fragment is rejected."""
        if len(self.trace.concerns) < MOST_WARNINGS:
            self.trace.concerns.append(concern)

    # Registered files.

    def begin_fragment(self, key: FragmentKey, resource: Any) -> tuple[Any, ...]:
        """Begin the fragment *key* of *resource*; return `fragment` and `clash` of the one around it."""
        outer = self.fragment, self.clash
        self.fragment, self.clash = (key, resource), None
        return outer

    def want_file(self, file: RenderedFile) -> bool:
        """Record an attempt to register *file*; return whether it has to be registered now.

        It has not if an earlier rendering has registered it, or if an older object has another
        content there: then the fragment fails when it ends. Raises `TemplateFaultError` if this
        fragment, or text outside of fragments, has given the file another content.
        """
        path, trace = file.path, self.trace
        self.ask(("file", path))
        trace.attempts += 1
        key, resource = self.fragment or (None, None)
        if self.is_former:
            return self._is_new_of_former(file)
        known, before = self.known_file(path), trace.wants.get((key, path))
        is_known = known is not None and is_same_file(known, file)
        # The text for a rejected object registers nothing in the end.
        if not self.is_closing and before is None:
            # Very many fragments may want a large file: they share its text.
            one = known if known is not None and is_known else self.shared_file(file)
            trace.wants[key, path] = Want(one, created_of(resource))
        elif not self.is_closing and before is not None and not is_same_file(before.file, file):
            raise _registered_twice(file)
        if key is not None and not self.is_closing and self.loses_file(key, path):
            self.clash = self.clash or with_callers(_registered_twice(file))
            return False
        if is_known:
            trace.found[path] = None
            return False
        if known is not None:
            trace.clashes.add(path)
        # A unit registers one file at a path; text outside of fragments has precedence.
        return key is None or path not in self.unit_files

    def _is_new_of_former(self, file: RenderedFile) -> bool:
        """As for `want_file`; what belongs to others is decided for the output as a whole, which has all its files."""
        before = self.unit_files.get(file.path)
        if before is not None and not is_same_file(before, file):
            raise _registered_twice(file)
        return before is None

    def use_file(self, file: RenderedFile, key: FragmentKey) -> None:
        """Register *file* of the fallback of the fragment *key*, or find it registered."""
        path, trace = file.path, self.trace
        known = self.known_file(path)
        trace.attempts += 1
        if self.contested.yields(key, path):
            return
        if known is not None and is_same_file(known, file) and not self.is_former:
            trace.found[path] = None
            return
        if known is not None:
            trace.clashes.add(path)
        if path not in self.unit_files:
            self.register(file)

    def found_since(
        self, wants: int, outputs: int, key: FragmentKey, registered: Iterable[RenderedFile]
    ) -> tuple[RenderedFile, ...]:
        """Return the files besides *registered* that the fragment *key*, or one inside, has found registered.

        It began after the first *wants* and *outputs* of the unit.
        """
        trace = self.trace
        if len(trace.wants) == wants and len(trace.outputs) == outputs:
            return ()
        inner = islice(reversed(trace.outputs.values()), len(trace.outputs) - outputs)
        newest = islice(reversed(trace.wants.items()), len(trace.wants) - wants)
        found = {file.path: file for output in inner for file in output.found_files}
        found |= {path: want.file for (by, path), want in newest if by == key}
        for file in registered:
            found.pop(file.path, None)
        return tuple(found.values())

    def is_taken(self, file: RenderedFile) -> bool:
        """Whether the path of *file* has another content."""
        known = self.known_file(file.path)
        return known is not None and not is_same_file(known, file)

    def shared_file(self, file: RenderedFile) -> RenderedFile:
        """Return *file*, or an equal one that is kept anyway."""
        return file

    def loses_file(self, key: FragmentKey, path: str) -> bool:
        """Whether the fragment *key* fails because it wants the file at *path*."""
        return self.contested.loses(key, path)

    def known_file(self, path: str) -> RenderedFile | None:
        """Return the file registered at *path* before the current place in the order of rendering."""
        known = self.unit_files.get(path)
        if known is None and self.unit is not None:
            known = self.claims.before(path, self.unit, self.unit.position)
        return known

    def register(self, file: RenderedFile) -> None:
        """Register *file* at its path, which must be free."""
        self.trace.files[file.path] = file
        self.unit_files[file.path] = file
        if self.unit is not None:
            self.file_positions[file.path] = self.unit.position

    def forget_file(self, path: str) -> None:
        """Undo the registration of *path*."""
        self.trace.files.pop(path, None)
        self.unit_files.pop(path, None)

    def attribute_files(self, count: int, origin: Origin) -> None:
        """Note that *origin* made the newest *count* files, where no fragment inside them says otherwise."""
        # From the end, so that the cost is that of the fragment's own files; a list, since values are replaced.
        for path in list(islice(reversed(self.unit_files), count)):
            file = self.unit_files[path]
            if all(piece.origin is None for piece in file.content.pieces):
                replaced = msgspec.structs.replace(file, content=RenderedText.of(file.text, origin))
                self.unit_files[path] = self.trace.files[path] = replaced

    # Mutable objects of templates.

    def own_state(self) -> Trace:
        """Return the owner for a mutable object that the current rendering creates."""
        return self.trace

    def touch_state(self, owner: Trace) -> bool:
        """Record the use of a mutable object of *owner*; False where that is not allowed."""
        if owner is not self.trace:
            self.trace.is_volatile = True
        return owner is self.trace or not self.trace.is_each

    # Fragments.

    def number_of(self, name: str, subject: Subject) -> int:
        """Return the number of earlier fragments of this name and object in the unit, and count one more."""
        counted = self.within, name, subject.kind, subject.namespace, subject.name
        ordinal = self.ordinals[counted]
        self.ordinals[counted] = ordinal + 1
        self.trace.ordinals.append((counted, ordinal))
        return ordinal

    def grant_inner(self, text: str) -> None:
        """Let the text of the current fragment hold *text* besides, which one inside has made for another object."""
        budget = self._budget
        if budget is not None:
            most = max(budget.output_bytes, self._limits.namespace_bytes)
            budget.output_bytes = min(budget.output_bytes + size_of(text), most)

    def number_origin(self, origin: Origin) -> int:
        """Return the number of *origin* in marks, valid until its unit renders again."""
        self._next_origin += 1
        self.origins[self._next_origin] = origin
        self.trace.origins.append(self._next_origin)
        return self._next_origin


def _registered_twice(file: RenderedFile) -> TemplateFaultError:
    if file.kind is FileKind.CLAIM:
        return TemplateFaultError(f"an older object has {file.name}")
    return TemplateFaultError(f"the file {file.path} is registered twice with different content")


CURRENT: ContextVar[Recorder] = ContextVar("haptic_trio_recorder")
"""The recorder of the render that runs in this context; always a `RenderRun`."""
current_recorder = CURRENT.get
