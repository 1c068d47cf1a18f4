"""Failed fetches of single objects: reasons, and the time of the next attempt."""

from collections.abc import Callable
from typing import Final

import msgspec

from haptic_trio.backoff import Backoff
from haptic_trio.k8s.resource import ResourceRef

RETRY: Final = 1.0
"""Seconds before an object is fetched again after a failure; doubles up to `RETRY_LIMIT`."""
RETRY_LIMIT: Final = 60.0


class FetchFailure(msgspec.Struct, frozen=True):
    """The reason why an object could not be fetched."""

    ref: ResourceRef
    reason: str
    hint: str = ""

    @property
    def message(self) -> str:
        """The text of an error for this failure."""
        return f"{self.ref} could not be fetched: {self.reason}"


class _Failure:
    __slots__ = ("backoff", "hint", "is_due", "reason", "retry_at", "version")

    def __init__(self, backoff: Backoff) -> None:
        self.backoff = backoff
        self.reason = self.hint = self.version = ""
        self.retry_at = 0.0
        self.is_due = False


class Failures:
    """The fetches that have failed, until they succeed or the object has another version."""

    def __init__(self, make_backoff: Callable[[], Backoff] = lambda: Backoff(base=RETRY, limit=RETRY_LIMIT)) -> None:
        self._make_backoff = make_backoff
        self._failures: dict[ResourceRef, _Failure] = {}

    @property
    def next_retry(self) -> float | None:
        """When the next retry is due, by the clock of Trio; None if there is none."""
        return min((each.retry_at for each in self._failures.values() if not each.is_due), default=None)

    def find(self, ref: ResourceRef, version: str) -> FetchFailure | None:
        """Return the failure to fetch *version* of *ref*; None if it should be fetched now."""
        failure = self._failures.get(ref)
        if failure is None or failure.is_due or failure.version != version:
            return None
        return FetchFailure(ref, failure.reason, failure.hint)

    def note(self, version: str, failure: FetchFailure, now: float) -> None:
        """Record that fetching *version* failed with *failure*."""
        known = self._failures.get(failure.ref)
        if known is None:
            known = self._failures[failure.ref] = _Failure(self._make_backoff())
        known.reason, known.hint, known.version, known.is_due = failure.reason, failure.hint, version, False
        known.retry_at = now + known.backoff.next()

    def forget(self, ref: ResourceRef) -> None:
        """Drop the failure of *ref*, which has been fetched or deleted."""
        self._failures.pop(ref, None)

    def take_due(self, now: float) -> tuple[ResourceRef, ...]:
        """Return the objects whose retry is due at *now*; each of them once."""
        due = tuple(ref for ref, each in self._failures.items() if not each.is_due and each.retry_at <= now)
        for ref in due:
            self._failures[ref].is_due = True
        return due
