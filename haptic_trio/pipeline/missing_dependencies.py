"""Dependencies that a render lacks, and the components that can supply them."""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import trio

from haptic_trio.errors import Problem
from haptic_trio.k8s.on_demand import FETCH_ALLOWANCE
from haptic_trio.pipeline.rejection.errors import RejectedError


class DependencySource(Protocol):
    """A component that fetches objects or contents that templates looked up and that are not in memory."""

    @property
    def name(self) -> str:
        """The name that templates use, such as `secrets`."""
        ...

    async def fetch_wanted(self) -> None:
        """Fetch the missing items, or record the reason for each failure; takes a bounded time."""
        ...


PendingSources: TypeAlias = tuple[DependencySource, ...]
"""Sources that have to fetch something before the output is complete."""


async def fetch_all(pending: Sequence[DependencySource], until: float) -> None:
    """Let all *pending* sources fetch concurrently; raises `RejectedError` after the clock time *until*."""
    if trio.current_time() > until:
        names = ", ".join(source.name for source in pending)
        problem = Problem(
            message=f"after {FETCH_ALLOWANCE:g} s of fetching, templates still look up missing objects: {names}",
            hint="look the objects up within fragments, or set their store to `full`",
        )
        raise RejectedError("render", (problem,))
    async with trio.open_nursery() as nursery:
        for source in pending:
            nursery.start_soon(source.fetch_wanted)
