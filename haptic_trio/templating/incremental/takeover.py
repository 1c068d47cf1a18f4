"""Take-over: a run for a changed configuration begins with the records of the run before it.

The records are copied, and what may depend on a difference becomes pending.
All roots render again: they have other functions and variables around their
regions. A region is kept if its body and the variables around it are the same
(see `scope.Memo`), and so are the turns in it that asked for nothing that
differs. What has been rendered before is shared: texts, pages and outputs.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from haptic_trio.chunked import Paged
from haptic_trio.templating.incremental.quarantined import touch_object
from haptic_trio.templating.incremental.questions import Dependency, Part
from haptic_trio.templating.incremental.records import Child, Kept, Listing, Node, Region, Root, Unit
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
) -> None:
    """Have *run*, which is new, begin with the records of *former*; nothing may render in either meanwhile.

    *context* and *views* are those of *run*. *alike* declares which objects in
    variables of *former* stand for which of *run*. The next render refreshes
    all roots; call `settle` after it.
    """
    _Copying(run, former, context, views).copy()
    over = frozenset(
        region.template for root in run.roots.values() for region in root.regions if region.store in differences.stores
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
    for found in former.quarantined.objects:
        touch_object(run, found)


def settle(run: RenderRun) -> None:
    """Forget what `take_over` declared: all roots have been rendered, and refer to nothing of the former run."""
    run.alike = Memo()


def _differs(question: Dependency, differences: Differences) -> bool:
    match question[0]:
        case "get" | "has" | "object":
            return question[1] in differences.stores
        case "template":
            return question[1] in differences.stale
        case kind:
            # Another configuration accepts fetched contents by itself.
            return kind == "http"


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

    def copy(self) -> None:
        run, former = self._run, self._former
        for root in former.roots.values():
            run.roots[root.name] = self._copy_root(root)
        nodes: dict[Any, Any] = self._nodes
        run.index = former.index.copied(nodes)
        run.claims = former.claims.copied(nodes)
        run.produced = former.produced.copied()
        run.changed = set(run.produced)
        run.shares.take_over(former.shares)
        run.take_reports(former, nodes)
        run.captured = set(former.captured)
        run.take_origins(former)

    def _copy_root(self, root: Root) -> Root:
        copy = Root(root.name, root.number, self._context)
        self._nodes[root] = copy
        _copy_unit(copy, root)
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
        children, nodes = copy.children, self._nodes
        for object_id, child in region.children.items():
            fresh = nodes[child] = children[object_id] = Child(copy, object_id, child.key, child.resource)
            _copy_unit(fresh, child)
            fresh.is_placed, fresh.pieces, fresh.place = child.is_placed, child.pieces, child.place
        copy.pending = {children[child.object_id] for child in region.pending}
        return copy


def _copy_unit(copy: Unit, unit: Unit) -> None:
    copy.asked, copy.outputs, copy.rejections = unit.asked, unit.outputs, unit.rejections
    copy.warnings, copy.files = unit.warnings, unit.files
