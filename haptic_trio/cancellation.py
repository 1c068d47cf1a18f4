"""Cleanup of cancelled tasks: work that may finish despite a cancellation, within a limit."""

import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio

from haptic_trio.logs import get_logger

CLEANUP_LIMIT: Final = 10.0
"""Seconds that a thread call for cleanup may take before it is left behind."""


async def finish_despite_cancel(work: Callable[[], Awaitable[None]], *, grace: float) -> None:
    """Run *work*; if cancelled from outside meanwhile, let it continue for at most *grace* seconds."""
    shielded = trio.CancelScope(shield=True)

    async def shorten_when_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            shielded.deadline = min(shielded.deadline, trio.current_time() + grace)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(shorten_when_cancelled)
        with shielded:
            await work()
        nursery.cancel_scope.cancel(reason="work is finished")


async def clean_up_in_thread(function: Callable[[], None]) -> None:
    """Run *function*, which removes files, in a thread, also in a cancelled task.

    A volume that hangs must not keep the process from ending: after
    CLEANUP_LIMIT the removal goes on in the background, and a warning is logged.
    """
    # One bounded thread call.
    with trio.CancelScope(shield=True):
        is_done = await trio.to_thread.run_sync(_run_with_limit, function)
    if not is_done:
        log = get_logger("cleanup")
        log.warning("removing files takes too long: it goes on in the background", seconds=CLEANUP_LIMIT)


def _run_with_limit(function: Callable[[], None]) -> bool:
    thread = threading.Thread(target=function, name="cleanup", daemon=True)
    thread.start()
    thread.join(CLEANUP_LIMIT)
    return not thread.is_alive()


@asynccontextmanager
async def cancelled_first() -> AsyncIterator[trio.CancelScope]:
    """Shield the block, and yield a scope that is cancelled instead when the caller is cancelled.

    The block ends after that scope. Its other tasks go on until then, and
    limit the time that each of them needs to end.
    """
    first = trio.CancelScope()

    async def forward() -> None:
        try:
            await trio.sleep_forever()
        finally:
            first.cancel(reason="the process stops")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(forward)
        # Bounded by the tasks in the block, and for the process by `haptic_trio.cli.serving.stopping`.
        with trio.CancelScope(shield=True):  # noqa: ASYNC100  the caller's block waits
            yield first
        nursery.cancel_scope.cancel(reason="the block ended")
