"""Dependencies that a render lacks, and the components that can supply them."""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import trio

from haptic_trio.errors import Problem
from haptic_trio.k8s.on_demand import FETCH_ALLOWANCE
from haptic_trio.pipeline.rejection.errors import RejectedError


class DependencySource(Protocol):
    """Who can get what templates have asked for and did not get."""

    @property
    def name(self) -> str:
        """What templates know it by, such as `secrets`."""
        ...

    async def fetch_wanted(self) -> None:
        """Get it, or know why it is not to be had; takes a bounded time."""
        ...


PendingSources: TypeAlias = tuple[DependencySource, ...]
"""Whom to ask before anything is complete."""


async def fetch_all(pending: Sequence[DependencySource], until: float) -> None:
    """Have all of them fetch what is wanted; raises `RejectedError` after the clock time *until*."""
    if trio.current_time() > until:
        names = ", ".join(source.name for source in pending)
        problem = Problem(
            message=f"objects have been fetched for {FETCH_ALLOWANCE:g} s, and more are needed: {names}",
            hint="look them up within fragments, or keep them in a store that is `full`",
        )
        raise RejectedError("render", (problem,))
    async with trio.open_nursery() as nursery:
        for source in pending:
            nursery.start_soon(source.fetch_wanted)
