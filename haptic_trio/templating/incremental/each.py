"""Rendering of `{% each x in resources.kind … %} … {% endeach %}`: a fragment for each object of a kind.

The engine owns the loop: when one object changes, only its turn renders
again, not the template around it. The body sees the variables around it as
they are when the loop is reached. If the text of the loop is captured (in a
macro, a set block or a fragment), the loop runs in place, and only its
fragments are kept.
"""

from bisect import insort
from collections.abc import Iterable, Mapping
from types import FunctionType
from typing import Any, Final, cast

from jinja2.runtime import Context
from jinja2.utils import missing

from haptic_trio.chunked import Piece
from haptic_trio.templating.incremental.ahead import Change, Result, dependents_of, other_answers
from haptic_trio.templating.incremental.attempts import attempt, attempt_ahead, find_output
from haptic_trio.templating.incremental.fragments import render_kept
from haptic_trio.templating.incremental.records import Child, Listing, ObjectId, Region, Root, Site, code_of, turns_of
from haptic_trio.templating.incremental.run import RenderRun, current_run
from haptic_trio.templating.incremental.scope import as_it_is, same, same_variables
from haptic_trio.templating.values.faults import ContentUnavailableError, TemplateFaultError
from haptic_trio.templating.values.limits import cpu_clock
from haptic_trio.templating.values.marks import REGION, split_marks
from haptic_trio.templating.values.sort_keys import order_by
from haptic_trio.templating.values.subjects import id_of_resource
from haptic_trio.templating.values.text import Emitted

_LAST: Final = (2,)
"""A sort key after that of every object; see `order_by`."""
_CLOSING: Final = (3,)
"""A sort key after that, of texts for rejected objects."""


class Opened(Emitted):
    """Placeholder for the text of a region in a root's output."""

    __slots__ = ("region",)

    region: Region


def render_each(
    view: Listing,
    name: str,
    criteria: tuple[str, ...],
    target: str,
    names: tuple[str, ...] | None,
    template: str,
    line: int,
    is_apart: bool,
    context: Context,
    local: Mapping[str, Any],
    site: Site,
    is_captured: bool,
) -> str:
    """Return the text of *site* for each object of *view*, or a placeholder for it in the root's output."""
    run = current_run()
    # The template's budget does not pay for what the engine does for each object.
    budget = run.switch(None)
    try:
        return _render_each(
            run, view, name, criteria, target, names, template, line, is_apart, context, local, site, is_captured
        )
    finally:
        run.switch(budget)


def _render_each(
    run: RenderRun,
    view: Listing,
    name: str,
    criteria: tuple[str, ...],
    target: str,
    names: tuple[str, ...] | None,
    template: str,
    line: int,
    is_apart: bool,
    context: Context,
    local: Mapping[str, Any],
    site: Site,
    is_captured: bool,
) -> str:
    if run.importing:
        raise TemplateFaultError(
            "an imported template contains an each", "include the template, or import it with context"
        )
    counted = run.within, "each", name
    ordinal = run.ordinals[counted]
    run.ordinals[counted] = ordinal + 1
    variables = {**context.get_all(), **{key: value for key, value in local.items() if value is not missing}}
    if names is not None:
        variables = {key: variables[key] for key in names if key in variables}
    root = run.root
    assert root is not None
    region = Region(root, site, name, ordinal, view, criteria)
    region.target, region.template, region.line, region.is_apart = target, template, line, is_apart
    region.within = f"{run.within} each "
    region.is_whole = names is None
    region.scope = as_it_is(variables)
    region.context = Context(context.environment, dict(region.scope), context.name, {})
    region.context.blocks = context.blocks
    if is_captured or run.unit is not root or run.subjects or code_of(site) in run.captured:
        run.trace.ordinals.append((counted, ordinal))
        return _render_in_place(run, region)
    return _open(run, root, region)


def _render_in_place(run: RenderRun, region: Region) -> str:
    root = region.root
    run.ask(("get", region.store))
    region.position = root.number, 2 * root.segments
    texts = []
    within = run.within
    try:
        for child in _children(region, region.view.peek()):
            run.tick()
            origin = region.origin_of(child, len(run.subjects))
            turn = _Turn(region, child)
            run.within = child.within
            if run.unit is root and not run.subjects:
                kept = render_kept(
                    run, root, origin, child.resource, region.scope, turn, is_each=True, is_apart=region.is_apart
                )
                texts.append(kept)
            else:
                texts.append(attempt(run, origin, child.resource, turn, is_apart=region.is_apart))
    finally:
        run.within = within
    run.build(sum(map(len, texts)))
    return Emitted("".join(texts))


