"""Live figures of HAProxy for viewers: from the instances of this machine, and from agents.

They are read for viewers that follow them, and otherwise never.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

import msgspec
import trio

from haptic_trio.console.protocol import LiveView
from haptic_trio.dataplane.endpoint import EndpointError
from haptic_trio.dataplane.figures import InstanceFigures, ReadsFigures, sum_backends

READ_LIMIT: Final = 2.0
"""Seconds that an instance has to answer: the viewer waits for nothing else meanwhile."""
MOST_INSTANCES: Final = 100
"""Maximum number of instances that are read."""


class Live:
    """Reads the figures of the instances that *sources* returns."""

    def __init__(self, sources: Callable[[], Iterable[ReadsFigures]]) -> None:
        self._sources = sources

    async def read(self, backends: Sequence[str]) -> LiveView:
        """Return the figures of all processes that answer, and of those of *backends* that exist."""
        sources = list(self._sources())
        answers: dict[str, InstanceFigures] = {}

        async def ask(source: ReadsFigures) -> None:
            # One that is starting, reloading or gone does not answer: the next read has it. An older agent has none.
            with trio.move_on_after(READ_LIMIT), suppress(EndpointError):
                answers[source.name] = _named(source.name, await source.read_figures(backends))

        async with trio.open_nursery() as nursery:
            for source in sources[:MOST_INSTANCES]:
                nursery.start_soon(ask, source)
        figures = [answers[source.name] for source in sources if source.name in answers]
        return LiveView(processes=tuple(one.process for one in figures), backends=sum_backends(figures))


def _named(name: str, figures: InstanceFigures) -> InstanceFigures:
    """Return *figures* with the *name* that the controller gives the instance; an agent does not know it."""
    if figures.process.instance == name:
        return figures
    return msgspec.structs.replace(
        figures,
        process=msgspec.structs.replace(figures.process, instance=name),
        backends=tuple(
            msgspec.structs.replace(
                one, servers=tuple(msgspec.structs.replace(server, instance=name) for server in one.servers)
            )
            for one in figures.backends
        ),
    )
