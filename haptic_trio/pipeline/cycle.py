"""One reconciliation cycle: render, validate, and quarantine what one object breaks."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar

import msgspec
import trio

from haptic_trio.channels import EventBuffer
from haptic_trio.errors import Problem, placed_at
from haptic_trio.haproxy.model import Generation
from haptic_trio.k8s.resource import Places, ResourceRef, nowhere
from haptic_trio.k8s.store import Stores
from haptic_trio.messages import (
    ConfigPrepared,
    ConfigRendered,
    ConfigValidated,
    Phases,
    Reason,
    RenderDiffered,
)
from haptic_trio.pipeline.content_trial import ContentTrial
from haptic_trio.pipeline.heavy_changes import HeavyChanges
from haptic_trio.pipeline.rejection.errors import CrashedError, RejectedError, TimedOutError, UndecidedError
from haptic_trio.pipeline.rejection.failure_search import FailureSearch
from haptic_trio.pipeline.rejection.quarantine import Quarantine
from haptic_trio.pipeline.rejection.reports import report_changes
from haptic_trio.pipeline.render import Rendered, Renderer
from haptic_trio.pipeline.validate import Validator
from haptic_trio.templating.field_paths import name_fields
from haptic_trio.templating.incremental.outputs import FragmentOutput
from haptic_trio.templating.incremental.provenance import Provenance
from haptic_trio.templating.values.subjects import FragmentKey

T = TypeVar("T")

MAX_ROUNDS = 100
"""Maximum number of attempts per cycle. Each quarantines a fragment: HAProxy reports one bad certificate at a time."""
_OMITTED: Final = Problem(message="omitted to find the object on which HAProxy fails")
_FIELD_SEARCH_LIMIT: Final = 0.01
"""Maximum time in seconds for finding the fields at fault, since the cycle waits meanwhile."""


def _ignore() -> None:
    """Do nothing."""


_PHASES: Final = ("render", "parse", "check")


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration that the parser accepted: the message about it, and the rendered output for `haproxy -c`."""

    message: ConfigPrepared
    rendered: Rendered

    @property
    def generation(self) -> Generation:
        """The parsed configuration."""
        return self.message.generation


