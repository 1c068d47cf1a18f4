"""Rate limiters for the retries of keys.

A limiter is asked once for every failure and told when a key is well again.
All delays are seconds. Limiters are single-threaded objects without I/O; the
ones that need the time take a clock.
"""

import math
import random
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

import trio

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


class BucketLimiter(Generic[K]):
    """One token bucket for all keys: *burst* retries at once, then *rate* a second.

    Each call reserves the next free token, so callers that come together get
    delays one after another. It knows no keys: forget() does nothing and
    failures() is 0.
    """

    def __init__(self, rate: float = 10.0, burst: int = 100, *, clock: Callable[[], float] = trio.current_time) -> None:
        if not math.isfinite(rate) or rate <= 0:
            raise ValueError(f"rate must be a finite number above 0, not {rate}")
        if burst < 1:
            raise ValueError(f"burst must be at least 1, not {burst}")
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._filled_at: float | None = None

    def next_retry(self, key: K) -> float:  # noqa: ARG002 - one bucket for all keys
        """Reserve a token and return how long it takes until it is there."""
        now = self._clock()
        if self._filled_at is not None:
            self._tokens = min(float(self._burst), self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._rate)

    def forget(self, key: K) -> None:
        """Do nothing: a bucket knows no keys."""

    def failures(self, key: K) -> int:  # noqa: ARG002 - a bucket knows no keys
        """Return 0: a bucket knows no keys."""
        return 0


class MaxOf(Generic[K]):
    """Asks several limiters and takes the longest delay; each of them counts the failure."""

    def __init__(self, *limiters: Limiter[K]) -> None:
        if not limiters:
            raise ValueError("MaxOf needs at least one limiter")
        self._limiters = limiters

    def next_retry(self, key: K) -> float:
        """Return the longest of the delays."""
        return max([limiter.next_retry(key) for limiter in self._limiters])

    def forget(self, key: K) -> None:
        """Forget *key* everywhere."""
        for limiter in self._limiters:
            limiter.forget(key)

    def failures(self, key: K) -> int:
        """Return the highest count."""
        return max(limiter.failures(key) for limiter in self._limiters)


class MaxWait(Generic[K]):
    """Asks another limiter and cuts its delays at *longest* seconds."""

    def __init__(self, limiter: Limiter[K], longest: float) -> None:
        if not longest >= 0:
            raise ValueError(f"longest must be at least 0, not {longest}")
        self._limiter = limiter
        self._longest = longest

    def next_retry(self, key: K) -> float:
        """Return the delay of the other limiter, or *longest* if that is shorter."""
        return min(self._limiter.next_retry(key), self._longest)

    def forget(self, key: K) -> None:
        """Forget *key* in the other limiter."""
        self._limiter.forget(key)

    def failures(self, key: K) -> int:
        """Return the count of the other limiter."""
        return self._limiter.failures(key)


class FastSlow(Generic[K]):
    """Delays the first *n* retries of a key by *fast*, all further ones by *slow*."""

    def __init__(self, fast: float, slow: float, n: int) -> None:
        for value, what in ((fast, "fast"), (slow, "slow"), (n, "n")):
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"{what} must be a finite number of at least 0, not {value}")
        self._fast = fast
        self._slow = slow
        self._n = n
        self._failures: dict[K, int] = {}

    def next_retry(self, key: K) -> float:
        """Count one failure of *key* and return the delay before its next try."""
        failures = self._failures.get(key, 0) + 1
        self._failures[key] = failures
        return self._fast if failures <= self._n else self._slow

    def forget(self, key: K) -> None:
        """Reset *key* to its fast retries."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """Return the failures of *key* since it was last forgotten."""
        return self._failures.get(key, 0)
