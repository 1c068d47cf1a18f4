"""Failed fetches of single objects: reasons, and the time of the next attempt."""

from collections.abc import Callable
from typing import Final

from haptic_trio.backoff import Backoff
from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.templating.incremental.deferred import ContentUnavailableError

RETRY: Final = 1.0
"""Seconds before an object is fetched again after a failure; doubles up to `RETRY_LIMIT`."""
RETRY_LIMIT: Final = 60.0


class FetchFailedError(ContentUnavailableError):
    """An object is there, but could not be read; trying again helps when the reason is gone."""

    def __init__(self, ref: ResourceRef, reason: str, hint: str = "") -> None:
        self.ref = ref
        self.reason = reason
        super().__init__(f"{ref} could not be fetched: {reason}", hint)


class _Failure:
    __slots__ = ("backoff", "hint", "is_due", "reason", "retry_at", "version")

    def __init__(self, backoff: Backoff) -> None:
        self.backoff = backoff
        self.reason = self.hint = self.version = ""
        self.retry_at = 0.0
        self.is_due = False


class Failures:
    """The fetches that have failed, until they succeed or what was fetched is another version."""

    def __init__(self, make_backoff: Callable[[], Backoff] = lambda: Backoff(base=RETRY, limit=RETRY_LIMIT)) -> None:
        self._make_backoff = make_backoff
        self._failures: dict[ResourceRef, _Failure] = {}

    @property
    def next_retry(self) -> float | None:
        """When the next one is due; None if none will be."""
        return min((each.retry_at for each in self._failures.values() if not each.is_due), default=None)

    def find(self, ref: ResourceRef, version: str) -> FetchFailedError | None:
        """Return why *version* of *ref* is not to be had; None if it should be tried."""
        failure = self._failures.get(ref)
        if failure is None or failure.is_due or failure.version != version:
            return None
        # A new one each time: the traceback of one that is raised again and again would keep what it has passed.
        return FetchFailedError(ref, failure.reason, failure.hint)

    def note(self, version: str, error: FetchFailedError, now: float) -> None:
        """Take note that *error* is what became of *version*."""
        failure = self._failures.get(error.ref)
        if failure is None:
            failure = self._failures[error.ref] = _Failure(self._make_backoff())
        failure.reason, failure.hint, failure.version, failure.is_due = error.reason, error.hint, version, False
        failure.retry_at = now + failure.backoff.next()

    def forget(self, ref: ResourceRef) -> None:
        """Take note that *ref* has been fetched, or is gone."""
        self._failures.pop(ref, None)

    def take_due(self, now: float) -> tuple[ResourceRef, ...]:
        """Return those that are to be tried again from *now* on."""
        due = tuple(ref for ref, each in self._failures.items() if not each.is_due and each.retry_at <= now)
        for ref in due:
            self._failures[ref].is_due = True
        return due
