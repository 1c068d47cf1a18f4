"""Exponential backoff with jitter, for one subject. `workqueue.limiter` keeps delays for many keys."""

import random
from collections.abc import Callable
from typing import Final

BASE: Final = 0.2
LIMIT: Final = 15.0


class Backoff:
    """Delays in seconds that double from *base* up to *limit*, each shortened by up to a half at random.

    *jitter* returns a number from 0 to 1; a function that returns 0 gives exact delays.
    """

    def __init__(
        self, *, base: float = BASE, limit: float = LIMIT, jitter: Callable[[], float] = random.random
    ) -> None:
        self._base = base
        self._limit = limit
        self._jitter = jitter
        self.failures = 0
        """Failures since the last success."""

    def next(self) -> float:
        """Count a failure and return how long to wait after it."""
        full = min(self._limit, self._base * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return full * (1 - 0.5 * self._jitter())

    def reset(self) -> None:
        """Start from *base* again, after a success."""
        self.failures = 0
