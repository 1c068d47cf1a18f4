"""Renderer: makes haproxy.cfg and its files from templates and stores, in a worker thread, incrementally."""

from collections.abc import Callable, Container, Iterable, Mapping
from functools import cached_property, partial
from math import inf
from typing import TypeVar

import msgspec
import trio

from haptic_trio.config.model import Config
from haptic_trio.config.templates import MAIN_TEMPLATE
from haptic_trio.errors import Problem
from haptic_trio.haproxy.model import Files
from haptic_trio.httpstore.content import Content, Offers
from haptic_trio.httpstore.contents import Contents, no_contents
from haptic_trio.httpstore.fetches import Fetches
from haptic_trio.k8s.on_demand import FETCH_ALLOWANCE
from haptic_trio.k8s.resource import Resource, ResourceRef
from haptic_trio.k8s.store import ReadableStore
from haptic_trio.pipeline.compiled import CompiledTemplates
from haptic_trio.pipeline.contents.policy import fetch_policy
from haptic_trio.pipeline.missing_dependencies import PendingSources, fetch_all
from haptic_trio.pipeline.rejection.errors import RejectedError
from haptic_trio.pipeline.session import RenderPermit, Session
from haptic_trio.templating.incremental.outputs import FragmentOutput, Recall
from haptic_trio.templating.incremental.provenance import Provenance
from haptic_trio.templating.values.limits import cpu_clock
from haptic_trio.templating.values.subjects import FragmentKey, ObjectWarning, Rejection, RenderedText
from haptic_trio.templating.views import used_kinds

T = TypeVar("T")


