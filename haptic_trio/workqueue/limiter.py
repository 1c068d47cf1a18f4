"""Rate limiters for the retries of keys.

A queue calls a limiter's `next_retry` for each failure of a key, and `forget`
after a success. Delays are in seconds. Limiters are single-threaded objects
without I/O.
"""

import math
import random
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)

_MAX_DOUBLINGS = 62


class Limiter(Protocol[K_contra]):
    """Decides the delay before each retry of a key."""

    def next_retry(self, key: K_contra, /) -> float:
        """Count one failure of *key* and return the delay before its next try."""
        ...

    def forget(self, key: K_contra, /) -> None:
        """Reset *key* to its first delay; unknown keys are fine."""
        ...

    def failures(self, key: K_contra, /) -> int:
        """Return the failures of *key* since it was last forgotten."""
        ...


class ExponentialLimiter(Generic[K]):
    """Doubles the delay of a key with each failure: `min(max, base * 2**n)`.

    *jitter* in 0..1 lengthens each delay by up to that share, still within
    *max*; the delays of one key never decrease. An entry lives until the key
    is forgotten.
    """

    def __init__(
        self,
        base: float = 0.005,
        max: float = 1000.0,  # noqa: A002 - the field's word for the cap of a backoff
        jitter: float = 0.0,
        *,
        rand: Callable[[], float] = random.random,
    ) -> None:
        for value, what in ((base, "base"), (max, "max"), (jitter, "jitter")):
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"{what} must be a finite number of at least 0, not {value}")
        if jitter > 1:
            raise ValueError(f"jitter must be at most 1, not {jitter}")
        self._base = base
        self._max = max
        self._jitter = jitter
        self._rand = rand
        self._failures: dict[K, int] = {}

    def next_retry(self, key: K) -> float:
        """Count one failure of *key* and return the delay before its next try."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        # 2.0**1024 overflows, so the exponent stops where no sensible cap is left to reach.
        doublings = min(failures, _MAX_DOUBLINGS)
        delay = self._base * 2.0**doublings
        if self._jitter:
            # Past the last doubling a random share could shorten the delay again.
            delay *= 1.0 + self._jitter * (self._rand() if failures < _MAX_DOUBLINGS else 1.0)
        return min(self._max, delay)

    def forget(self, key: K) -> None:
        """Reset *key* to its first delay."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """Return the failures of *key* since it was last forgotten."""
        return self._failures.get(key, 0)
