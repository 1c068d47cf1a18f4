"""Incremental refresh: valid records stay, invalid ones render again in order."""

from collections.abc import Generator, Iterable, Mapping
from typing import Any, Final, cast

import msgspec
from jinja2 import Template

from haptic_trio.chunked import Page, Paged, Piece
from haptic_trio.templating.incremental.each import Opened, render_pending, take_change
from haptic_trio.templating.incremental.questions import Answer, Part, Question
from haptic_trio.templating.incremental.records import ObjectId, Region, Root, code_of
from haptic_trio.templating.incremental.run import RenderRun
from haptic_trio.templating.values.marks import split_marks
from haptic_trio.templating.values.subjects import RenderedText

_MOST_TURNS: Final = 10


class Touched(msgspec.Struct, frozen=True):
    """Changes of a store since the last render."""

    keys: Iterable[tuple[str, ...]]
    """Keys of lookups whose answer may differ; the lookup of all objects is always included."""
    objects: Mapping[ObjectId, Any | None]
    """Each object that was added, changed or removed (None)."""
    answer: Answer | None = None
    """Answers aspects of lookups as the store is now. Without it every answer counts as changed."""


def take_changes(run: RenderRun, changes: Mapping[str, Touched]) -> None:
    """Make pending in *run* what *changes*, by name of the store, affect."""
    run.shared.clear()
    regions: dict[str, list[Region]] = {}
    for root in run.roots.values():
        for region in root.regions:
            regions.setdefault(region.store, []).append(region)
    for store, touched in changes.items():
        for keys in {(), *touched.keys}:
            run.touch(("get", store, *keys))
            for part in _renew(run, ("has", store, *keys), touched.answer):
                run.touch(part)
        for object_id, resource in touched.objects.items():
            for region in regions.get(store, ()):
                take_change(run, region, object_id, resource)


def _renew(run: RenderRun, question: Question, answer: Answer | None) -> list[Part]:
    keys = question[2:]
    return run.index.renew(question, None if answer is None else lambda aspect: answer(aspect, keys))


class _CapturedError(Exception):
    """The text of an each was captured before it was rendered."""


def refresh(run: RenderRun, name: str, template: Template, context: Mapping[str, Any]) -> RenderedText:
    """Return the current text of the root *name*; if *context* is another object, everything renders.

    After a failure the state is consistent: the root renders as a whole the
    next time, or its pending turns stay pending.
    """
    known = run.roots.get(name)
    if known is None:
        run.roots[name] = Root(name, len(run.roots), context)
    elif known.context is not context:
        run.drop_root(known)
        run.roots[name].context = context
    run.failed_for = None
    for _turn in range(_MOST_TURNS):
        root = run.roots[name]
        if not root.is_valid:
            root = _render_root(run, name, template)
        for region in root.regions:
            run.woken.clear()
            render_pending(run, region)
        if root.is_valid:
            break
    else:
        # Files that are registered twice can make their fragments pending in turn; a render from the start cannot.
        run.drop_root(root)
        root = _render_root(run, name, template)
    if root.is_changed:
        _put_together(run, root)
    return root.text


def _render_root(run: RenderRun, name: str, template: Template) -> Root:
    while True:
        root = run.roots[name]
        try:
            _run(run, root, template)
        except _CapturedError:
            # At most once for each such place.
            run.drop_root(root)
        except BaseException:
            run.drop_root(root)
            raise
        else:
            return root


def _run(run: RenderRun, root: Root, template: Template) -> None:
    for module in tuple(root.modules.values()):
        run.invalidate(module)
    run.ahead.forget_root(root)
    root.segments = 0
    run.opened = []
    with run.rendering(root, root, root.name) as trace:
        try:
            texts, regions = _collect(run, template, root.context)
        except BaseException:
            run.forget_origins(trace.origins)
            raise
        parts: list[Paged[Piece] | Region] = []
        before = [part for part in root.parts if isinstance(part, Paged)]
        for number, text in enumerate(texts):
            pieces = split_marks(text, run.origins)
            parts.append(_respliced(before[number] if number < len(before) else Paged(), pieces))
            parts += regions[number : number + 1]
        run.commit(root)
        kept = {id(fragment) for fragment in run.keeping.values()}
        run.forget_kept(fragment for fragment in root.kept.values() if id(fragment) not in kept)
        root.kept = run.keeping
    run.forget_origins(root.origins.difference(trace.origins))
    root.origins = frozenset(trace.origins)
    opened = {id(region) for region in regions}
    former, root.regions = root.regions, regions
    root.parts = parts
    root.is_valid = root.is_changed = True
    # At last: the root has found the files of these regions registered, and renders again without them.
    for region in former:
        if id(region) not in opened:
            run.drop_region(region)


def _collect(run: RenderRun, template: Template, context: Mapping[str, Any]) -> tuple[list[str], list[Region]]:
    """Return the texts between the regions, one more than these, and the regions."""
    texts: list[str] = []
    regions: list[Region] = []
    parts: list[str] = []
    size, room = 0, 0.0
    stream = cast("Generator[str, None, None]", template.root_render_func(template.new_context(dict(context))))
    budget = run.switch_outside()
    try:
        for part in stream:
            if type(part) is Opened:
                texts.append("".join(parts))
                parts = []
                regions.append(part.region)
                continue
            parts.append(part)
            size += len(part)
            if size > room and size > (room := run.room):
                # Thrown into the template, so that the traceback knows the line.
                stream.throw(run.too_large())
    except Exception:
        if _find_captured(run, regions):
            raise _CapturedError from None
        raise
    finally:
        run.switch(budget)
    if _find_captured(run, regions):
        raise _CapturedError
    texts.append("".join(parts))
    return texts, regions


def _find_captured(run: RenderRun, regions: list[Region]) -> bool:
    """Record the regions that were opened and are not in the output; False without one."""
    out = {id(region) for region in regions}
    captured = {code_of(region.site) for region in run.opened if id(region) not in out}
    run.captured |= captured
    return bool(captured)


def _respliced(before: Paged[Piece], pieces: list[Piece]) -> Paged[Piece]:
    """Return *pieces*, reusing the pages of *before* with the same text at the beginning and at the end."""
    first, front = 0, 0
    pages = before.pages
    while front < len(pages) and _is_same(pages[front], pieces, first):
        first += len(pages[front].items)
        front += 1
    last, back = len(pieces), len(pages)
    while back > front and last - len(pages[back - 1].items) >= first:
        if not _is_same(pages[back - 1], pieces, last - len(pages[back - 1].items)):
            break
        back -= 1
        last -= len(pages[back].items)
    return Paged((*pages[:front], *Paged.of(pieces[first:last]).pages, *pages[back:]))


def _is_same(page: Page[Piece], pieces: list[Piece], first: int) -> bool:
    return len(pieces) - first >= len(page.items) and all(
        old.text == new.text and old.origin == new.origin for old, new in zip(page.items, pieces[first:], strict=False)
    )


def _put_together(run: RenderRun, root: Root) -> None:
    pages: list[Page[Piece]] = []
    for part in root.parts:
        pages += (part if isinstance(part, Paged) else part.shelf.paged()).pages
    root.text = RenderedText(Paged(pages))
    root.is_changed = False
    question = "lines", root.name
    if question in run.index and root.text.has_entries != root.has_entries:
        run.touch(question)
