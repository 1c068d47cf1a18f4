"""Writes that bring the files of an instance in line with its process, also for a cancelled deployment."""

from collections.abc import Callable
from typing import Final

import trio

WRITE_LIMIT: Final = 30.0
"""Seconds that a deployment waits for the disk."""


class LastWrite:
    """The last step of a deployment, in a thread; one at a time."""

    def __init__(self) -> None:
        self._is_running = False

    @property
    def is_running(self) -> bool:
        """Whether a thread that took too long still writes: the files must not be used."""
        return self._is_running

    async def finish(self, write: Callable[[], None]) -> None:
        """Run *write* to its end, also in a cancelled task. Raises OSError.

        After WRITE_LIMIT the thread is left behind, and this raises
        TimeoutError: a volume that hangs must not keep the process from ending.
        """

        def run() -> None:
            self._is_running = True
            try:
                write()
            finally:
                self._is_running = False

        with trio.move_on_after(WRITE_LIMIT, shield=True) as scope:
            await trio.to_thread.run_sync(run, abandon_on_cancel=True)
        if scope.cancelled_caught:
            raise TimeoutError(f"writing to the state directory took longer than {WRITE_LIMIT:g} s")
