"""Further limiters: a token bucket, two fixed delays, and combinations. The ones that need the time take a clock."""

import math
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import trio

from haptic_trio.workqueue.limiter import Limiter

K = TypeVar("K", bound=Hashable)


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