class Pipeline:
    """Renders the stores and validates the result. One `run` or `prepare` at a time, and one `check` in parallel."""

    def __init__(
        self,
        stores: Stores,
        renderer: Renderer,
        validator: Validator,
        quarantine: Quarantine,
        events: EventBuffer,
        *,
        places: Places = nowhere,
    ) -> None:
        """Places that *places* returns are part of the problems of objects."""
        self.places = places
        self._stores = stores
        self._renderer = renderer
        self._validator = validator
        self._quarantine = quarantine
        self._events = events
        self._contents = renderer.contents
        self._trial = ContentTrial(renderer.contents)
        self._newest: Rendered | None = None
        self._rendering = 0.0
        self._search = FailureSearch(quarantine, validator)
        self._heavy = HeavyChanges(stores, renderer)
        self.turn = trio.Lock()
        """Held while stores are frozen: by renders, dry runs and questions about the newest render.

        If two of them overlapped, the stores would stay frozen from one to the
        next, and a cycle would miss the change that triggered it."""

    @property
    def newest(self) -> Rendered | None:
        """The newest render, also one that was rejected; None before the first."""
        return self._newest

    @property
    def steps(self) -> int:
        """A number that changes while a render or `parse` makes progress; `haproxy -c` counts nothing."""
        return self._renderer.steps + self._validator.steps

    @property
    def progress(self) -> str:
        """Progress of the present render, as text; empty while nothing renders."""
        counted = self._renderer.progress
        if counted is None:
            return ""
        done, due = counted
        return f"rendered {done:,} of {due:,} fragments" if due else f"rendered {done:,} fragments"

    @property
    def is_behind(self) -> bool:
        """Whether changes wait for another cycle; see `k8s.intake`."""
        return self._stores.intake.is_waiting

    async def render_ahead(self) -> bool:
        """Render one step ahead for changes that wait; return whether another cycle would take in any of them."""
        async with self.turn:
            await self._heavy.render()
        return self._stores.intake.is_due or self._heavy.is_ready

    async def take_over(self, former: "Pipeline", kinds: Collection[str], begin: Callable[[], None] = _ignore) -> None:
        """Begin with what is still valid of the newest render of *former*. Nothing else may use this pipeline yet.

        *kinds* are the stores that watch the same objects in the same way as those of *former*; they get the content
        that these have when *begin* is called. The next render of *former* waits while records are copied.
        """

        def copy() -> Callable[[], None]:
            self._stores.take_over(former._stores, kinds)  # noqa: SLF001  the two are of one class
            return self._renderer.take_over(renderer, self._stores, frozenset(self._stores.keys() - kinds))

        renderer, validator = former._renderer, former._validator  # noqa: SLF001  the two are of one class
        async with former.turn:
            await renderer.work(partial(self._validator.take_parsed, validator))
        # Between the two, a render may have its turn: what is parsed is found by its text.
        async with former.turn:
            with former._stores.frozen():  # noqa: SLF001  the two are of one class
                begin()
                complete = await renderer.work(copy)
        await self._renderer.work(complete)

    async def run(
        self, correlation: str, reason: Reason = Reason.CHANGED, *, progress: Callable[[], None] = _ignore
    ) -> ConfigValidated:
        """Return a valid configuration for the present stores, or raise `RejectedError`.

        The error is an `UndecidedError` if `haproxy -c` gave no verdict. Fragments that fail, or that HAProxy rejects,
        are replaced by their last good output or omitted, and the cycle runs again. The same holds for rejected
        fetched contents. *progress* is called between the steps of a long search.
        """
        times, started = dict.fromkeys(_PHASES, 0.0), trio.current_time()
        for number in range(1, MAX_ROUNDS + 1):
            prepared = await self._prepare(correlation, reason, started, times)
            try:
                valid = await self._check(prepared, times, idle=False, progress=progress)
            except RejectedError as exc:
                if not exc.is_quarantined or number == MAX_ROUNDS:
                    raise
            else:
                if number == MAX_ROUNDS or not self._trial.passed("check", prepared.rendered.contents):
                    return valid
        raise AssertionError

    async def prepare(self, correlation: str, reason: Reason = Reason.CHANGED) -> Prepared:
        """Return a configuration for the present stores that the parser accepts, or raise `RejectedError`."""
        return await self._prepare(correlation, reason, trio.current_time(), dict.fromkeys(_PHASES, 0.0))

    async def check(self, prepared: Prepared, *, idle: bool, progress: Callable[[], None] = _ignore) -> ConfigValidated:
        """Run `haproxy -c` on *prepared*; raise `RejectedError` if HAProxy rejects it.

        If `is_quarantined` is set in the error, another `prepare` omits the
        rejected output. *idle*: use idle CPU time only. *progress* is called between
        the steps of a long search.
        """
        times = msgspec.structs.asdict(prepared.message.phases)
        valid = await self._check(prepared, times, idle=idle, progress=progress)
        if self._trial.passed("check", prepared.rendered.contents):
            self._contents.announce()
        return valid

    async def check_part(self, prepared: Prepared, generation: Generation) -> ConfigValidated:
        """Run `haproxy -c` on *generation*, which has a part of *prepared* only; raise `RejectedError`.

        Neither quarantines nor accepts an output.
        """
        times = dict.fromkeys(_PHASES, 0.0)
        with _timed(times, "check"):
            warnings = await self._validator.check(generation, prepared.rendered)
        return _validated(prepared.message, generation, times, warnings)

    def accept(self, rendered: Rendered) -> None:
        """Take note that HAProxy accepts the generation of *rendered*."""
        self._quarantine.accept(rendered.serial, rendered.rejections)
        self._contents.accept(rendered.contents)

    async def dismantle(self) -> None:
        """Free the records of all renders; the pipeline must not be used any more."""
        self._newest = None
        await self._renderer.dismantle()

    async def reads(self, stores: Iterable[str]) -> bool:
        """Whether the output may depend on *stores*; see `Renderer.reads`. True while changes wait for a cycle."""
        return self.is_behind or await self._renderer.reads(stores)

    async def consult(self, ask: Callable[[Rendered, Provenance], T]) -> T | None:
        """Return the result of *ask* on the newest render; see `Renderer.consult`."""
        async with self.turn:
            with self._stores.frozen():
                return await self._renderer.consult(self._stores, ask)

    async def _prepare(self, correlation: str, reason: Reason, started: float, times: dict[str, float]) -> Prepared:
        # Once for a cycle, however often it renders. A cycle before an iteration serves delays no change.
        async with self.turn:
            is_for_others = reason is not Reason.WAITED
            self._stores.take_in(is_for_others=is_for_others, is_for_all=reason is Reason.SYNCHRONIZED)
            if not is_for_others:
                self._heavy.take_in()
        self._rendering = 0.0
        try:
            return await self._render_until_parsed(correlation, reason, started, times)
        finally:
            self._stores.intake.note(self._rendering)

    async def _render_until_parsed(
        self, correlation: str, reason: Reason, started: float, times: dict[str, float]
    ) -> Prepared:
        for number in range(1, MAX_ROUNDS + 1):
            try:
                async with self.turn:
                    prepared = await self._render_and_parse(correlation, reason, started, times)
            except RejectedError as exc:
                exc.phases = Phases(**times)
                if number == MAX_ROUNDS:
                    raise
                if not exc.is_quarantined:
                    self._trial.failed(exc)
            else:
                if number == MAX_ROUNDS or not self._trial.passed("parse", prepared.rendered.contents):
                    return prepared
        raise AssertionError

    async def _render_and_parse(
        self, correlation: str, reason: Reason, started: float, times: dict[str, float]
    ) -> Prepared:
        # Writes wait while the worker thread reads, so one render sees one state.
        with self._stores.frozen(), _timed(times, "render"):
            rendered = await self.render_newest()
        if self._quarantine.has_inherited and (
            faults := await trio.to_thread.run_sync(
                self._quarantine.find_template_faults, rendered.produced, rendered.rejections
            )
        ):
            raise RejectedError("render", faults)
        self._events.record(
            ConfigRendered(
                correlation=correlation,
                bytes=rendered.config.size,
                files=len(rendered.files),
                seconds=times["render"],
                fragments_rendered=rendered.fragments_rendered,
                fragments_reused=rendered.fragments_reused,
                waiting=self._stores.intake.waiting,
            )
        )
        if rendered.differing:
            self._events.record(RenderDiffered(correlation=correlation, outputs=rendered.differing))
        try:
            with _timed(times, "parse"):
                generation = await self._validator.parse(rendered)
        except RejectedError as exc:
            exc.is_quarantined = self._quarantine.reject(exc.suspects, rendered.produced)
            exc.contents = rendered.contents
            raise
        finally:
            with_fields = partial(self._name_fields, trio.current_time() + _FIELD_SEARCH_LIMIT)
            report_changes(self._events, self._quarantine, rendered, correlation, with_fields, self.places)
        self._quarantine.prepare(rendered.serial)
        message = ConfigPrepared(
            correlation=correlation, reason=reason, generation=generation, phases=Phases(**times), started=started
        )
        return Prepared(message=message, rendered=rendered)

    async def render_newest(self) -> Rendered:
        """Render the stores; the caller holds `turn` and keeps them frozen. Raises `RejectedError`."""
        rendered = await self._render()
        while self._trial.rendered(rendered):
            rendered = await self._render()
        return rendered

    async def _render(
        self, omitted: Iterable[FragmentKey] = (), instead: Mapping[FragmentKey, FragmentOutput] | None = None
    ) -> Rendered:
        """Render the stores; *omitted* fragments count as failed and use their output in *instead*, if it has one."""
        self._quarantine.pause(trio.current_time())
        recall = self._quarantine.recall(dict.fromkeys(omitted, _OMITTED), instead)
        self._heavy.put_back()
        try:
            rendered = self._newest = await self._renderer.render(self._stores, recall)
        finally:
            self._heavy.settle()
        self._rendering += rendered.cpu_seconds
        self._stores.intake.charge(rendered.spent)
        self._quarantine.take(rendered.serial, rendered.changed, is_new=rendered.is_new)
        return rendered

    async def _check(
        self, prepared: Prepared, times: dict[str, float], *, idle: bool, progress: Callable[[], None]
    ) -> ConfigValidated:
        rendered = prepared.rendered
        failure: CrashedError | TimedOutError | None = None
        try:
            with _timed(times, "check"):
                warnings = await self._validator.check(prepared.generation, rendered, idle=idle)
        except (CrashedError, TimedOutError) as exc:
            failure = exc
        except UndecidedError as exc:
            # No verdict about any object or fetched content.
            exc.phases = Phases(**times)
            raise
        except RejectedError as exc:
            exc.is_quarantined = self._quarantine.reject(exc.suspects, rendered.produced)
            if exc.is_quarantined:
                found = {ResourceRef(key.kind, key.namespace, key.name): one for key, one in exc.suspects.items()}
                self._quarantine.setbacks.record(found, trio.current_time(), is_named=True)
            self._take_rejection(exc, rendered, times)
            raise
        if failure is not None:
            failure.phases = Phases(**times)
            with _timed(times, "check"):
                if isinstance(failure, CrashedError):
                    failure.is_quarantined = await self._search.quarantine_crashing(
                        self, rendered, failure.problems[0], progress
                    )
                else:
                    failure.is_quarantined = await self._search.quarantine_slow(
                        self, prepared.generation, rendered, failure.cpu_seconds, progress
                    )
            if isinstance(failure, CrashedError):
                self._take_rejection(failure, rendered, times)
            raise failure
        self.accept(rendered)
        return _validated(prepared.message, prepared.generation, times, warnings)

    def _take_rejection(self, error: RejectedError, rendered: Rendered, times: dict[str, float]) -> None:
        """Complete *error*. If no fragment is at fault, a fetched content may be; if none is, raise *error*."""
        error.phases, error.contents = Phases(**times), rendered.contents
        if not error.is_quarantined:
            self._quarantine.distrust(rendered.serial)
            self._trial.failed(error)
            error.is_quarantined = True

    async def make_variant(
        self, omitted: Collection[FragmentKey], kept: Collection[FragmentKey], rendered: Rendered
    ) -> tuple[Generation, Rendered]:
        """Return *rendered* with the last good output of *omitted*; see `Variants`."""
        async with self.turn:
            with self._stores.frozen():
                if self._renderer.newest(self._stores) is None:
                    await self._render()
                newer = self._quarantine.find_newer(rendered.serial, rendered.produced)
                instead = {key: rendered.produced[key] for key in newer.intersection(kept).difference(omitted)}
                variant = await self._render(newer.union(omitted), instead)
                await self._render()
            return await self._validator.parse(variant), variant

    def _name_fields(self, until: float, ref: ResourceRef, problem: Problem) -> Problem:
        if (place := self.places(ref)) is not None:
            problem = placed_at(problem, place)
        # Objects of on-demand stores would have to be fetched.
        known = (store.by_ref(ref) for store in self._stores.values())
        is_late = trio.current_time() > until
        return problem if is_late else name_fields(next((one for one in known if type(one) is dict), None), problem)


def _validated(
    message: ConfigPrepared, generation: Generation, times: dict[str, float], warnings: tuple[Problem, ...]
) -> ConfigValidated:
    return ConfigValidated(
        correlation=message.correlation,
        reason=message.reason,
        generation=generation,
        phases=Phases(**times),
        warnings=warnings,
        started=message.started,
    )


@contextmanager
def _timed(times: dict[str, float], phase: str) -> Iterator[None]:
    began = trio.current_time()
    try:
        yield
    finally:
        times[phase] += trio.current_time() - began
