"""One render-validate cycle, with quarantine: what one object breaks, the others do not pay for."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec
import trio

from haptic_trio.channels import Facts
from haptic_trio.errors import Problem
from haptic_trio.haproxy.model import Generation
from haptic_trio.k8s.overlay import Overlay
from haptic_trio.k8s.resource import Resource, ResourceRef
from haptic_trio.k8s.store import ReadableStore, Stores
from haptic_trio.messages import ConfigRendered, Phases, Quarantined, Released
from haptic_trio.pipeline.quarantine import Quarantine
from haptic_trio.pipeline.refusal import RefusedError
from haptic_trio.pipeline.render import Renderer
from haptic_trio.pipeline.validate import Validator

MAX_ROUNDS = 20
"""Each round takes at least one object out of the way; so many broken at once is a broken template."""


class Valid(msgspec.Struct, frozen=True, kw_only=True):
    """What a successful cycle yields."""

    generation: Generation
    phases: Phases
    warnings: tuple[Problem, ...] = ()


class Pipeline:
    """Renders the stores and validates the result. Not for two tasks at once."""

    def __init__(self, stores: Stores, renderer: Renderer, validator: Validator, facts: Facts) -> None:
        self._stores = stores
        self._renderer = renderer
        self._validator = validator
        self._facts = facts
        self.quarantine = Quarantine()

    async def run(self, correlation: str) -> Valid:
        """Return a valid configuration of what the stores hold, or raise `RefusedError`.

        Objects that cannot be rendered, or that HAProxy refuses, are put in
        quarantine and the cycle goes round again without them.
        """
        self._release(correlation)
        times = dict.fromkeys(("render", "parse", "check"), 0.0)
        try:
            for _round in range(MAX_ROUNDS - 1):
                try:
                    return await self._round(correlation, times)
                except RefusedError as exc:
                    if not self._hold(correlation, exc.suspects):
                        raise
            return await self._round(correlation, times)
        except RefusedError as exc:
            exc.phases = Phases(**times)
            raise

    async def _round(self, correlation: str, times: dict[str, float]) -> Valid:
        # Writes wait while the worker thread reads: one render sees one state.
        with self._stores.frozen():
            views = self._views()
            good: dict[str, tuple[Resource, ...]] = {name: tuple(view.list()) for name, view in views.items()}
            with _timed(times, "render"):
                rendered = await self._renderer.render(views)
        if rendered.refused:
            raise RefusedError("render", tuple(rendered.refused.values()), rendered.refused)
        self._facts.tell(
            ConfigRendered(
                correlation=correlation,
                bytes=len(rendered.text),
                files=len(rendered.files),
                seconds=times["render"],
            )
        )
        with _timed(times, "parse"):
            generation = await self._validator.parse(rendered)
        with _timed(times, "check"):
            warnings = await self._validator.check(generation, rendered)
        self.quarantine.keep_good(good)
        return Valid(generation=generation, phases=Phases(**times), warnings=warnings)

    def _views(self) -> Mapping[str, ReadableStore]:
        views: dict[str, ReadableStore] = {}
        for name, store in self._stores.items():
            replacements = self.quarantine.replacements(name)
            views[name] = Overlay(store, replacements) if replacements else store
        return views

    def _hold(self, correlation: str, suspects: Mapping[ResourceRef, Problem]) -> bool:
        found = False
        for ref, problem in suspects.items():
            # The same object may be in several stores, under different indexes.
            everywhere = [
                self.quarantine.hold(name, ref, store.by_ref(ref), problem) for name, store in self._stores.items()
            ]
            held = next((entry for entry in everywhere if entry is not None), None)
            if held is None:
                continue
            found = True
            self._facts.tell(
                Quarantined(
                    correlation=correlation,
                    ref=ref,
                    version=held.version,
                    problem=problem,
                    has_fallback=held.fallback is not None,
                    held=self.quarantine.count(),
                )
            )
        return found

    def _release(self, correlation: str) -> None:
        released = self.quarantine.release_changed(lambda store, ref: self._stores[store].by_ref(ref))
        for ref in dict.fromkeys(held.ref for held in released):
            self._facts.tell(Released(correlation=correlation, ref=ref, held=self.quarantine.count()))


@contextmanager
def _timed(times: dict[str, float], phase: str) -> Iterator[None]:
    began = trio.current_time()
    try:
        yield
    finally:
        times[phase] += trio.current_time() - began
