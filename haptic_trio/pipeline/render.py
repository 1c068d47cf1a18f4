"""Templates and objects to a configuration with its files, in a worker thread; what is unchanged is not done again."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias, TypeVar

import msgspec
import trio

from haptic_trio.config.model import Config
from haptic_trio.config.templates import MAIN_TEMPLATE, template_set
from haptic_trio.errors import Problem, ProblemsError
from haptic_trio.haproxy.model import AuxFile, FileKind, Files, make_file
from haptic_trio.k8s.on_demand import FETCH_ALLOWANCE, OnDemandStore
from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.k8s.store import ReadableStore, Tracker
from haptic_trio.pipeline.refusal import RefusedError
from haptic_trio.templating.emit import trust
from haptic_trio.templating.engine import Engine
from haptic_trio.templating.limits import RenderLimits
from haptic_trio.templating.outputs import FragmentOutput, Recall
from haptic_trio.templating.paths import Paths
from haptic_trio.templating.provenance import Provenance
from haptic_trio.templating.refresh import Touched, take_changes
from haptic_trio.templating.run import RenderRun
from haptic_trio.templating.subjects import FragmentKey, Refusal, RenderedText
from haptic_trio.templating.versions import Versioned
from haptic_trio.templating.views import ResourcesView

CANCELLED = float("-inf")

T = TypeVar("T")


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration as the templates made it, not yet looked at by anybody. Stays as it is when others follow."""

    files: Files
    texts: Mapping[str, RenderedText]
    """Every text with its origins: `haproxy.cfg`, and the files by path."""
    produced: Mapping[FragmentKey, FragmentOutput]
    """What each fragment gave, stand-ins included."""
    refusals: tuple[Refusal, ...]
    """The fragments whose objects could not be rendered as they are; the same tuple until that changes."""
    serial: int = 0
    """Counts what the renderer has rendered."""
    changed: Mapping[FragmentKey, FragmentOutput | None] = {}
    """What of `produced` is not as it was in the one before: what it is now, None if it is gone."""
    is_new: bool = True
    """Nothing of the one before was reused: `changed` says nothing of what is gone."""
    fragments_rendered: int = 0
    fragments_reused: int = 0
    differing: tuple[str, ...] = ()
    """Outputs that had to be replaced, since rendering all of them anew gave something else: a bug."""

    @property
    def config(self) -> RenderedText:
        """haproxy.cfg in pieces."""
        return self.texts[MAIN_TEMPLATE]

    @property
    def text(self) -> str:
        """haproxy.cfg, put together when it is first asked for."""
        return self.config.text

    def __repr__(self) -> str:
        # What fragments gave may hold private keys.
        return f"Rendered({self.serial}, {self.fragments_rendered} fragments rendered, {self.fragments_reused} reused)"


class _Session:
    """What is known of the renders before, of one set of stores."""

    def __init__(self, stores: Mapping[str, ReadableStore], variables: Mapping[str, object], run: RenderRun) -> None:
        self.stores = stores
        self.run = run
        self.context = {**variables, "resources": ResourcesView(stores)}
        self.trackers: dict[str, Tracker] = {name: store.track() for name, store in stores.items()}
        self.files: Files | None = None
        self.texts: Versioned[str, RenderedText] = Versioned()
        self.changed_files: dict[str, AuxFile | None] = {}
        """What `files` does not have yet, by path; None is to be removed."""
        self.count = 0
        self.rendered_before = 0
        self.is_delivered = False
        """Whether any render has reached its caller."""

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

    def take_changes(self) -> None:
        """Have what has changed in the stores rendered again."""
        changes: dict[str, Touched] = {}
        for name, tracker in self.trackers.items():
            touched = tracker.take()
            if touched:
                store = self.stores[name]
                objects = {(ref.namespace, ref.name, ref.kind): store.by_ref(ref) for ref in touched}
                changes[name] = Touched(set().union(*touched.values()), objects)
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

    def wanting(self) -> tuple[OnDemandStore, ...]:
        """Return the stores whose objects have to be fetched before anything is complete."""
        return tuple(store for store in self.stores.values() if isinstance(store, OnDemandStore) and store.is_wanting)


_Wanting: TypeAlias = tuple[OnDemandStore, ...]


class _Leave:
    """Whether a render may go on, for its thread to ask."""

    def __init__(self) -> None:
        self.is_given = True