def _open(run: RenderRun, root: Root, region: Region) -> str:
    """Add *region* to *root*, reusing the region of the last render if it is the same; render pending turns."""
    before = next(
        (known for known in root.regions if (known.name, known.ordinal) == (region.name, region.ordinal)), None
    )
    position = root.number, 2 * root.segments + 1
    if (
        before is not None
        and code_of(before.site) is code_of(region.site)
        and _has_same_blocks(run, before, region)
        and before.view is region.view
        and before.criteria == region.criteria
        and before.position == position
        and (same_variables if region.is_whole else same)(before.scope, region.scope, run.memo)
    ):
        # Equal, but the marks in the new scope number origins of the current text.
        before.scope, before.context, before.site = region.scope, region.context, region.site
        region = before
    else:
        region.position = position
        if before is not None:
            run.drop_region(before)
            root.regions.remove(before)
        root.regions.append(region)
        for child in _children(region, region.view.peek()):
            region.children[child.object_id] = child
            region.pending.add(child)
    run.opened.append(region)
    root.segments += 1
    render_pending(run, region)
    marker = Opened(REGION)
    marker.region = region
    return marker


def _has_same_blocks(run: RenderRun, before: Region, region: Region) -> bool:
    """Whether the body, and the blocks that it may call, are those of templates that are not stale."""
    if not run.alike:
        return True
    assert before.context is not None
    assert region.context is not None
    one, other = (
        {name: [code_of(block) for block in blocks] for name, blocks in context.blocks.items()}
        for context in (before.context, region.context)
    )
    # A body that names all that it uses is compared by the values of these.
    stale = run.alike.stale if region.is_whole else run.alike.changed
    makers = {
        cast("FunctionType", block).__globals__["name"] for blocks in region.context.blocks.values() for block in blocks
    }
    return one == other and region.template not in stale and stale.isdisjoint(makers)


def _children(region: Region, resources: Iterable[Any]) -> list[Child]:
    children = [_child(region, resource) for resource in resources]
    children.sort(key=lambda child: child.key)
    return children


def _child(region: Region, resource: Any) -> Child:
    object_id = id_of_resource(resource)
    try:
        order = order_by(resource, region.criteria)
    except ContentUnavailableError:
        # Last, until its key is known; its turn fails for the same reason.
        child = Child(region, object_id, (_LAST, object_id), resource)
        child.is_placed = False
        return child
    return Child(region, object_id, (order, object_id), resource)


def take_change(run: RenderRun, region: Region, object_id: ObjectId, resource: Any | None) -> None:
    """Apply the addition, change or removal (None) of an object to *region*."""
    child = region.children.get(object_id)
    if child is not None and child.resource is resource:
        return
    fresh = _child(region, resource) if resource is not None else None
    if child is not None and fresh is not None and fresh.is_placed and fresh.key == child.key:
        child.resource = resource
        run.ahead.forget(child)
        region.pending.add(child)
        return
    if child is not None:
        _remove(run, region, child)
    if fresh is not None:
        if child is not None and not fresh.is_placed:
            # Its fallback keeps the former place.
            fresh.key = child.key
        region.children[object_id] = fresh
        region.pending.add(fresh)


def _remove(run: RenderRun, region: Region, child: Child) -> None:
    del region.children[child.object_id]
    region.pending.discard(child)
    _shelve(region, child, [])
    run.drop(child)
    region.root.is_changed = True


def render_pending(run: RenderRun, region: Region) -> None:
    """Render the pending turns of *region*, in order."""
    if not region.pending:
        return
    region.root.is_changed = True
    for child in [child for child in region.pending if not child.is_placed]:
        fresh = _child(region, child.resource)
        if fresh.is_placed:
            _remove(run, region, child)
            region.children[child.object_id] = fresh
            region.pending.add(fresh)
    waiting = sorted([(child.key, child) for child in region.pending])
    run.turns_due += len(waiting)
    # Items are added behind the position only.
    for position, (_, child) in enumerate(waiting, 1):
        if child not in region.pending:
            continue
        run.tick()
        _render_child(run, region, child)
        run.turns_done += 1
        # A changed file may make later turns pending.
        for other in run.woken:
            if other.region is region:
                run.turns_due += 1
                insort(waiting, (other.key, other), lo=position)
        run.woken.clear()


