"""Exponential backoff with jitter."""

import random
from collections.abc import Callable
from typing import Final

BASE: Final = 0.2
LIMIT: Final = 15.0


class Backoff:
    """Delays in seconds that double from *base* up to *limit*, each shortened by up to a half at random."""

    def __init__(
        self, *, base: float = BASE, limit: float = LIMIT, jitter: Callable[[], float] = random.random
    ) -> None:
        self._base = base
        self._limit = limit
        self._jitter = jitter
        self.failures = 0
        """Failures since the last success."""

    def next(self, *, at_least: float = 0.0) -> float:
        """Count a failure and return how long to wait after it."""
        full = min(self._limit, self._base * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return max(at_least, full * (1 - 0.5 * self._jitter()))

    def reset(self) -> None:
        """Begin again: something has succeeded."""
        self.failures = 0