class Renderer:
    """The compiled templates of one configuration, and what they made last. Renders one at a time."""

    def __init__(self, config: Config) -> None:
        """Compile the templates of *config*; raises a `ProblemsError` with all that is wrong with them."""
        templates = template_set(config)
        self._engine = Engine(templates.texts, snippets=templates.priorities)
        self._outputs = templates.outputs
        self._variables = {key: trust(value) for key, value in config.templating.extra_context.items()}
        self._limits = RenderLimits(config.templating.render_timeout, config.templating.max_output_bytes)
        self._paths = Paths(
            maps_dir=config.dataplane.maps_dir,
            ssl_certs_dir=config.dataplane.ssl_certs_dir,
            general_dir=config.dataplane.general_storage_dir,
        )
        self._paranoia_every = config.validation.paranoia_every
        self._limiter = trio.CapacityLimiter(1)
        self._session: _Session | None = None
        self._newest: tuple[Rendered, dict[str, int]] | None = None
        self._serial = 0

    async def render(self, stores: Mapping[str, ReadableStore], recall: Recall | None = None) -> Rendered:
        """Render *stores*; raises `RefusedError` when a template fails outside any object.

        Fetches what has to be fetched for that, and raises `RefusedError` if
        this comes to no end within `FETCH_ALLOWANCE` seconds.

        What *recall* holds stands in for fragments that fail. The stores must
        not change meanwhile. Given the same stores as before, only what
        depends on what has changed in them is rendered.
        """
        leave = _Leave()
        outcome: Rendered | _Wanting | None = None
        self._newest = None
        fetch_until = trio.current_time() + FETCH_ALLOWANCE
        try:
            while not isinstance(outcome, Rendered):
                if outcome is not None:
                    await _fetch(outcome, fetch_until)
                outcome = await trio.to_thread.run_sync(
                    partial(self._render, stores, recall or Recall(), leave, again=outcome is not None),
                    limiter=self._limiter,
                    abandon_on_cancel=True,
                )
            self._deliver()
            self._newest = outcome, _versions_of(stores)
            return outcome
        finally:
            # A thread that was abandoned meets its deadline at the next loop or call, and ends.
            leave.is_given = False
            if self._session is not None:
                self._session.run.deadline = CANCELLED

    def render_here(self, stores: Mapping[str, ReadableStore], recall: Recall | None = None) -> Rendered:
        """Do what `render` does in this thread, blocking it; nothing can be fetched."""
        rendered = self._render(stores, recall or Recall(), _Leave())
        if not isinstance(rendered, Rendered):
            names = ", ".join(store.name for store in rendered)
            raise RefusedError("render", (Problem(message=f"objects have to be fetched: {names}"),))
        self._deliver()
        return rendered

    def _deliver(self) -> None:
        """Note that the caller has got what is rendered; had it been given up, the next one must say it as well."""
        assert self._session is not None
        self._session.is_delivered = True
        self._session.run.changed.clear()

    def provenance(self) -> Provenance | None:
        """Return who has made what in the newest render; ask while none runs. None before the first."""
        return Provenance(self._session.run, self._output_paths()) if self._session is not None else None

    async def consult(self, stores: Mapping[str, ReadableStore], ask: Callable[[Rendered, Provenance], T]) -> T | None:
        """Return what *ask* makes of the newest render, in a worker thread, while nothing else is rendered.

        None before the first, and while the stores hold what is not rendered
        yet: nobody could tell then where the text is from. They must not
        change meanwhile.
        """

        def look() -> T | None:
            provenance = self.provenance()
            if self._newest is None or provenance is None or self._newest[1] != _versions_of(stores):
                return None
            return ask(self._newest[0], provenance)

        return await trio.to_thread.run_sync(look, limiter=self._limiter)

    def _output_paths(self) -> dict[str, str]:
        return {output.name: output.path for output in self._outputs} | {MAIN_TEMPLATE: MAIN_TEMPLATE}

    def _render(
        self, stores: Mapping[str, ReadableStore], recall: Recall, leave: _Leave, *, again: bool = False
    ) -> Rendered | _Wanting:
        """Return what is rendered, or where objects have to be fetched before this is done *again*."""
        session = self._session
        if session is None or session.stores is not stores:
            session = self._session = self._begin(stores)
        session.count += not again
        session.take_changes()
        session.take_fetched()
        if wanting := self._bring_up_to_date(session, recall, leave):
            return wanting
        if not self._paranoia_every or session.count % self._paranoia_every:
            return self._take(session)
        return self._compare(session, recall, leave)

    def _begin(self, stores: Mapping[str, ReadableStore]) -> _Session:
        return _Session(stores, self._variables, RenderRun(self._limits, paths=self._paths))

    def _bring_up_to_date(self, session: _Session, recall: Recall, leave: _Leave) -> _Wanting:
        """Render what is not as it should be; nothing counts as long as objects have to be fetched."""
        run = session.run
        run.restart(recall)
        run.start()
        if not leave.is_given:
            run.deadline = CANCELLED
        problems: list[Problem] = []
        for output in self._outputs:
            try:
                text = self._engine.render(output.name, session.context, run)
            except ProblemsError as exc:
                problems += exc.problems
            else:
                if output.path not in run.claims:
                    session.put(output.kind, output.path, text, secret=output.secret)
        try:
            session.texts.put(MAIN_TEMPLATE, self._engine.render(MAIN_TEMPLATE, session.context, run))
        except ProblemsError as exc:
            problems += exc.problems
        if wanting := session.wanting():
            return wanting
        if problems:
            raise RefusedError("render", tuple(problems))
        self._take_registered(session)
        return ()

    def _take_registered(self, session: _Session) -> None:
        run = session.run
        outputs = {output.path: output for output in self._outputs} if run.changed_files else {}
        for path in run.changed_files:
            file, output = run.claims.first(path), outputs.get(path)
            if file is not None:
                kind = FileKind(file.kind.value)
                session.put(kind, path, file.content, secret=kind is FileKind.CERT)
            elif output is not None:
                session.put(output.kind, path, run.roots[output.name].text, secret=output.secret)
            else:
                session.remove(path)
        run.changed_files.clear()

    def _take(self, session: _Session, differing: tuple[str, ...] = ()) -> Rendered:
        run = session.run
        self._serial += 1
        rendered, session.rendered_before = run.rendered - session.rendered_before, run.rendered
        left_out = sum(not refusal.has_stand_in for refusal in run.refusals)
        return Rendered(
            files=session.take_files(),
            texts=session.texts.snapshot(),
            produced=run.produced.snapshot(),
            refusals=run.refusals,
            serial=self._serial,
            changed={key: run.produced.get(key) for key in run.changed},
            is_new=not session.is_delivered,
            fragments_rendered=rendered,
            fragments_reused=max(0, len(run.produced) + left_out - rendered),
            differing=differing,
        )

    def _compare(self, session: _Session, recall: Recall, leave: _Leave) -> Rendered | _Wanting:
        """Render everything anew and return that, if it differs from what *session* has; else the latter."""
        fresh = self._begin(session.stores)
        fresh.count = session.count
        # The deadline of an abandoned render is looked for in the session in hand.
        self._session = fresh
        try:
            wanting = self._bring_up_to_date(fresh, recall, leave)
        except BaseException:
            self._session = session
            raise
        if wanting:
            self._session = session
            return wanting
        differing = _differences(session, fresh)
        if not differing:
            self._session = session
            return self._take(session)
        return self._take(fresh, differing)


def _versions_of(stores: Mapping[str, ReadableStore]) -> dict[str, int]:
    return {name: store.version for name, store in stores.items()}


async def _fetch(stores: _Wanting, until: float) -> None:
    if trio.current_time() > until:
        names = ", ".join(store.name for store in stores)
        problem = Problem(
            message=f"objects have been fetched for {FETCH_ALLOWANCE:g} s, and more are needed: {names}",
            hint="look them up within fragments, or keep them in a store that is `full`",
        )
        raise RefusedError("render", (problem,))
    async with trio.open_nursery() as nursery:
        for store in stores:
            nursery.start_soon(store.fetch_wanted)


def _differences(session: _Session, fresh: _Session) -> tuple[str, ...]:
    """Return which outputs and files of the two are not the same; `refusals`, if it is these."""
    before, after = session.texts.snapshot(), fresh.texts.snapshot()
    different = [
        path
        for path in sorted(before.keys() | after.keys())
        if path not in before or path not in after or before[path].text != after[path].text
    ]
    return tuple(different) + (() if session.run.refusals == fresh.run.refusals else ("refusals",))
