"""Session of a renderer: state that one render keeps for the next."""

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, cast

from haptic_trio.haproxy.model import AuxFile, FileKind, Files, make_file
from haptic_trio.httpstore.fetches import Fetches, HttpView
from haptic_trio.k8s.index import Keys
from haptic_trio.k8s.on_demand import OnDemandStore
from haptic_trio.k8s.overlay import Overlay
from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.k8s.store import ReadableStore
from haptic_trio.k8s.tracker import Tracker
from haptic_trio.pipeline.conflicts import Conflicts
from haptic_trio.pipeline.missing_dependencies import PendingSources
from haptic_trio.templating.incremental.ahead import Change, dependents_of
from haptic_trio.templating.incremental.each import render_ahead
from haptic_trio.templating.incremental.questions import Answer
from haptic_trio.templating.incremental.recorder import CURRENT
from haptic_trio.templating.incremental.records import Child
from haptic_trio.templating.incremental.refresh import Touched, take_changes
from haptic_trio.templating.incremental.run import RenderRun
from haptic_trio.templating.incremental.scope import Memo
from haptic_trio.templating.incremental.takeover import Differences, take_over
from haptic_trio.templating.values.subjects import ObjectWarning, Origin, RenderedText
from haptic_trio.templating.values.versions import Versioned
from haptic_trio.templating.values.warning_list import merged
from haptic_trio.templating.views import (
    ResourcesView,
    answers_from,
    forget_store,
    mark_used,
    seen_in,
    show_instead,
    showing,
    shown_by,
    used_kinds,
    views_in,
)

_FEW: Final = 10
"""The part of the limit of `find_heavy` that an object may always make pending."""


