"""Progress of an iteration: it prolongs the limit of the start, and is reported while something takes long."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import trio

from haptic_trio.channels import EventBuffer
from haptic_trio.messages import ProgressMade
from haptic_trio.stages.process import IterationState

REPORT_INTERVAL: Final = 5.0
"""Seconds between two reports."""
_LOOK: Final = 1.0
"""Seconds between two looks for progress."""


@contextmanager
def prolonged(
    nursery: trio.Nursery, scope: trio.CancelScope, limit: float, progress: Callable[[], object]
) -> Iterator[None]:
    """Let the time of *scope*, *limit* seconds, count again inside the block each time that *progress* has changed.

    *progress* is compared once a second, by a task in *nursery* that ends with the block.
    """
    looking = trio.CancelScope()

    async def look() -> None:
        with looking:
            seen = progress()
            while True:
                await trio.sleep(_LOOK)
                if (now := progress()) != seen:
                    seen = now
                    scope.deadline = trio.current_time() + limit

    nursery.start_soon(look)
    try:
        yield
    finally:
        looking.cancel(reason="the lists are complete")


async def report_progress(state: IterationState, events: EventBuffer) -> None:
    """Record a `ProgressMade` every few seconds while *state* has progress to show, until cancelled."""
    seen = ""
    while True:
        await trio.sleep(REPORT_INTERVAL)
        progress = state.progress
        if progress and progress != seen:
            events.record(ProgressMade(iteration=state.number, progress=progress))
        seen = progress
