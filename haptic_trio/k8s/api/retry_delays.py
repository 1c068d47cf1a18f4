"""Delays of one watch: how long to wait before its next request."""

from typing import Final

from haptic_trio.backoff import Backoff
from haptic_trio.k8s.errors import ApiError, ExpiredError

MAX_RETRY_AFTER: Final = 30.0
"""Limit in seconds of what a server may ask for."""
INTERRUPTION_LIMIT: Final = 2.0
"""Limit in seconds of the delay after a watch that was accepted and then cut off: the server can be reached."""


class RetryDelays:
    """Delays in seconds from *base* to *limit*; those of separate causes grow separately.

    A server that accepts a request works, so earlier failures no longer count.
    Only repeated expiry, or watches that bring nothing, still have growing
    delays: they would otherwise be requested in a loop.
    """

    def __init__(self, *, base: float, limit: float) -> None:
        self._failures = Backoff(base=base, limit=limit)
        self._expiries = Backoff(base=base, limit=limit)
        self._fruitless = Backoff(base=base, limit=limit)
        self._is_accepted = False

    @property
    def is_repeated(self) -> bool:
        """Whether more than one attempt failed or was fruitless since the last that was not."""
        return self._failures.failures > 1 or self._fruitless.failures > 1

    def begin(self) -> None:
        """Begin an attempt."""
        self._is_accepted = False

    def accept(self) -> None:
        """The server has accepted a watch, or sent a list."""
        self._is_accepted = True
        self._failures.reset()

    def prosper(self) -> None:
        """The watch has brought something, or lasted."""
        self._failures.reset()
        self._expiries.reset()
        self._fruitless.reset()

    def recover(self) -> None:
        """The server answers again after an outage."""
        self._failures.reset()

    def after_end(self) -> float:
        """Return the delay after a watch that ended regularly, and at once."""
        return self._fruitless.next()

    def after_failure(self, error: ApiError) -> float:
        """Return the delay after *error*."""
        if isinstance(error, ExpiredError):
            # The server works, and knows that a list is needed.
            self._failures.reset()
            return self._expiries.next()
        backoff = self._fruitless if self._is_accepted else self._failures
        delay = backoff.next()
        if error.retry_after:
            return min(error.retry_after, MAX_RETRY_AFTER)
        return min(delay, INTERRUPTION_LIMIT) if self._is_accepted else delay