class Session:
    """Recorded renders of one set of stores."""

    def __init__(
        self,
        stores: Mapping[str, ReadableStore],
        variables: Mapping[str, object],
        run: RenderRun,
        reads_secrets: Callable[[RenderRun, str, Origin | None], bool],
        open_fetches: Callable[[ResourcesView], Fetches],
    ) -> None:
        self.stores = stores
        self.run = run
        self.views = views = ResourcesView(stores)
        self.fetches = open_fetches(views)
        self.context = {**variables, "resources": views, "http": HttpView(self.fetches)}
        self.trackers: dict[str, Tracker] = {name: store.track() for name, store in stores.items()}
        self.files: Files | None = None
        self.texts: Versioned[str, RenderedText] = Versioned()
        self.changed_files: dict[str, AuxFile | None] = {}
        """Changes that `files` does not include yet, by path; None: removed."""
        self.count = 0
        self.rendered_before = 0
        self.is_delivered = False
        """Whether any render has reached its caller."""
        self.released: set[ResourceRef] = set()
        """Objects for whose changes turns were rendered ahead; the stores contain these changes now."""
        self._fallback_versions: dict[ResourceRef, Any] = {}
        self._overlays: dict[str, tuple[ReadableStore, Overlay]] = {}
        """Overlays that answer lookups in place of the stores, by store name, each with the store below."""
        self._conflicts = Conflicts(partial(reads_secrets, run))
        self._warnings: tuple[tuple[ObjectWarning, ...], ...] = ((), (), ())

    def take_over(self, former: "Session", differences: Differences, alike: Memo) -> Callable[[], None]:
        """Begin with the records of *former*, as far as *differences* leave them valid.

        Returns what completes it, and must follow. Nothing may render in
        *former* until the return of this call. *alike* declares functions of
        both configurations that mean the same. The stores that do not differ
        have the content that *former* sees in its own.
        """
        for name in ("resources", "http"):
            alike.declare(former.context[name], self.context[name])
        views, former_views = views_in(self.views), views_in(former.views)
        for name, view in views.items():
            alike.declare(former_views[name], view)
        complete = take_over(self.run, former.run, self.context, views, differences, alike)
        mark_used(self.views, used_kinds(former.views))
        self.files, self.texts = former.files, former.texts.copied()
        self.changed_files = dict(former.changed_files)
        for name, tracker in self.trackers.items():
            tracker.add(former.trackers[name])
        # Quarantined objects are looked up as they are now, until it is decided again which these are.
        quarantined = {
            name: Touched(
                overlay.touched,
                {(ref.namespace, ref.name, ref.kind): base.by_ref(ref) for ref in overlay.differences},
            )
            for name, (base, overlay) in former._overlays.items()  # noqa: SLF001  the two are of one class
        }

        def complete_with_quarantined() -> None:
            complete()
            if quarantined:
                take_changes(self.run, quarantined)

        return complete_with_quarantined

    def dismantle(self) -> None:
        """Free the records and let go of the stores; the session must not be used any more."""
        self.run.dismantle()
        for view in views_in(self.views).values():
            forget_store(view)
        self.stores, self.trackers, self.context = {}, {}, {}
        self.texts, self.files = Versioned(), None
        self._overlays.clear()

    def put(self, kind: FileKind, path: str, text: RenderedText, *, secret: bool) -> None:
        """Set the text at *path*."""
        if self.texts.get(path) is not text:
            self.texts.put(path, text)
            self.changed_files[path] = make_file(kind, path, text.pieces, secret=secret)

    def remove(self, path: str) -> None:
        """Remove the text at *path*."""
        self.texts.remove(path)
        self.changed_files[path] = None

    def take_files(self) -> Files:
        """Return all files, with the changes since the last call."""
        put = [file for file in self.changed_files.values() if file is not None]
        if self.files is None:
            self.files = Files.of(put)
        elif self.changed_files:
            self.files = self.files.changed(put, [path for path, file in self.changed_files.items() if file is None])
        self.changed_files = {}
        return self.files

    def take_warnings(self, files: Files, texts: Mapping[str, RenderedText]) -> tuple[ObjectWarning, ...]:
        """Return the warnings to owners of objects; *files* and *texts* are the present ones."""
        warnings, conflicts = self.run.warnings, self._conflicts.take(files, texts)
        if self._warnings[0] is not warnings or self._warnings[1] is not conflicts:
            self._warnings = warnings, conflicts, merged(warnings, conflicts)
        return self._warnings[2]

    def take_changes(self) -> None:
        """Mark the fragments that depend on changes in the stores, so that they render again."""
        changes: dict[str, Touched] = {}
        released: dict[str, Touched] = {}
        for name, tracker in self.trackers.items():
            touched = tracker.take()
            ahead = {ref: touched.pop(ref) for ref in self.released if ref in touched}
            for found, refs in ((changes, touched), (released, ahead)):
                if refs:
                    found[name] = self._touched_by(name, refs)
        if changes:
            take_changes(self.run, changes)
        if released:
            with self.run.ahead.releasing():
                take_changes(self.run, released)

    def _touched_by(self, name: str, refs: Mapping[ResourceRef, AbstractSet[Keys]]) -> Touched:
        store = self.stores[name]
        objects = {(ref.namespace, ref.name, ref.kind): store.by_ref(ref) for ref in refs}
        return Touched(set().union(*refs.values()), objects, self._answers(name))

    def _answers(self, name: str) -> Answer:
        return answers_from(seen_in(views_in(self.views)[name]).get)

    @property
    def progress(self) -> tuple[int, int]:
        """Number of fragments that the present render has rendered, and of those that it has found so far.

        The latter is 0 before it has reached an `{% each %}`. May be asked from any thread.
        """
        run = self.run
        return (run.turns_done, run.turns_due) if run.turns_due else (run.rendered - self.rendered_before, 0)

    def end_release(self) -> None:
        """Forget what was rendered ahead, after a render that has used it."""
        if self.released:
            self.released.clear()
            self.run.ahead.clear()

    def find_heavy(self, most: int) -> Iterator[ResourceRef]:
        """Yield the changed objects that more than *most* turns depend on.

        Several objects of a namespace count together. Those that few turns depend on are never heavy.
        """
        few = most // _FEW
        together: dict[str, dict[Child, None]] = {}
        for name, tracker in self.trackers.items():
            for ref, keys in tracker.touched().items():
                # The content of an on-demand object may have to be fetched first.
                if not ref.namespace or ref in self.released or isinstance(self.stores[name], OnDemandStore):
                    continue
                index = self.run.index
                if sum(index.count((kind, name, *one)) for one in keys for kind in ("get", "has")) <= few:
                    continue
                found = dependents_of(self.run, {name: Change(keys, self._answers(name))})
                if len(found) <= few:
                    continue
                others = together.get(ref.namespace, {})
                if len(others | found) > most:
                    yield ref
                else:
                    together[ref.namespace] = others | found

    def render_ahead(self, replacements: Mapping[str, Mapping[ResourceRef, Any | None]], until: float) -> int:
        """Render turns that depend on *replacements*, by name of the store, until the CPU time *until*.

        Return how many are left. The records stay as they are.
        """
        self.run.reset()
        views = views_in(self.views)
        changes: dict[str, Change] = {}
        token = CURRENT.set(self.run)
        try:
            with ExitStack() as stack:
                for name, objects in replacements.items():
                    overlay = Overlay(self.stores[name], objects)
                    if overlay.differences:
                        seen = self._with_fallback_versions(name, objects) or overlay
                        stack.enter_context(showing(views[name], overlay, seen))
                        changes[name] = Change(overlay.touched, answers_from(seen.get))
                return render_ahead(self.run, changes, until)
        finally:
            CURRENT.reset(token)

    def _with_fallback_versions(self, name: str, objects: Mapping[ResourceRef, Any | None]) -> Overlay | None:
        """Return what lookups in the store *name* will find once it contains *objects*; None without fallbacks."""
        if name not in self._overlays:
            return None
        _, fallbacks = self._overlays[name]
        # Quarantined objects are still found in their last good versions.
        hidden = fallbacks.differences
        return Overlay(fallbacks, {ref: one for ref, one in objects.items() if ref not in hidden})

    def show_fallback_versions(self, *, is_settled: bool = True) -> None:
        """Make lookups find quarantined objects in their last good versions.

        Without *is_settled*, only the present overlays are put on top of the stores that the views show now.
        """
        if is_settled:
            versions = self.run.quarantined.fallback_versions(self.run) if self.run.quarantined else {}
            self._fallback_versions = {
                ResourceRef(kind, namespace, name): resource
                for (namespace, name, kind), resource in versions.items()
                # Objects of on-demand stores are not kept.
                if type(resource) is dict
            }
        changes: dict[str, Touched] = {}
        for name, view in views_in(self.views).items() if self._fallback_versions or self._overlays else ():
            base, before = cast("ReadableStore", shown_by(view)), self._overlays.get(name)
            if not is_settled and (before is None or (before[0] is base and _has_all(base, before[1]))):
                continue
            wanted = {ref: good for ref, good in self._fallback_versions.items() if base.by_ref(ref) is not None}
            overlay = Overlay(base, wanted) if wanted else None
            touched = before[1].touched if before is not None else frozenset()
            show_instead(view, overlay)
            if overlay is None:
                self._overlays.pop(name, None)
            else:
                self._overlays[name] = base, overlay
                touched |= overlay.touched
            if touched:
                changes[name] = Touched(touched, {}, answers_from(seen_in(view).get))
        if changes:
            take_changes(self.run, changes)

    def take_fetched(self) -> None:
        """Mark fragments that failed for missing objects, except where the objects still cannot be fetched."""
        for question, is_failing in tuple(self.run.unanswered.items()):
            _, name, namespace, object_name, kind = question
            store = self.stores[name]
            assert isinstance(store, OnDemandStore)
            if not is_failing or not store.is_failing(ResourceRef(kind, namespace, object_name)):
                del self.run.unanswered[question]
                self.run.touch(question)

    def pending_sources(self) -> PendingSources:
        """Return the sources that have to fetch something before the output is complete."""
        stores = (store for store in self.stores.values() if isinstance(store, OnDemandStore))
        sources: tuple[OnDemandStore | Fetches, ...] = (*stores, self.fetches)
        return tuple(source for source in sources if source.is_wanting)


def _has_all(store: ReadableStore, overlay: Overlay) -> bool:
    """Whether *store* still has the objects that *overlay* replaces."""
    return all(store.by_ref(ref) is not None for ref in overlay.differences)


class RenderPermit:
    """Permission for a render to continue, with a deadline. The thread of the render reads it."""

    def __init__(self, until: float = float("inf")) -> None:
        self.is_valid = True
        self.until = until
        """Deadline, on the clock of the limits."""
