"""State of one fetch: accepted, pending and rejected content."""

import random
from collections.abc import Callable
from math import inf
from typing import Final

import msgspec

from haptic_trio.backoff import Backoff
from haptic_trio.errors import Problem
from haptic_trio.httpstore.content import Content, Failure, Offer
from haptic_trio.httpstore.request import FetchRequest

RETRY: Final = 1.0
"""Seconds before a failed fetch is made again; doubles up to `RETRY_LIMIT`, or the interval."""
RETRY_LIMIT: Final = 60.0

_ON_TRIAL: Final = Failure("it is left out, to see whether the configuration is valid without it")


class Entry:
    """The decision: what do templates get, and when is the next fetch due? Times are seconds of any monotonic clock."""

    def __init__(self, request: FetchRequest, *, jitter: Callable[[], float] = random.random) -> None:
        self.request = request
        self.accepted: Content | None = None
        """Was part of a valid configuration."""
        self.pending: Content | None = None
        """Is not known to be good or bad."""
        self.is_withheld = False
        """The pending content is not given out."""
        self.newest: Content | None = None
        """The last content from the server, accepted or not: the next fetch is conditional on it."""
        self.failure: Failure | None = None
        """Why the newest fetch failed."""
        self.due = inf
        """When the next fetch is."""
        self.confirmed = -inf
        """When the server last confirmed the newest content."""
        self.is_busy = False
        """A fetch is under way."""
        self._rejected: Failure | None = None
        self._rejected_digest = ""
        self._jitter = jitter
        limit = min(RETRY_LIMIT, request.interval or RETRY_LIMIT)
        self._backoff = Backoff(base=RETRY, limit=limit, jitter=jitter)

    @property
    def offer(self) -> Offer:
        """Content or failure that templates get."""
        if self.pending is not None and not self.is_withheld:
            return self.pending
        if self.accepted is not None:
            return self.accepted
        if self.pending is not None:
            return _ON_TRIAL
        return self._rejected or self.failure

    def take(self, content: Content | None, now: float) -> None:
        """Note that the server gave *content*; None: what it gave before."""
        self.failure, self.confirmed = None, now
        self._backoff.reset()
        self.due = now + self.request.interval * (1 - 0.1 * self._jitter()) if self.request.interval else inf
        if content is None:
            return
        before, self.newest = self.newest, content
        if before is not None and before.digest == content.digest:
            return
        self.pending, self.is_withheld = None, False
        if self.accepted is not None and self.accepted.digest == content.digest:
            return
        if content.digest != self._rejected_digest:
            self.pending = content

    def fail(self, failure: Failure, now: float) -> None:
        """Note that a fetch has failed; it is due again soon."""
        if failure != self.failure:
            # Else it stays the same object: nothing has changed for templates.
            self.failure = failure
        self.due = now + self._backoff.next()

    def accept(self, content: Content) -> bool:
        """Note that a configuration with *content* is valid; False if that was known."""
        if content is not self.pending:
            return False
        self.accepted, self.pending, self.is_withheld = content, None, False
        self._rejected, self._rejected_digest = None, ""
        return True

    def reject(self, content: Content, problem: Problem) -> bool:
        """Note that *content* is to blame for *problem*: it is never offered again; False if it is gone anyway."""
        if content is not self.pending:
            return False
        self.pending, self.is_withheld = None, False
        place = ":".join(str(part) for part in (problem.source, problem.line) if part)
        self._rejected = Failure(f"its content was rejected: {problem.message}", place)
        self._rejected_digest = content.digest
        return True


class Remembered(msgspec.Struct, frozen=True):
    """State of a fetch that outlives an iteration."""

    accepted: Content
    confirmed: float
    due: float


class ContentMemory:
    """The accepted contents of a process; plain state, by key."""

    def __init__(self) -> None:
        self._known: dict[str, Remembered] = {}

    def __len__(self) -> int:
        return len(self._known)

    def copy(self) -> "ContentMemory":
        """Return a memory with the same contents."""
        copied = ContentMemory()
        copied._known = dict(self._known)
        return copied

    def note(self, entry: Entry) -> None:
        """Remember what of *entry* was accepted."""
        if entry.accepted is not None:
            self._known[entry.request.key] = Remembered(entry.accepted, entry.confirmed, entry.due)

    def forget_others(self, keys: frozenset[str]) -> None:
        """Forget all but *keys*."""
        self._known = {key: known for key, known in self._known.items() if key in keys}

    def recall(self, request: FetchRequest) -> Entry | None:
        """Return an entry with what was accepted for *request*; None if nothing was."""
        known = self._known.get(request.key)
        if known is None:
            return None
        entry = Entry(request)
        entry.accepted = entry.newest = known.accepted
        entry.confirmed, entry.due = known.confirmed, known.due
        return entry
