"""Session of a renderer: state that one render leaves for the next."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from haptic_trio.haproxy.model import AuxFile, FileKind, Files, make_file
from haptic_trio.httpstore.fetches import Fetches, HttpView
from haptic_trio.k8s.on_demand import OnDemandStore
from haptic_trio.k8s.overlay import Overlay
from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.k8s.store import ReadableStore, Tracker
from haptic_trio.pipeline.conflicts import Eclipses
from haptic_trio.pipeline.missing_dependencies import Wanting
from haptic_trio.templating.incremental.refresh import Touched, take_changes
from haptic_trio.templating.incremental.run import RenderRun
from haptic_trio.templating.incremental.subjects import Origin, Remark, RenderedText
from haptic_trio.templating.incremental.versions import Versioned
from haptic_trio.templating.remark_list import merged
from haptic_trio.templating.views import ResourcesView, seen_in, show_instead, shown_by, views_in


class Session:
    """What is known of the renders before, of one set of stores."""

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
        """What `files` does not have yet, by path; None is to be removed."""
        self.count = 0
        self.rendered_before = 0
        self.is_delivered = False
        """Whether any render has reached its caller."""
        self._good_versions: dict[ResourceRef, Any] = {}
        self._overlays: dict[str, tuple[ReadableStore, Overlay]] = {}
        """What answers look-ups in place of the stores, by their names, and what is below."""
        self._eclipses = Eclipses(partial(reads_secrets, run))
        self._remarks: tuple[tuple[Remark, ...], ...] = ((), (), ())

    def put(self, kind: FileKind, path: str, text: RenderedText, *, secret: bool) -> None:
        """Have *text* at *path*."""
        if self.texts.get(path) is not text:
            self.texts.put(path, text)
            self.changed_files[path] = make_file(kind, path, text.pieces, secret=secret)

    def remove(self, path: str) -> None:
        """Have nothing at *path*."""
        self.texts.remove(path)
        self.changed_files[path] = None

    def take_files(self) -> Files:
        """Return all files as they are now."""
        put = [file for file in self.changed_files.values() if file is not None]
        if self.files is None:
            self.files = Files.of(put)
        elif self.changed_files:
            self.files = self.files.changed(put, [path for path, file in self.changed_files.items() if file is None])
        self.changed_files = {}
        return self.files

    def take_remarks(self, files: Files, texts: Mapping[str, RenderedText]) -> tuple[Remark, ...]:
        """Return what owners of objects should know; *files* and *texts* are those of now."""
        said, eclipsed = self.run.remarks, self._eclipses.take(files, texts)
        if self._remarks[0] is not said or self._remarks[1] is not eclipsed:
            self._remarks = said, eclipsed, merged(said, eclipsed)
        return self._remarks[2]

    def take_changes(self) -> None:
        """Have what has changed in the stores rendered again."""
        changes: dict[str, Touched] = {}
        for name, tracker in self.trackers.items():
            touched = tracker.take()
            if touched:
                store = self.stores[name]
                objects = {(ref.namespace, ref.name, ref.kind): store.by_ref(ref) for ref in touched}
                find = seen_in(views_in(self.views)[name]).get
                changes[name] = Touched(set().union(*touched.values()), objects, find)
        if changes:
            take_changes(self.run, changes)

    def show_good_versions(self, *, is_settled: bool = True) -> None:
        """Have look-ups find objects that are withheld as they were in their last good versions.

        Without *is_settled* only what is shown already is put on top of what the views show now.
        """
        if is_settled:
            versions = self.run.withheld.good_versions(self.run) if self.run.withheld else {}
            self._good_versions = {
                ResourceRef(kind, namespace, name): resource
                for (namespace, name, kind), resource in versions.items()
                # Of what is fetched on demand nothing is kept.
                if type(resource) is dict
            }
        changes: dict[str, Touched] = {}
        for name, view in views_in(self.views).items() if self._good_versions or self._overlays else ():
            base, before = cast("ReadableStore", shown_by(view)), self._overlays.get(name)
            if not is_settled and (before is None or before[0] is base):
                continue
            wanted = {ref: good for ref, good in self._good_versions.items() if base.by_ref(ref) is not None}
            overlay = Overlay(base, wanted) if wanted else None
            touched = before[1].touched if before is not None else frozenset()
            show_instead(view, overlay)
            if overlay is None:
                self._overlays.pop(name, None)
            else:
                self._overlays[name] = base, overlay
                touched |= overlay.touched
            if touched:
                changes[name] = Touched(touched, {}, seen_in(view).get)
        if changes:
            take_changes(self.run, changes)

    def take_fetched(self) -> None:
        """Have what has failed for want of objects rendered again, but where these are still not to be had."""
        for question, is_failing in tuple(self.run.unanswered.items()):
            _, name, namespace, object_name, kind = question
            store = self.stores[name]
            assert isinstance(store, OnDemandStore)
            if not is_failing or not store.is_failing(ResourceRef(kind, namespace, object_name)):
                del self.run.unanswered[question]
                self.run.touch(question)

    def wanting(self) -> Wanting:
        """Return who has to fetch something before anything is complete."""
        stores = (store for store in self.stores.values() if isinstance(store, OnDemandStore))
        suppliers: tuple[OnDemandStore | Fetches, ...] = (*stores, self.fetches)
        return tuple(supplier for supplier in suppliers if supplier.is_wanting)


class Leave:
    """Whether a render may go on, for its thread to ask."""

    def __init__(self, until: float = float("inf")) -> None:
        self.is_given = True
        self.until = until
        """When it has to be done, by the clock of the limits."""
