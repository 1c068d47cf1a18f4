"""Take-over: a run for a changed configuration begins with the records of the run before it.

The records are copied, and what may depend on a difference becomes pending. No
render of the former run can be in progress while they are read, so reading
takes few steps for each record; objects are made of them after that.

All roots render again: they have other functions and variables around their
regions. A region is kept if its body and the variables around it are the same
(see `scope.Memo`), and so are the turns in it that asked for nothing that
differs. What has been rendered before is shared: texts, pages and outputs.
"""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from haptic_trio.chunked import Paged
from haptic_trio.templating.incremental.dependencies import DependencyIndex
from haptic_trio.templating.incremental.quarantined import QuarantinedObjects
from haptic_trio.templating.incremental.questions import Dependency, Part
from haptic_trio.templating.incremental.records import Child, Kept, Listing, Node, Region, Root
from haptic_trio.templating.incremental.run import RenderRun
from haptic_trio.templating.incremental.scope import Memo


class Differences(msgspec.Struct, frozen=True, kw_only=True):
    """Differences of two configurations with the same outputs, limits and stores."""

    changed: frozenset[str] = frozenset()
    """Templates with another text or other snippets."""
    stale: frozenset[str] = frozenset()
    """Templates that may render differently by themselves: the changed ones, and those that use `variables`."""
    variables: frozenset[str] = frozenset()
    """Variables with other values; only stale templates use them."""
    stores: frozenset[str] = frozenset()
    """Stores whose objects are not those of the former store."""


def take_over(
    run: RenderRun,
    former: RenderRun,
    context: Mapping[str, Any],
    views: Mapping[str, Listing],
    differences: Differences,
    alike: Memo,
) -> Callable[[], None]:
    """Have *run*, which is new, begin with the records of *former*; return what completes it, and must follow.

    Nothing may render in *former* during this call, which copies what changes,
    as quickly as possible. What it returns takes longer, and *former* may
    render meanwhile. *context* and *views* are those of *run*. *alike*
    declares which objects in variables of *former* stand for which of *run*.
    The next render refreshes all roots; call `settle` after it.
    """
    copying = _Copying(run, former, context, views)
    copying.copy()
    quarantined = tuple(former.quarantined.objects)

    def complete() -> None:
        copying.complete()
        over = frozenset(
            region.template
            for root in run.roots.values()
            for region in root.regions
            if region.store in differences.stores
        )
        alike.changed, alike.stale = differences.changed | over, differences.stale | over
        alike.variables = differences.variables
        # Compiled macros hold the run.
        alike.declare(former, run)
        run.alike = alike
        for question in [question for question in run.index if _differs(question, differences)]:
            if type(question) is Part:
                run.index.renew(question.question, None)
            run.touch(question)
        for found in quarantined:
            run.touch_object(found)

    return complete


def settle(run: RenderRun) -> None:
    """Forget what `take_over` declared: all roots have been rendered, and refer to nothing of the former run."""
    run.alike = Memo()


def _differs(question: Dependency, differences: Differences) -> bool:
    if isinstance(question, Part):
        return question.question[1] in differences.stores
    match question[0]:
        case "get" | "object":
            return question[1] in differences.stores
        case "template":
            return question[1] in differences.stale
        case kind:
            # Another configuration accepts fetched contents by itself.
            return kind == "http"


class _Turns(NamedTuple):
    """The turns of a region at one moment."""

    children: list[Child]
    fields: list[tuple[Any, ...]]
    """Values of `_FIELDS` of each."""
    pending: set[Child]


class _Copying:
    """Copies the records of a run; lives for one call."""

    def __init__(
        self, run: RenderRun, former: RenderRun, context: Mapping[str, Any], views: Mapping[str, Listing]
    ) -> None:
        self._run = run
        self._former = former
        self._context = context
        self._views = views
        self._nodes: dict[Node, Node] = {}
        self._turns: list[tuple[Region, _Turns]] = []
        self._index = former.index.snapshot()

    def copy(self) -> None:
        """Copy all but the turns and the index; claims and rejections still name units of the former run."""
        run, former = self._run, self._former
        for root in former.roots.values():
            run.roots[root.name] = self._copy_root(root)
        run.claims, run.contested = former.claims.copied(), former.contested.copied()
        run.quarantined = QuarantinedObjects(run.contested)
        run.registrations.take_over(former.registrations)
        run.produced = former.produced.copied()
        # Those of a render that failed, which its caller has not taken.
        run.changed_files = set(former.changed_files)
        run.shares.take_over(former.shares)
        run.take_reports(former)
        run.captured = set(former.captured)
        run.take_origins(former)

    def complete(self) -> None:
        """Make the turns, and what refers to them."""
        for region, turns in self._turns:
            self._make_turns(region, turns)
        self._run.index = DependencyIndex.of(self._index, self._nodes)
        self._run.replace_units(self._nodes)
        self._run.changed = set(self._run.produced)

    def _copy_root(self, root: Root) -> Root:
        copy = Root(root.name, root.number, self._context)
        self._nodes[root] = copy
        copy.asked, copy.outputs, copy.rejections = root.asked, root.outputs, root.rejections
        copy.warnings, copy.files, copy.clashes, copy.found = root.warnings, root.files, root.clashes, root.found
        copy.wants, copy.unused = root.wants, root.unused
        copy.has_entries, copy.origins, copy.segments, copy.text = (
            root.has_entries, root.origins, root.segments, root.text,
        )  # fmt: skip
        copy.regions = [self._copy_region(copy, region) for region in root.regions]
        # Only the texts between regions: those of the regions are put in when the root has been rendered.
        copy.parts = [part for part in root.parts if isinstance(part, Paged)]
        for key, kept in root.kept.items():
            copy.kept[key] = self._nodes[kept] = fresh = object.__new__(Kept)
            for slot in Kept.__slots__:
                setattr(fresh, slot, getattr(kept, slot))
            fresh.root = copy
        return copy

    def _copy_region(self, root: Root, region: Region) -> Region:
        view = self._views[region.store]
        copy = Region(root, region.site, region.name, region.ordinal, view, region.criteria)
        copy.target, copy.template, copy.line, copy.is_apart = (
            region.target, region.template, region.line, region.is_apart,
        )  # fmt: skip
        copy.position, copy.within, copy.scope, copy.context = (
            region.position, region.within, region.scope, region.context,
        )  # fmt: skip
        copy.is_whole, copy.shelf = region.is_whole, region.shelf.copied()
        children = list(region.children.values())
        self._turns.append((copy, _Turns(children, list(map(_FIELDS, children)), set(region.pending))))
        return copy

    def _make_turns(self, region: Region, turns: _Turns) -> None:
        children, nodes = region.children, self._nodes
        for child, fields in zip(turns.children, turns.fields, strict=True):
            object_id, key, resource = fields[:3]
            fresh = nodes[child] = children[object_id] = Child(region, object_id, key, resource)
            (
                fresh.asked, fresh.outputs, fresh.rejections, fresh.warnings, fresh.files, fresh.clashes, fresh.found,
                fresh.wants, fresh.unused, fresh.is_placed, fresh.pieces, fresh.place,
            ) = fields[3:]  # fmt: skip
        region.pending = {children[child.object_id] for child in turns.pending}


_FIELDS: Final = attrgetter(
    "object_id", "key", "resource",
    "asked", "outputs", "rejections", "warnings", "files", "clashes", "found", "wants", "unused",
    "is_placed", "pieces", "place",
)  # fmt: skip
"""The state of a turn. Its values are immutable, or replaced as a whole."""
