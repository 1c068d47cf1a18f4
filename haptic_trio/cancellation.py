"""Cleanup of cancelled tasks: work that may finish despite a cancellation, within a limit."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio

from haptic_trio.logs import get_logger

CLEANUP_LIMIT: Final = 10.0
"""Seconds that a thread call for cleanup may take before it is left behind."""


async def clean_up_in_thread(function: Callable[[], None]) -> None:
    """Run *function*, which removes files, in a thread, also in a cancelled task.

    A volume that hangs must not keep the process from ending: after
    CLEANUP_LIMIT the thread is left behind, and a warning is logged.
    """
    with trio.move_on_after(CLEANUP_LIMIT, shield=True) as scope:
        await trio.to_thread.run_sync(function, abandon_on_cancel=True)
    if scope.cancelled_caught:
        get_logger("cleanup").warning(
            "removing files takes too long: it goes on in the background", seconds=CLEANUP_LIMIT
        )


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