def _render_child(run: RenderRun, region: Region, child: Child) -> None:
    with run.rendering(region.root, child, child.within) as trace:
        turn = _Turn(region, child)
        text, origin = find_output(
            run, region.origin_of(child), child.resource, turn, is_apart=region.is_apart, bodies=turn.body_for
        )
        pieces = split_marks(text, run.origins, origin)
        run.commit(child)
        run.forget_origins(trace.origins)
    _shelve(region, child, pieces)
    region.pending.discard(child)


def render_ahead(run: RenderRun, changes: Mapping[str, Change], until: float) -> int:
    """Render turns that depend on *changes*, which the views show, until the CPU time *until*; return the number left.

    The records stay as they are. At least one turn is rendered. Of objects that are quarantined or released for
    one of these turns, all turns are rendered, since their output changes.
    """
    left = 0
    is_late = False
    # First: answers as they are without the changes.
    found = dependents_of(run, changes)
    waiting = list(found)
    with other_answers(run, changes), run.rendering_ahead():
        for child in waiting:
            if child in child.region.pending:
                continue
            if child not in run.ahead:
                if is_late:
                    left += 1
                    continue
                _render_ahead(run, child)
                is_late = cpu_clock() > until
            if _quarantines_or_releases(run, child):
                more = dict.fromkeys(turn for turn in turns_of(run.roots, child.object_id) if turn not in found)
                found |= more
                waiting += more
    return left


def fails_ahead(run: RenderRun, changes: Mapping[str, Change], found: ObjectId, versions: Mapping[str, Any]) -> bool:
    """Whether the object *found* will fail with *changes*, which the views show; *versions* are its own, by store."""
    with other_answers(run, changes), run.rendering_ahead():
        for region in [turn.region for turn in turns_of(run.roots, found)]:
            version = versions.get(region.store)
            if version is None or region.is_apart:
                continue
            child = _child(region, version)
            result = _call_body(run, child)
            if result is None or result.made.output is None:
                return True
            if run.recall.problem_with(region.origin_of(child).key, result.made.output) is not None:
                return True
    return False


def _quarantines_or_releases(run: RenderRun, child: Child) -> bool:
    result = run.ahead.result_of(child)
    if result is None or child.region.is_apart:
        return False
    if result.made.problem is None:
        return bool(child.rejections)
    return run.quarantined.fallback_of(child.region.origin_of(child).subject) is None


def _call_body(run: RenderRun, child: Child) -> Result | None:
    region = child.region
    with run.rendering(region.root, child, region.within) as trace:
        origin = region.origin_of(child, len(run.subjects))
        run.within = child.within
        turn = _Turn(region, child)
        result = attempt_ahead(run, origin, child.resource, turn, turn.body_for)
        run.forget_origins(trace.origins)
    return result


def _render_ahead(run: RenderRun, child: Child) -> None:
    result = _call_body(run, child) if child.is_placed else None
    if result is None:
        run.ahead.skip(child)
    else:
        run.ahead.put(run, child, result)


def _shelve(region: Region, child: Child, pieces: list[Piece]) -> None:
    is_closing = any(output.is_closing for output in child.outputs.values())
    # After the texts of other objects: of equal keys of a map, for example, theirs take precedence.
    place = (_CLOSING, child.key) if is_closing else child.key
    if place != child.place:
        for number in range(len(child.pieces)):
            region.shelf.remove((child.place, number))
        child.pieces, child.place = (), place
    for number, piece in enumerate(pieces):
        region.shelf.put((place, number), piece)
    for number in range(len(pieces), len(child.pieces)):
        region.shelf.remove((place, number))
    child.pieces = tuple(pieces)


class _Turn:
    """The body of a region for one object, to be called."""

    __slots__ = ("child", "region", "resource")

    def __init__(self, region: Region, child: Child, resource: Any = None) -> None:
        self.region, self.child = region, child
        self.resource = child.resource if resource is None else resource

    def body_for(self, version: Any) -> "_Turn":
        """Return the body for another *version* of the object."""
        return _Turn(self.region, self.child, version)

    def __call__(self) -> str:
        region = self.region
        if not self.child.is_placed:
            order_by(self.resource, region.criteria)
        context = region.context
        assert context is not None
        context.vars = {region.target: self.resource}
        return run_site(current_run(), region.site(context))


def run_site(run: RenderRun, stream: Any) -> Emitted:
    """Return the text that *stream*, a compiled body, yields, within the limit of output."""
    parts: list[str] = []
    size, room = 0, run.room
    for part in stream:
        parts.append(part)
        size += len(part)
        # Fragments inside for other objects make room for their text.
        if size > room and size > (room := run.room):
            # Thrown into the template, so that the traceback knows the line.
            stream.throw(run.too_large())
    run.build(size)
    return Emitted("".join(parts))
