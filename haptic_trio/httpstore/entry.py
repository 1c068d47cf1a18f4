"""State of one fetch: accepted, pending and rejected content; and what of all fetches outlives an iteration."""

import random
from collections.abc import Callable, Iterable
from math import inf
from typing import Final

import msgspec
import trio

from haptic_trio.backoff import Backoff
from haptic_trio.errors import Problem
from haptic_trio.httpstore.content import Content, Failure, Offer
from haptic_trio.httpstore.content_files import ContentFiles, Kept, Stored
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
        self.fallback = "there is no content"
        """Substitute for the content while nothing was accepted and fetches fail, as text for problems."""
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

    def restore(self, stored: Stored, now: float) -> None:
        """Offer *stored*, an accepted content of an earlier process; the next fetch is conditional on it."""
        self.newest = self.pending = stored.content
        self.confirmed = now - stored.age
        self.fallback = f"the content that was stored before the restart is used: it is {_readable(stored.age)} old"

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

    request: FetchRequest
    accepted: Content
    confirmed: float
    due: float


class ContentMemory:
    """The accepted contents of a process, by key, and the files that keep them for the next process."""

    def __init__(self, files: ContentFiles | None = None) -> None:
        """Without *files*, the contents end with the process."""
        self.files = files
        self.changed = trio.Event()
        """Set at the next change; then another one takes its place."""
        self._known: dict[str, Remembered] = {}
        self._used: tuple[FetchRequest, ...] | None = None

    def __len__(self) -> int:
        return len(self._known)

    def copy(self) -> "ContentMemory":
        """Return a memory with the same contents."""
        copied = ContentMemory(self.files)
        copied._known = dict(self._known)
        return copied

    def kept(self, now: float) -> tuple[Kept, ...]:
        """Return the contents as they shall be on disk; *now* is the time of the clock of entries."""
        return tuple(Kept(known.request, known.accepted, now - known.confirmed) for known in self._known.values())

    @property
    def used(self) -> tuple[FetchRequest, ...] | None:
        """The requests of the newest valid configuration; None while it is not known that there are no others."""
        return self._used

    def settle(self, entries: Iterable[Entry]) -> None:
        """Note that a valid configuration uses *entries*; those without any content may lead to further ones."""
        entries = tuple(entries)
        is_complete = all(isinstance(entry.offer, Content) for entry in entries)
        used = tuple(entry.request for entry in entries) if is_complete else None
        if used != self._used:
            self._used = used
            self._set_changed()

    def _set_changed(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    def note(self, entry: Entry) -> None:
        """Remember what of *entry* was accepted."""
        if entry.accepted is not None:
            self._known[entry.request.key] = Remembered(entry.request, entry.accepted, entry.confirmed, entry.due)
            self._set_changed()

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


def _readable(seconds: float) -> str:
    """Return *seconds* as text in the two largest units, such as `3d 4h`."""
    rest, parts = round(seconds), list[str]()
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2]) or "0s"
