"""Rendering of one object as it would be; the state before is restored afterwards.

The render in hand is used, not another one: the object is shown to the
templates in place of the one in the store, what looked it up is rendered
again, the outcome is kept, and then the same is done with the object as it
is. So a rehearsal costs twice what the change itself would, and no memory
that grows with the cluster.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import TypeAlias

import msgspec
import trio

from haptic_trio.errors import HapticError, Problem
from haptic_trio.k8s.overlay import Overlay
from haptic_trio.k8s.resource import Resource, ResourceRef
from haptic_trio.k8s.store import ReadableStore
from haptic_trio.pipeline.missing_dependencies import PendingSources, fetch_all
from haptic_trio.pipeline.rejection.errors import RejectedError
from haptic_trio.pipeline.render import Rendered, Renderer, output_of
from haptic_trio.pipeline.session import RenderPermit, Session
from haptic_trio.templating.incremental.outputs import Recall
from haptic_trio.templating.incremental.refresh import Touched, take_changes
from haptic_trio.templating.values.limits import clock
from haptic_trio.templating.values.subjects import FragmentKey
from haptic_trio.templating.views import ResourcesView, answers_from, showing

MOST_FETCHES = 3
"""How often objects on demand are fetched for one rehearsal."""

Replacements: TypeAlias = Mapping[str, Mapping[ResourceRef, Resource | None]]
"""By name of the store: objects as they would be; None for one that would be gone."""


class DryRunError(HapticError):
    """No change can be tried now; trying again later helps."""


class DryRunRender(msgspec.Struct, frozen=True, kw_only=True):
    """What the templates make of the cluster as it is, and of the cluster with a change."""

    before: Rendered
    after: Rendered | None
    """None where nothing can be rendered with the change."""
    changed: frozenset[FragmentKey] = frozenset()
    """The fragments that have come, changed or gone with it."""
    problems: tuple[Problem, ...] = ()
    """Why nothing can be."""


async def render_dry_run(
    renderer: Renderer,
    stores: Mapping[str, ReadableStore],
    replacements: Replacements,
    recall: Recall,
    *,
    limit: float,
) -> DryRunRender:
    """Render *stores* with *replacements*, in a worker thread, for *limit* seconds at most.

    The renderer must have a newest render of them, nobody else may use the renderer
    meanwhile, and the stores must not change. Objects are fetched that are
    needed for it; what templates would fetch over HTTP is taken for empty.
    Raises `DryRunError` when the time is up.
    """
    until = clock() + limit
    for _turn in range(MOST_FETCHES):
        permit = RenderPermit(until)
        outcome = await renderer.lend(_DryRunStage(renderer, stores, recall, permit, replacements).run, permit)
        if outcome is None:
            raise DryRunError("nothing has been rendered yet")
        if isinstance(outcome, DryRunRender):
            return outcome
        await fetch_all(outcome, trio.current_time() + limit)
    raise DryRunError("more and more objects have to be fetched for it")


class _DryRunStage:
    """One renderer with the cluster as it is, for one rehearsal."""

    def __init__(
        self,
        renderer: Renderer,
        stores: Mapping[str, ReadableStore],
        recall: Recall,
        permit: RenderPermit,
        replacements: Replacements,
    ) -> None:
        self._renderer = renderer
        self._stores = stores
        self._recall = recall
        self._permit = permit
        self._replacements = replacements

    def run(self, before: Rendered, session: Session) -> DryRunRender | PendingSources:
        """Return the outcome, or where objects have to be fetched first; *session* is that of the render *before*."""
        run = session.run
        overlays = {name: Overlay(self._stores[name], objects) for name, objects in self._replacements.items()}
        after: Rendered | None = None
        problems: tuple[Problem, ...] = ()
        try:
            with _shown(session, overlays):
                session.take_fetched()
                if pending := self._render(session, self._permit):
                    return pending
                after = msgspec.structs.replace(output_of(session), is_new=False)
        except RejectedError as exc:
            if not self._permit.is_valid or clock() > self._permit.until:
                raise DryRunError("rendering it takes too long") from exc
            problems = exc.problems
        finally:
            # The next render is to speak of all of these: what is there again is there in another copy.
            changed = frozenset(run.changed)
            self._put_back(session)
        return DryRunRender(before=before, after=after, changed=changed, problems=problems)

    def _render(self, session: Session, permit: RenderPermit) -> PendingSources:
        return self._renderer.templates.bring_up_to_date(session, self._recall, permit)

    def _put_back(self, session: Session) -> None:
        """Render what is as it was; what does not come to that now stays to be done by the next render."""
        permit = RenderPermit()
        permit.is_valid = self._permit.is_valid
        with suppress(RejectedError):
            self._render(session, permit)


@contextmanager
def _shown(session: Session, overlays: Mapping[str, Overlay]) -> Iterator[None]:
    """Have the templates see *overlays*; at the end, note that what they did not is to be rendered again."""
    views = session.context["resources"]
    assert isinstance(views, ResourcesView)
    ahead: dict[str, Touched] = {}
    back: dict[str, Touched] = {}
    for name, overlay in overlays.items():
        refs = overlay.differences
        if refs:
            base = session.stores[name]
            ahead[name] = Touched(
                overlay.touched, {_id_of(ref): overlay.by_ref(ref) for ref in refs}, answers_from(overlay.get)
            )
            back[name] = Touched(
                overlay.touched, {_id_of(ref): base.by_ref(ref) for ref in refs}, answers_from(base.get)
            )
    try:
        with ExitStack() as stack:
            for name in ahead:
                stack.enter_context(showing(views[name], overlays[name]))
            take_changes(session.run, ahead)
            yield
    finally:
        take_changes(session.run, back)


def _id_of(ref: ResourceRef) -> tuple[str, str, str]:
    return ref.namespace, ref.name, ref.kind
