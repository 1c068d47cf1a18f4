"""Session of a renderer: state that one render keeps for the next."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

from haptic_trio.haproxy.model import AuxFile, FileKind, Files, make_file
from haptic_trio.httpstore.fetches import Fetches, HttpView
from haptic_trio.k8s.index import Keys
from haptic_trio.k8s.on_demand import OnDemandStore
from haptic_trio.k8s.overlay import Overlay
from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.k8s.store import ReadableStore
from haptic_trio.k8s.tracker import Tracker
from haptic_trio.pipeline.conflicts import Conflicts
from haptic_trio.pipeline.fallback_versions import FallbackVersions, keys_of_change
from haptic_trio.pipeline.missing_dependencies import PendingSources
from haptic_trio.templating.incremental.ahead import Change, dependents_of
from haptic_trio.templating.incremental.each import fails_ahead, render_ahead
from haptic_trio.templating.incremental.questions import Answer, Question
from haptic_trio.templating.incremental.recorder import CURRENT
from haptic_trio.templating.incremental.records import Child, ObjectId
from haptic_trio.templating.incremental.refresh import Touched, take_changes
from haptic_trio.templating.incremental.run import RenderRun
from haptic_trio.templating.incremental.scope import Memo
from haptic_trio.templating.incremental.settling.former_endpoints import addresses_in
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
    showing,
    used_kinds,
    views_in,
)

_ASKS: Final = ("get", "has")
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
        run.find_addresses = self._find_addresses
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
        self._seen_ahead: set[ResourceRef] = set()
        """Changed objects that turns may have looked up ahead of the render that takes them in."""
        self.fallbacks = FallbackVersions(run, views, self.released)
        self._conflicts = Conflicts(partial(reads_secrets, run))
        self._warnings: tuple[tuple[ObjectWarning, ...], ...] = ((), (), ())

    def _find_addresses(self, question: Question) -> frozenset[str]:
        _get, name, *keys = question
        view = views_in(self.views).get(name)
        return view.derive(addresses_in, *keys) if view is not None else frozenset()

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
        quarantined = former.fallbacks.undone()

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
        self.fallbacks.forget()

    def put(self, kind: FileKind, path: str, text: RenderedText, *, secret: bool, namespace: str = "") -> None:
        """Set the text at *path*, which an object of *namespace* has registered, if any has."""
        if self.texts.get(path) is not text:
            self.texts.put(path, text)
            self.changed_files[path] = make_file(kind, path, text.pieces, secret=secret, namespace=namespace)

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

    def differences(self, fresh: "Session") -> tuple[str, ...]:
        """Return the paths of outputs that differ from *fresh*, and `rejections` or `warnings` if these differ."""
        before, after = self.texts.snapshot(), fresh.texts.snapshot()
        different = [
            path
            for path in sorted(before.keys() | after.keys())
            if path not in before or path not in after or before[path].text != after[path].text
        ]
        lists = {
            "rejections": self.run.rejections == fresh.run.rejections,
            "warnings": self.run.warnings == fresh.run.warnings,
        }
        return tuple(different) + tuple(name for name, is_same in lists.items() if not is_same)

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
        self._seen_ahead.clear()
        if self.run.quarantined.quarantine_expected(
            self.run, [(ref.namespace, ref.name, ref.kind) for ref in self.released]
        ):
            self.fallbacks.take(are_seen=True)
        for name, tracker in self.trackers.items():
            touched: dict[ResourceRef, AbstractSet[Keys]] = {
                ref: frozenset() if self.fallbacks.hides(name, ref) else keys for ref, keys in tracker.take().items()
            }
            ahead = {ref: touched.pop(ref) for ref in self.released if touched.get(ref)}
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

    def forget(self, ref: ResourceRef) -> None:
        """Take note that the changes of *ref* since the last render were undone in the stores."""
        for name, tracker in self.trackers.items():
            keys = tracker.touched().get(ref)
            if keys is not None:
                if ref in self._seen_ahead:
                    self.run.ahead.forget_askers(self.run, name, keys)
                tracker.forget(ref)

    def release(self, ref: ResourceRef) -> None:
        """Let the next render use what was rendered ahead for *ref*, and release it from quarantine if it was held."""
        self.released.add(ref)
        self.run.quarantined.release(self.run, (ref.namespace, ref.name, ref.kind))

    def end_release(self) -> None:
        """Forget what was rendered ahead, after a render that has used it."""
        if self.released:
            self.released.clear()
            self.run.ahead.clear()

    def find_heavy(self, most: int) -> Iterator[ResourceRef]:
        """Yield the changed objects that more than *most* turns depend on.

        Several objects of a namespace count together. Those that few turns depend on are never heavy.
        """
        yield from self._heavy_of(
            (
                (ref, {name: self._newest_change_of(name, ref, keys)})
                for name, tracker in self.trackers.items()
                for ref, keys in tracker.touched().items()
                # The content of an on-demand object may have to be fetched first.
                if not isinstance(self.stores[name], OnDemandStore) and not self.fallbacks.hides(name, ref)
            ),
            most,
        )

    def _newest_change_of(self, name: str, ref: ResourceRef, keys: AbstractSet[Keys]) -> Change:
        # A quarantined object that is deleted disappears in the version that lookups find.
        is_shown = ref in self.fallbacks.shown_in(name)
        return self._change_of(name, ref, None) if is_shown else Change(keys, self._answers(name))

    def find_heavy_releases(self, most: float, quarantined: Iterable[ObjectId]) -> set[ObjectId]:
        """Return those of *quarantined* that more than *most* turns would find in another version after a release.

        As for `find_heavy`; objects whose dependents were rendered ahead are not among them.
        """
        found: list[tuple[ResourceRef, dict[str, Change]]] = []
        for namespace, object_name, kind in sorted(quarantined):
            ref = ResourceRef(kind, namespace, object_name)
            changes = {
                name: self._change_of(name, ref, store.by_ref(ref))
                for name, store in self.stores.items()
                if self.fallbacks.hides(name, ref)
            }
            found.append((ref, {name: change for name, change in changes.items() if change.keys}))
        return {(ref.namespace, ref.name, ref.kind) for ref in self._heavy_of(found, most)}

    def _change_of(self, name: str, ref: ResourceRef, version: Any | None) -> Change:
        """Return the change of what lookups in the store *name* find, if they find *version* of *ref*."""
        keys = keys_of_change(self.stores[name], self.fallbacks.visible(name, ref), version)
        return Change(keys, answers_from(self.fallbacks.seen_with(name, ref, version).get))

    def _heavy_of(
        self, candidates: Iterable[tuple[ResourceRef, Mapping[str, Change]]], most: float
    ) -> Iterator[ResourceRef]:
        few = most // _FEW
        together: dict[str, dict[Child, None]] = {}
        for ref, changes in candidates:
            if not ref.namespace or ref in self.released:
                continue
            index = self.run.index
            questions = (
                (kind, name, *one) for name, change in changes.items() for one in change.keys for kind in _ASKS
            )
            if sum(index.count(question) for question in questions) <= few:
                continue
            found = dependents_of(self.run, changes)
            if len(found) <= few:
                continue
            others = together.get(ref.namespace, {})
            if len(others | found) > most:
                yield ref
            else:
                together[ref.namespace] = others | found

    def render_ahead(self, ref: ResourceRef, versions: Mapping[str, Any | None], until: float) -> int:
        """Render turns that depend on *versions* of *ref*, by name of the store, until the CPU time *until*.

        If *ref* is quarantined, lookups find it in these versions, or in those of the stores, as after its release.
        Return how many turns are left. The records stay as they are.
        """
        self.run.reset()
        for tracker in self.trackers.values():
            self._seen_ahead.update(tracker.touched())
        changes: dict[str, Change] = {}
        own: dict[str, Any] = {}
        token = CURRENT.set(self.run)
        try:
            with ExitStack() as stack:
                for name, view in views_in(self.views).items():
                    if name not in versions and not self.fallbacks.hides(name, ref):
                        continue
                    store = self.stores[name]
                    version = own[name] = versions[name] if name in versions else store.by_ref(ref)
                    change = self._change_of(name, ref, version)
                    if change.keys:
                        seen = self.fallbacks.seen_with(name, ref, version)
                        stack.enter_context(showing(view, Overlay(store, {ref: version}), seen))
                        changes[name] = change
                left = render_ahead(self.run, changes, until)
                if not left:
                    found = ref.namespace, ref.name, ref.kind
                    self.run.quarantined.expect(found, is_failing=fails_ahead(self.run, changes, found, own))
                return left
        finally:
            CURRENT.reset(token)

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


class RenderPermit:
    """Permission for a render to continue, with a deadline. The thread of the render reads it."""

    def __init__(self, until: float = float("inf")) -> None:
        self.is_valid = True
        self.until = until
        """Deadline, on the clock of the limits."""
