"""Rendering of one object as it would be; the state before is restored afterwards.

A dry run uses the session of the newest render: an overlay shows the changed
object to the templates, the fragments that looked it up render again, and the
result is kept. Then the overlay is removed and the same fragments render once
again. A dry run therefore costs twice as much as the change, and no memory
that grows with the cluster.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TypeAlias

import msgspec
import trio

from haptic_trio.errors import HapticError, Problem
from haptic_trio.k8s.overlay import Overlay
from haptic_trio.k8s.resource import Resource, ResourceRef
from haptic_trio.k8s.store import ReadableStore
from haptic_trio.pipeline.heavy_changes import MOST_DEPENDENTS
from haptic_trio.pipeline.missing_dependencies import PendingSources, fetch_all
from haptic_trio.pipeline.rejection.errors import RejectedError
from haptic_trio.pipeline.render import Rendered, Renderer, output_of
from haptic_trio.pipeline.session import RenderPermit, Session
from haptic_trio.templating.incremental.ahead import Change, dependents_of
from haptic_trio.templating.incremental.outputs import Recall
from haptic_trio.templating.incremental.refresh import Touched, take_changes
from haptic_trio.templating.values.limits import clock, cpu_clock
from haptic_trio.templating.values.subjects import FragmentKey
from haptic_trio.templating.views import ResourcesView, answers_from, seen_in, showing

LONGEST_RENDER = 1.0
"""Seconds after which the render of a change is given up: the changes of others wait meanwhile."""
MOST_FETCHES = 3
"""Maximum number of rounds in which on-demand objects are fetched for one dry run."""

Replacements: TypeAlias = Mapping[str, Mapping[ResourceRef, Resource | None]]
"""Changed objects by name of the store; None for an object that would be deleted."""


class DryRunError(HapticError):
    """No change can be tried now; trying again later helps."""


class DryRunRender(msgspec.Struct, frozen=True, kw_only=True):
    """Output of the templates without and with a change."""

    before: Rendered
    after: Rendered | None
    """None if the templates fail with the change."""
    changed: frozenset[FragmentKey] = frozenset()
    """Fragments that the change adds, changes or removes."""
    problems: tuple[Problem, ...] = ()
    """Why the templates fail with the change."""


async def render_dry_run(
    renderer: Renderer,
    stores: Mapping[str, ReadableStore],
    replacements: Replacements,
    recall: Recall,
    *,
    limit: float,
    longest: float = LONGEST_RENDER,
    note: Callable[[float], None] = lambda _seconds: None,
) -> DryRunRender:
    """Render *stores* with *replacements* in a worker thread, for at most *limit* seconds and *longest*.

    *note* is called in that thread with the seconds of CPU time that it took.
    The renderer must have a newest render of *stores*. Meanwhile no other
    task may use the renderer, and the stores must not change. Missing
    on-demand objects are fetched; contents that are not in memory are not
    fetched, and count as empty. Raises `DryRunError` when the time is up, and
    for an object of a namespace on which very many fragments depend.
    """
    seconds = min(limit, longest)
    until = clock() + seconds
    for _turn in range(MOST_FETCHES):
        permit = RenderPermit(until)
        stage = _DryRunStage(renderer, stores, recall, permit, replacements, seconds)
        outcome = await renderer.lend(partial(_run_measured, stage, note), permit)
        if outcome is None:
            raise DryRunError("nothing has been rendered yet")
        if isinstance(outcome, DryRunRender):
            return outcome
        if isinstance(outcome, DryRunError):
            raise outcome
        began = clock()
        await fetch_all(outcome, trio.current_time() + limit)
        until += clock() - began
    raise DryRunError(f"missing objects had to be fetched more than {MOST_FETCHES} times")


def _run_measured(
    stage: "_DryRunStage", note: Callable[[float], None], before: Rendered, session: Session
) -> DryRunRender | PendingSources | DryRunError:
    began = cpu_clock()
    try:
        return stage.run(before, session)
    finally:
        note(cpu_clock() - began)


class _DryRunStage:
    """Renderer, stores and change of one dry run."""

    def __init__(
        self,
        renderer: Renderer,
        stores: Mapping[str, ReadableStore],
        recall: Recall,
        permit: RenderPermit,
        replacements: Replacements,
        seconds: float,
    ) -> None:
        self._renderer = renderer
        self._stores = stores
        self._recall = recall
        self._permit = permit
        self._replacements = replacements
        self._seconds = seconds

    def run(self, before: Rendered, session: Session) -> DryRunRender | PendingSources | DryRunError:
        """Return the result, or the sources that have to fetch something first; *session* made the render *before*."""
        run = session.run
        overlays = {name: Overlay(self._stores[name], objects) for name, objects in self._replacements.items()}
        after: Rendered | None = None
        problems: tuple[Problem, ...] = ()
        if _is_heavy(session, overlays):
            # Not raised: the newest render stays what it is.
            return DryRunError(f"more than {MOST_DEPENDENTS} parts of the configuration depend on the object")
        choices = run.quarantined.choices()
        try:
            with _shown(session, overlays):
                session.take_fetched()
                if pending := self._render(session, self._permit):
                    return pending
                after = msgspec.structs.replace(output_of(session), is_new=False)
        except RejectedError as exc:
            if not self._permit.is_valid or clock() > self._permit.until:
                raise DryRunError(f"rendering the change takes too long: more than {self._seconds:g} s") from exc
            problems = exc.problems
        finally:
            # The next render reports all of these as changed: restored outputs are new copies.
            changed = frozenset(run.changed)
            # A good version that cannot be used with the change is given up, and not chosen again by itself.
            if run.quarantined.return_to(run, choices):
                session.fallbacks.take()
            self._restore(session)
        return DryRunRender(before=before, after=after, changed=changed, problems=problems)

    def _render(self, session: Session, permit: RenderPermit) -> PendingSources:
        return self._renderer.templates.bring_up_to_date(session, self._recall, permit)

    def _restore(self, session: Session) -> None:
        """Render without the change again; whatever fails now is left to the next render."""
        permit = RenderPermit()
        permit.is_valid = self._permit.is_valid
        with suppress(RejectedError):
            self._render(session, permit)


def _is_heavy(session: Session, overlays: Mapping[str, Overlay]) -> bool:
    """Whether very many turns depend on the changed objects.

    They would render twice while changes of others wait, and in the next
    cycle if the time is up before. Cycles render such changes in steps.
    """
    changes = {
        name: Change(overlay.touched, answers_from(overlay.get))
        for name, overlay in overlays.items()
        if any(ref.namespace for ref in overlay.differences)
    }
    return len(dependents_of(session.run, changes)) > MOST_DEPENDENTS


@contextmanager
def _shown(session: Session, overlays: Mapping[str, Overlay]) -> Iterator[None]:
    """Show *overlays* to the templates; at the end, mark the dependent fragments for rendering."""
    views = session.context["resources"]
    assert isinstance(views, ResourcesView)
    applied: dict[str, Touched] = {}
    restored: dict[str, Touched] = {}
    for name, overlay in overlays.items():
        refs = overlay.differences
        if refs:
            base = session.stores[name]
            applied[name] = Touched(
                overlay.touched, {_id_of(ref): overlay.by_ref(ref) for ref in refs}, answers_from(overlay.get)
            )
            restored[name] = Touched(
                overlay.touched, {_id_of(ref): base.by_ref(ref) for ref in refs}, answers_from(seen_in(views[name]).get)
            )
    try:
        with ExitStack() as stack:
            for name in applied:
                stack.enter_context(showing(views[name], overlays[name]))
            take_changes(session.run, applied)
            yield
    finally:
        take_changes(session.run, restored)


def _id_of(ref: ResourceRef) -> tuple[str, str, str]:
    return ref.namespace, ref.name, ref.kind
