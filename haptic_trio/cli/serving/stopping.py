"""Time limit for the end of the process, from the signal on."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from haptic_trio.logs import MAIN, get_logger

STOP_LIMIT: Final = 300.0
"""Seconds after SIGINT or SIGTERM, and any grace periods, after which the process ends in any case."""
STOPPED: Final = 1
"""Exit status of a process that did not end by itself."""


class StopLimit:
    """Ends the process a given time after `begin`, even if a thread waits for a volume that hangs."""

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None

    def begin(self, seconds: float) -> None:
        """End the process in *seconds*, unless `release` is called before. Call it once."""
        self._timer = threading.Timer(seconds, self._end, (seconds,))
        self._timer.daemon = True
        self._timer.start()

    def release(self) -> None:
        """The process has ended its work."""
        if self._timer is not None:
            self._timer.cancel()

    @staticmethod
    def _end(seconds: float) -> None:
        try:
            get_logger(MAIN).error("still not stopped: the process ends now", seconds=seconds)
        finally:
            # Not sys.exit: Trio waits for threads that cannot be cancelled.
            os._exit(STOPPED)


@contextmanager
def stop_limit() -> Iterator[StopLimit]:
    """Yield a limit that applies until the end of the block."""
    limit = StopLimit()
    try:
        yield limit
    finally:
        limit.release()
