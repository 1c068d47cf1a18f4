"""Templates and objects to a configuration with its files, in a worker thread; what is unchanged is not done again."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
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
from haptic_trio.k8s.store import ReadableStore
from haptic_trio.pipeline.compiled import CompiledTemplates
from haptic_trio.pipeline.contents.policy import fetch_policy
from haptic_trio.pipeline.missing_dependencies import Wanting, fetch_all
from haptic_trio.pipeline.rejection.errors import RefusedError
from haptic_trio.pipeline.session import Leave, Session
from haptic_trio.templating.incremental.outputs import FragmentOutput, Recall
from haptic_trio.templating.incremental.provenance import Provenance
from haptic_trio.templating.incremental.subjects import FragmentKey, Refusal, Remark, RenderedText
from haptic_trio.templating.views import used_kinds

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
    remarks: tuple[Remark, ...] = ()
    """What owners of objects should know, each thing once, in order; the same tuple until it changes."""
    contents: Mapping[str, Content] = {}
    """What was fetched for it, by key."""
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


def output_of(session: Session) -> Rendered:
    """Return what the templates have made in *session*."""
    run = session.run
    files, texts = session.take_files(), session.texts.snapshot()
    return Rendered(
        files=files,
        texts=texts,
        remarks=session.take_remarks(files, texts),
        produced=run.produced.snapshot(),
        refusals=run.refusals,
        changed={key: run.produced.get(key) for key in run.changed},
    )


class Renderer:
    """The compiled templates of one configuration, and what they made last. Renders one at a time."""

    def __init__(self, config: Config, contents: Contents | None = None) -> None:
        """Compile the templates of *config*; raises a `ProblemsError` with all that is wrong with them.

        *contents* is what they can fetch; by default, nothing.
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

    async def render(self, stores: Mapping[str, ReadableStore], recall: Recall | None = None) -> Rendered:
        """Render *stores*; raises `RefusedError` when a template fails outside any object.

        Fetches what has to be fetched for that, and raises `RefusedError` if
        this comes to no end within `FETCH_ALLOWANCE` seconds.

        What *recall* holds stands in for fragments that fail. The stores must
        not change meanwhile. Given the same stores as before, only what
        depends on what has changed in them is rendered.
        """
        leave = Leave()
        outcome: Rendered | Wanting | None = None
        self._newest = None
        done = self._rendering = trio.Event()
        fetch_until = trio.current_time() + FETCH_ALLOWANCE
        try:
            while not isinstance(outcome, Rendered):
                if outcome is not None:
                    await fetch_all(outcome, fetch_until)
                outcome = await trio.to_thread.run_sync(
                    partial(
                        self._render,
                        stores,
                        recall or Recall(),
                        leave,
                        self.contents.offers(),
                        again=outcome is not None,
                    ),
                    limiter=self._limiter,
                    abandon_on_cancel=True,
                )
            self._deliver()
            self._newest = outcome, versions_of(stores)
            return outcome
        finally:
            self._abandon(leave)
            self._rendering = None
            done.set()
            if self._session is not None:
                self._session.fetches.stop()

    def render_here(self, stores: Mapping[str, ReadableStore], recall: Recall | None = None) -> Rendered:
        """Do what `render` does in this thread, blocking it; nothing can be fetched."""
        rendered = self._render(stores, recall or Recall(), Leave(), self.contents.offers())
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
        self.contents.release(self._session.fetches.used(self._session.run))

    async def reads(self, stores: Iterable[str]) -> bool:
        """Whether anything of the newest render may depend on *stores*; where only the render in hand can tell, wait.

        Before the first, and after one that failed, everything may.
        """
        await trio.lowlevel.checkpoint()
        while not (is_read := self._may_read(stores)) and self._rendering is not None:
            await self._rendering.wait()
        return is_read or self._newest is None

    def _may_read(self, stores: Iterable[str]) -> bool:
        return self._session is not None and not used_kinds(self._session.views).isdisjoint(stores)

    @property
    def has_rendered(self) -> bool:
        """Whether any render has reached its caller."""
        return self._session is not None and self._session.is_delivered

    def provenance(self) -> Provenance | None:
        """Return who has made what in the newest render; ask while none runs. None before the first."""
        return self.templates.provenance(self._session.run) if self._session is not None else None

    async def consult(self, stores: Mapping[str, ReadableStore], ask: Callable[[Rendered, Provenance], T]) -> T | None:
        """Return what *ask* makes of the newest render, in a worker thread, while nothing else is rendered.

        None before the first, and while the stores hold what is not rendered
        yet: nobody could tell then where the text is from. They must not
        change meanwhile.
        """

        def look() -> T | None:
            newest, provenance = self.newest(stores), self.provenance()
            return ask(newest, provenance) if newest is not None and provenance is not None else None

        return await trio.to_thread.run_sync(look, limiter=self._limiter)

    def newest(self, stores: Mapping[str, ReadableStore]) -> Rendered | None:
        """Return the newest render, if it is one of *stores* as they are."""
        if self._newest is None or self._session is None or self._session.stores is not stores:
            return None
        rendered, versions = self._newest
        return rendered if versions == versions_of(stores) else None

    async def lend(self, work: Callable[[Rendered, Session], T], leave: Leave) -> T | None:
        """Return what *work* makes of the newest render and what is remembered of it; None where there is none.

        It runs in a worker thread, for as long as *leave* is given, and nobody
        else may use the renderer meanwhile. It may render by
        `templates`, and is to have everything as it was in the end:
        what it renders counts for no render, and where it raises or is
        cancelled there is no newest render any more.
        """
        try:
            return await trio.to_thread.run_sync(
                partial(self._lend, work), limiter=self._limiter, abandon_on_cancel=True
            )
        finally:
            self._abandon(leave)

    def _lend(self, work: Callable[[Rendered, Session], T]) -> T | None:
        newest, session = self._newest, self._session
        if newest is None or session is None:
            return None
        # Until everything is back, nobody can tell from the records what they know of the newest render.
        self._newest = None
        rendered = session.run.rendered
        # Nothing is asked of others for what may never be.
        session.fetches.stop()
        try:
            outcome = work(newest[0], session)
        finally:
            session.rendered_before += session.run.rendered - rendered
        self._newest = newest
        return outcome

    def _abandon(self, leave: Leave) -> None:
        """Have a thread that still renders meet its deadline at the next loop or call, and end."""
        leave.is_given = False
        if self._session is not None:
            self._session.run.cancel()

    def _render(
        self,
        stores: Mapping[str, ReadableStore],
        recall: Recall,
        leave: Leave,
        offers: Offers,
        *,
        again: bool = False,
    ) -> Rendered | Wanting:
        """Return what is rendered, or where objects have to be fetched before this is done *again*."""
        session = self._session
        if session is None or session.stores is not stores:
            session = self._session = self._begin(stores)
        session.count += not again
        session.take_changes()
        session.take_fetched()
        session.fetches.take(session.run, offers)
        if wanting := self.templates.bring_up_to_date(session, recall, leave):
            return wanting
        if not self._paranoia_every or session.count % self._paranoia_every:
            return self._take(session)
        return self._compare(session, recall, leave)

    def _begin(self, stores: Mapping[str, ReadableStore]) -> Session:
        return self.templates.begin(stores, partial(Fetches, self.contents, self._fetch_policy))

    def _take(self, session: Session, differing: tuple[str, ...] = ()) -> Rendered:
        run = session.run
        self._serial += 1
        rendered, session.rendered_before = run.rendered - session.rendered_before, run.rendered
        left_out = sum(not refusal.has_stand_in for refusal in run.refusals)
        return msgspec.structs.replace(
            output_of(session),
            serial=self._serial,
            contents=session.fetches.given(run),
            is_new=not session.is_delivered,
            fragments_rendered=rendered,
            fragments_reused=max(0, len(run.produced) + left_out - rendered),
            differing=differing,
        )

    def _compare(self, session: Session, recall: Recall, leave: Leave) -> Rendered | Wanting:
        """Render everything anew and return that, if it differs from what *session* has; else the latter."""
        fresh = self._begin(session.stores)
        fresh.count = session.count
        fresh.fetches.take_over(session.fetches)
        # The deadline of an abandoned render is looked for in the session in hand.
        self._session = fresh
        try:
            wanting = self.templates.bring_up_to_date(fresh, recall, leave)
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


def versions_of(stores: Mapping[str, ReadableStore]) -> dict[str, int]:
    """Return the version of each store."""
    return {name: store.version for name, store in stores.items()}


def _differences(session: Session, fresh: Session) -> tuple[str, ...]:
    """Return which outputs and files of the two are not the same; also `refusals` and `remarks`, if it is these."""
    before, after = session.texts.snapshot(), fresh.texts.snapshot()
    different = [
        path
        for path in sorted(before.keys() | after.keys())
        if path not in before or path not in after or before[path].text != after[path].text
    ]
    told = {"refusals": session.run.refusals == fresh.run.refusals, "remarks": session.run.remarks == fresh.run.remarks}
    return tuple(different) + tuple(name for name, is_same in told.items() if not is_same)
