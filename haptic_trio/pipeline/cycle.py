"""One render-validate cycle: what one object breaks, the others do not pay for."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import trio

from haptic_trio.channels import Facts
from haptic_trio.errors import Problem
from haptic_trio.haproxy.model import Generation
from haptic_trio.k8s.store import Stores
from haptic_trio.messages import ConfigRendered, Phases, Quarantined, Released
from haptic_trio.pipeline.quarantine import Quarantine
from haptic_trio.pipeline.refusal import RefusedError
from haptic_trio.pipeline.render import Rendered, Renderer
from haptic_trio.pipeline.validate import Validator

MAX_ROUNDS = 100
"""Each round takes at least one fragment out of the way: HAProxy names one bad certificate at a time."""


class Valid(msgspec.Struct, frozen=True, kw_only=True):
    """What a successful cycle yields."""

    generation: Generation
    phases: Phases
    warnings: tuple[Problem, ...] = ()


class Pipeline:
    """Renders the stores and validates the result. Not for two tasks at once."""

    def __init__(
        self, stores: Stores, renderer: Renderer, validator: Validator, quarantine: Quarantine, facts: Facts
    ) -> None:
        self._stores = stores
        self._renderer = renderer
        self._validator = validator
        self._quarantine = quarantine
        self._facts = facts

    async def run(self, correlation: str) -> Valid:
        """Return a valid configuration of what the stores hold, or raise `RefusedError`.

        Fragments that fail, or that HAProxy refuses, are replaced by their
        last good output or left out, and the cycle goes round again.
        """
        times = dict.fromkeys(("render", "parse", "check"), 0.0)
        try:
            for _round in range(MAX_ROUNDS - 1):
                try:
                    return await self._round(correlation, times)
                except _BlockedError:
                    continue
            return await self._round(correlation, times)
        except _BlockedError as exc:
            error = exc.refused
            error.phases = Phases(**times)
            raise error from exc
        except RefusedError as exc:
            exc.phases = Phases(**times)
            raise

    async def _round(self, correlation: str, times: dict[str, float]) -> Valid:
        # Writes wait while the worker thread reads: one render sees one state.
        with self._stores.frozen(), _timed(times, "render"):
            rendered = await self._renderer.render(self._stores, self._quarantine.recall())
        if faults := self._quarantine.find_template_faults(rendered.produced, rendered.refusals):
            raise RefusedError("render", faults)
        self._facts.tell(
            ConfigRendered(
                correlation=correlation,
                bytes=len(rendered.text),
                files=len(rendered.files),
                seconds=times["render"],
            )
        )
        try:
            with _timed(times, "parse"):
                generation = await self._validator.parse(rendered)
            with _timed(times, "check"):
                warnings = await self._validator.check(generation, rendered)
        except RefusedError as exc:
            if self._quarantine.block(exc.suspects, rendered.produced):
                raise _BlockedError(exc) from exc
            raise
        finally:
            self._tell_held(correlation, rendered)
        self._quarantine.accept(rendered.produced, rendered.refusals)
        return Valid(generation=generation, phases=Phases(**times), warnings=warnings)

    def _tell_held(self, correlation: str, rendered: Rendered) -> None:
        fresh, released = self._quarantine.update_held(rendered.refusals)
        count = len(self._quarantine.held)
        for held in released:
            self._facts.tell(Released(correlation=correlation, ref=held.ref, held=count))
        for held in fresh:
            self._facts.tell(
                Quarantined(
                    correlation=correlation,
                    ref=held.ref,
                    version=held.version,
                    problem=held.problem,
                    has_fallback=held.has_stand_in,
                    held=count,
                )
            )


class _BlockedError(Exception):
    """HAProxy refused what fragments gave; they are blocked now, and the next round may pass."""

    def __init__(self, refused: RefusedError) -> None:
        self.refused = refused
        super().__init__(str(refused))


@contextmanager
def _timed(times: dict[str, float], phase: str) -> Iterator[None]:
    began = trio.current_time()
    try:
        yield
    finally:
        times[phase] += trio.current_time() - began
