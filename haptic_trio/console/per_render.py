"""Values for the console that are computed once for each render."""

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import ReferenceType, ref

import trio

from haptic_trio.console.configuration import Configuration, NotNowError, Source
from haptic_trio.pipeline.cycle import Pipeline
from haptic_trio.pipeline.render import Rendered
from haptic_trio.templating.incremental.provenance import Provenance

T = TypeVar("T")

PAUSE = 10
"""A value that followers need takes at most one part of so many of the time."""


class Computed(Generic[T]):
    """A value, and the render that it is of."""

    def __init__(self, pipeline: Pipeline, serial: int, value: T) -> None:
        self.serial = serial
        self.value = value
        self._pipeline: ReferenceType[Pipeline] = ref(pipeline)

    def is_of(self, pipeline: Pipeline, serial: int) -> bool:
        """Whether the value is that of the render *serial* of *pipeline*."""
        return self._pipeline() is pipeline and self.serial == serial


class PerRender(Generic[T]):
    """The value that *compute* returns for the newest render, in a worker thread.

    Costs nothing until the first request; the newest value is kept until `forget`.
    """

    def __init__(self, configuration: Configuration, compute: Callable[[Source, Rendered, Provenance], T]) -> None:
        self._configuration = configuration
        self._compute = compute
        self._newest: Computed[T] | None = None
        self._computing = trio.Lock()
        self._next = 0.0

    def forget(self) -> None:
        """Drop the value; called when the last client disconnects."""
        self._newest = None

    async def get(self, *, patient: bool = False) -> Computed[T]:
        """Return the value of the newest render.

        With *patient*, or while changes wait for their render, it may be that
        of a former render. Raises `NotNowError`.
        """
        async with self._computing:
            known = self._newest
            if known is not None and patient and trio.current_time() < self._next:
                return known
            begun = trio.current_time()
            try:
                newest = await self._configuration.consult(_Computer(self._compute, known))
            except NotNowError:
                if known is None:
                    raise
                return known
            if newest is not known:
                self._next = trio.current_time() + PAUSE * (trio.current_time() - begun)
            self._newest = newest
            return newest


class _Computer(Generic[T]):
    """Returns the value of a render, or the *known* one if it is of that render."""

    def __init__(self, compute: Callable[[Source, Rendered, Provenance], T], known: Computed[T] | None) -> None:
        self._compute = compute
        self._known = known

    def __call__(self, source: Source, rendered: Rendered, provenance: Provenance) -> Computed[T]:
        if self._known is not None and self._known.is_of(source.pipeline, rendered.serial):
            return self._known
        return Computed(source.pipeline, rendered.serial, self._compute(source, rendered, provenance))