class Rendered(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The output of one render, not validated yet. Immutable: later renders make new ones."""

    files: Files
    texts: Mapping[str, RenderedText]
    """Every text with its origins, by path: `haproxy.cfg` and the files."""
    produced: Mapping[FragmentKey, FragmentOutput]
    """Output of each fragment, fallbacks included."""
    rejections: tuple[Rejection, ...]
    """Fragments whose objects could not be rendered; the same tuple until that changes."""
    serial: int = 0
    """Number of this render."""
    changed: Mapping[FragmentKey, FragmentOutput | None] = {}
    """Entries of `produced` that differ from the previous render; None: removed."""
    is_new: bool = True
    """Whether no part of the previous render was reused, so that `changed` does not list removed entries."""
    warnings: tuple[ObjectWarning, ...] = ()
    """Warnings to owners of objects, without duplicates, in order; the same tuple until it changes."""
    contents: Mapping[str, Content] = {}
    """Fetched contents that it uses, by key."""
    words: Container[str] = ()
    """Words of all templates."""
    secret_texts: frozenset[str] = frozenset()
    """Paths of the texts whose templates have looked up Secrets outside of fragments."""
    fragments_rendered: int = 0
    fragments_reused: int = 0
    cpu_seconds: float = 0.0
    """CPU time that it took."""
    spent: Mapping[str, float] = {}
    """By namespace, the part of it that costly fragments took."""
    differing: tuple[str, ...] = ()
    """Outputs that a complete render replaced, because it differed from the incremental one: a bug."""

    @cached_property
    def has_secrets(self) -> bool:
        """Whether the output of some fragment may contain data of a Secret."""
        return any(output.is_secret or key.kind == "Secret" for key, output in self.produced.items())

    @property
    def config(self) -> RenderedText:
        """haproxy.cfg in chunks."""
        return self.texts[MAIN_TEMPLATE]

    @property
    def text(self) -> str:
        """haproxy.cfg as one string, made on first use."""
        return self.config.text

    def __repr__(self) -> str:
        # Outputs may contain private keys.
        return f"Rendered({self.serial}, {self.fragments_rendered} fragments rendered, {self.fragments_reused} reused)"


def output_of(session: Session) -> Rendered:
    """Return the present output of *session*."""
    run = session.run
    files, texts = session.take_files(), session.texts.snapshot()
    return Rendered(
        files=files,
        texts=texts,
        warnings=session.take_warnings(files, texts),
        produced=run.produced.snapshot(),
        rejections=run.rejections,
        changed={key: run.produced.get(key) for key in run.changed},
    )


class Renderer:
    """The compiled templates of one configuration and their newest output. One render at a time."""

    def __init__(self, config: Config, contents: Contents | None = None) -> None:
        """Compile the templates of *config*; raises a `ProblemsError` with all problems.

        *contents*: contents that templates can fetch; by default none.
        """
        self.templates = CompiledTemplates(config)
        self._paranoia_every = config.validation.paranoia_every
        self.contents = contents if contents is not None else no_contents()
        self._fetch_policy = fetch_policy(config.http)
        self._limiter = trio.CapacityLimiter(1)
        self._session: Session | None = None
        self._newest: tuple[Rendered, dict[str, int]] | None = None
        self._serial = 0
        self._rendering: trio.Event | None = None
        self.most_dependents = inf
        """Turns that may depend on the release of an object from quarantine; otherwise the object is `held`."""

    def take_over(
        self, former: "Renderer", stores: Mapping[str, ReadableStore], differing: frozenset[str]
    ) -> Callable[[], None]:
        """Let the first render of *stores* begin with what is still valid of the newest render of *former*. Blocking.

        Returns what completes it, also blocking, before the first render. *differing*: stores of which nothing is
        known; the others have the content of those of *former*. Until the return of this call, neither stores nor
        *former* may be used.
        """
        if former._session is None or not former.has_rendered:  # noqa: SLF001  the two are of one class
            return lambda: None
        self._session = self._begin(stores)
        return self.templates.take_over(self._session, former.templates, former._session, differing)  # noqa: SLF001  the two are of one class

    async def render(self, stores: Mapping[str, ReadableStore], recall: Recall | None = None) -> Rendered:
        """Render *stores*; raises `RejectedError` if a template fails outside of fragments.

        Missing objects and contents are fetched; raises `RejectedError` if that
        takes longer than `FETCH_ALLOWANCE` seconds.

        *recall* has the fallbacks of fragments that fail. The stores must not change meanwhile. With the
        same stores as in the previous render, only fragments that depend on changes render again.
        """
        permit = RenderPermit()
        outcome: Rendered | PendingSources | None = None
        self._newest = None
        done = self._rendering = trio.Event()
        fetch_until = trio.current_time() + FETCH_ALLOWANCE
        try:
            while not isinstance(outcome, Rendered):
                if outcome is not None:
                    await fetch_all(outcome, fetch_until)
                offers, again = self.contents.offers(), outcome is not None
                work = partial(self._render, stores, recall or Recall(), permit, offers, again=again)
                outcome = await trio.to_thread.run_sync(work, limiter=self._limiter, abandon_on_cancel=True)
            self._deliver()
            self._newest = outcome, versions_of(stores)
            return outcome
        finally:
            self._abandon(permit)
            self._rendering = None
            done.set()
            if self._session is not None:
                self._session.fetches.stop()

    def render_here(self, stores: Mapping[str, ReadableStore], recall: Recall | None = None) -> Rendered:
        """Render as `render` does, but in this thread; raises `RejectedError` if objects would have to be fetched."""
        rendered = self._render(stores, recall or Recall(), RenderPermit(), self.contents.offers())
        if not isinstance(rendered, Rendered):
            names = ", ".join(store.name for store in rendered)
            raise RejectedError("render", (Problem(message=f"objects have to be fetched: {names}"),))
        self._deliver()
        return rendered

    def _deliver(self) -> None:
        """Mark the output as delivered. The changes of an abandoned render are part of the next one as well."""
        assert self._session is not None
        self._session.is_delivered = True
        self._session.run.changed.clear()
        self.contents.release(self._session.fetches.used(self._session.run))

    async def dismantle(self) -> None:
        """Free the records of all renders, in a worker thread; no render may follow."""
        # An abandoned render may still run. The end of an iteration must not wait for this.
        await trio.to_thread.run_sync(self._dismantle, limiter=self._limiter, abandon_on_cancel=True)

    def _dismantle(self) -> None:
        session, self._session, self._newest = self._session, None, None
        if session is not None:
            session.dismantle()
        self.templates.dismantle()

    async def reads(self, stores: Iterable[str]) -> bool:
        """Whether the newest output may depend on *stores*; waits for a running render if only that can decide it.

        True before the first render and after a failed one.
        """
        await trio.lowlevel.checkpoint()
        while not (is_read := self._may_read(stores)) and self._rendering is not None:
            await self._rendering.wait()
        return is_read or self._newest is None

    def _may_read(self, stores: Iterable[str]) -> bool:
        return self._session is not None and not used_kinds(self._session.views).isdisjoint(stores)

    @property
    def steps(self) -> int:
        """A number that changes while a render makes progress; for any thread."""
        session = self._session
        return session.run.rendered + session.run.steps if session is not None else 0

    @property
    def progress(self) -> tuple[int, int] | None:
        """See `Session.progress`; None while nothing renders."""
        return self._session.progress if self._rendering is not None and self._session is not None else None

    @property
    def has_rendered(self) -> bool:
        """Whether any render has reached its caller."""
        return self._session is not None and self._session.is_delivered

    def provenance(self) -> Provenance | None:
        """Return the origins of the newest render; None before the first. Must not be called during a render."""
        return self.templates.provenance(self._session.run) if self._session is not None else None

    async def work(self, work: Callable[[], T]) -> T:
        """Run *work* in a worker thread, while nothing renders."""
        return await trio.to_thread.run_sync(work, limiter=self._limiter)

    async def consult(self, stores: Mapping[str, ReadableStore], ask: Callable[[Rendered, Provenance], T]) -> T | None:
        """Run *ask* on the newest render in a worker thread, while nothing else renders, and return its result.

        None before the first render, and while stores that it reads contain changes that are not
        rendered yet, since origins are unknown then. The stores must not change meanwhile.
        """

        def run() -> T | None:
            newest, provenance = self.newest(stores), self.provenance()
            return ask(newest, provenance) if newest is not None and provenance is not None else None

        return await trio.to_thread.run_sync(run, limiter=self._limiter)

    def newest(self, stores: Mapping[str, ReadableStore]) -> Rendered | None:
        """Return the newest render if no store that it reads has changed since."""
        if self._newest is None or self._session is None or self._session.stores is not stores:
            return None
        rendered, versions = self._newest
        changed = [name for name, version in versions_of(stores).items() if version != versions.get(name)]
        return None if changed and self._may_read(changed) else rendered

    async def lend(self, work: Callable[[Rendered, Session], T], permit: RenderPermit) -> T | None:
        """Run *work* on the newest render and its session in a worker thread, and return its result.

        None before the first render. *work* runs while *leave* is given; no other task may use the renderer meanwhile.
        It may render by `templates`, and must restore the state: its renders do not count. If it raises or is
        cancelled, there is no newest render any more.
        """
        try:
            return await trio.to_thread.run_sync(
                partial(self._lend, work), limiter=self._limiter, abandon_on_cancel=True
            )
        finally:
            self._abandon(permit)

    def _lend(self, work: Callable[[Rendered, Session], T]) -> T | None:
        newest, session = self._newest, self._session
        if newest is None or session is None:
            return None
        # Until the state is restored, the records do not describe the newest render.
        self._newest = None
        rendered = session.run.rendered
        # No request is sent for a change that may never happen.
        session.fetches.stop()
        try:
            outcome = work(newest[0], session)
        finally:
            session.rendered_before += session.run.rendered - rendered
        self._newest = newest
        return outcome

    def find_heavy(self, stores: Mapping[str, ReadableStore], most: int) -> tuple[ResourceRef, ...]:
        """Return the changed objects that more than *most* turns depend on; nothing may render."""
        if self._session is None or self._session.stores is not stores or not self._session.is_delivered:
            return ()
        return tuple(self._session.find_heavy(most))

    async def render_ahead(self, ref: ResourceRef, versions: Mapping[str, Resource | None], seconds: float) -> int:
        """Render turns for *versions* of *ref*, by name of the store, for *seconds* of CPU time.

        Return how many are left. The stores must not change meanwhile. Without a newest render, none is left.
        """

        def work(_newest: Rendered, session: Session) -> int:
            return session.render_ahead(ref, versions, cpu_clock() + seconds)

        return await self.lend(work, RenderPermit()) or 0

    @property
    def made_ahead(self) -> int:
        """Turns that were rendered ahead for the present change; one that rendered twice counts twice."""
        return self._session.run.ahead.made if self._session is not None else 0

    def forget(self, ref: ResourceRef) -> None:
        """Take note that the changes of *ref* since the last render were undone in the stores."""
        if self._session is not None:
            self._session.forget(ref)

    def release(self, ref: ResourceRef) -> None:
        """Let the next render use what was rendered ahead for *ref*, whose change the stores contain now."""
        if self._session is not None:
            self._session.release(ref)

    @property
    def held(self) -> tuple[ResourceRef, ...]:
        """The objects that stay quarantined until `release`, since very many turns depend on that."""
        held = self._session.run.quarantined.held if self._session is not None else ()
        return tuple(ResourceRef(kind, namespace, name) for namespace, name, kind in held)

    def forget_ahead(self) -> None:
        """Drop what was rendered ahead."""
        if self._session is not None:
            self._session.run.ahead.clear()

    def _abandon(self, permit: RenderPermit) -> None:
        """Make a thread that still renders end at the next loop or call."""
        permit.is_valid = False
        if self._session is not None:
            self._session.run.cancel()

    def _render(
        self,
        stores: Mapping[str, ReadableStore],
        recall: Recall,
        permit: RenderPermit,
        offers: Offers,
        *,
        again: bool = False,
    ) -> Rendered | PendingSources:
        """Return the output, or the sources that have to fetch something before a call with *again*."""
        began, session = cpu_clock(), self._session
        if session is None or session.stores is not stores:
            session = self._session = self._begin(stores)
        session.count += not again
        session.take_changes()
        session.take_fetched()
        session.fetches.take(session.run, offers)
        if pending := self.templates.bring_up_to_date(session, recall, permit, self.most_dependents):
            return pending
        session.end_release()
        if not self._paranoia_every or session.count % self._paranoia_every:
            return msgspec.structs.replace(self._take(session), cpu_seconds=cpu_clock() - began)
        return self._compare(session, recall, permit)

    def _begin(self, stores: Mapping[str, ReadableStore]) -> Session:
        return self.templates.begin(stores, partial(Fetches, self.contents, self._fetch_policy))

    def _take(self, session: Session, differing: tuple[str, ...] = ()) -> Rendered:
        run, self._serial = session.run, self._serial + 1
        rendered, session.rendered_before = run.rendered - session.rendered_before, run.rendered
        left_out = sum(not rejection.has_fallback for rejection in run.rejections)
        return msgspec.structs.replace(
            output_of(session),
            serial=self._serial,
            contents=session.fetches.given(run),
            words=self.templates.words,
            secret_texts=self.templates.find_secret_texts(run),
            is_new=not session.is_delivered,
            fragments_rendered=rendered,
            spent=dict(run.shares.spent),
            fragments_reused=max(0, len(run.produced) + left_out - rendered),
            differing=differing,
        )

    def _compare(self, session: Session, recall: Recall, permit: RenderPermit) -> Rendered | PendingSources:
        """Render everything again; return that if it differs from the output of *session*, else the latter."""
        fresh = self._begin(session.stores)
        fresh.count = session.count
        fresh.fetches.take_over(session.fetches)
        fresh.run.quarantined.hold_as(fresh.run, session.run.quarantined)
        # `_abandon` cancels the render of the present session.
        self._session = fresh
        try:
            pending = self.templates.bring_up_to_date(fresh, recall, permit)
        except BaseException:
            self._session = session
            raise
        if pending:
            self._session = session
            return pending
        differing = session.differences(fresh)
        if not differing:
            self._session = session
            return self._take(session)
        return self._take(fresh, differing)


def versions_of(stores: Mapping[str, ReadableStore]) -> dict[str, int]:
    """Return the version of each store."""
    return {name: store.version for name, store in stores.items()}
