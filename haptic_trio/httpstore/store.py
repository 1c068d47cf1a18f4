"""HTTP content store of an iteration: fetches on first use, then at intervals."""

from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import Final, NoReturn, Protocol, TypeAlias

import trio

from haptic_trio.errors import Problem
from haptic_trio.httpstore.content import Content, Failure, FetchError, Offer, Offers
from haptic_trio.httpstore.content_files import StoredContentError
from haptic_trio.httpstore.contents import Contents
from haptic_trio.httpstore.entry import ContentMemory, Entry
from haptic_trio.httpstore.events import FetchProblem, HttpContentAccepted, HttpContentRejected, HttpFetched, Report
from haptic_trio.httpstore.request import FetchPolicy, FetchRequest


class Fetch(Protocol):
    """Interface of `Fetcher`."""

    async def fetch(self, request: FetchRequest, known: Content | None) -> Content | None:
        """Return what *request* gives; None if that is still *known*. Raises `FetchError`."""
        ...


Changed: TypeAlias = Callable[[tuple[str, ...]], Awaitable[None]]
"""Receives the labels of contents that have changed for templates."""


_LATE: Final = Failure("other fetches take too long", "`http.maxConcurrent` is how many there are at a time")


_GRACE: Final = 0.5


class HttpStore(Contents):
    """Contents by fetching. Its `run` makes all fetches but the first ones."""

    def __init__(
        self, policy: FetchPolicy, fetcher: Fetch, *, report: Report, memory: ContentMemory | None = None
    ) -> None:
        """*memory* is what iterations before have accepted."""
        self._policy = policy
        self._fetcher = fetcher
        self._report = report
        self._memory = memory if memory is not None else ContentMemory()
        self._entries: dict[str, Entry] = {}
        self._limiter = trio.CapacityLimiter(policy.max_concurrent)
        self._changed: dict[str, None] = {}
        self._wake = trio.Event()

    def __len__(self) -> int:
        return len(self._entries)

    def oldest(self, now: float) -> float | None:
        """Return the age, in seconds at the clock time *now*, of what its server has confirmed longest ago.

        None where nothing is fetched again and again.
        """
        confirmed = [
            entry.confirmed
            for entry in self._entries.values()
            if entry.request.interval and entry.newest is not None and entry.confirmed > -inf
        ]
        return now - min(confirmed) if confirmed else None

    def offers(self) -> Offers:
        """See `Contents.offers`."""
        # What is announced and not sent yet is part of this.
        return _Offers({key: entry.offer for key, entry in self._entries.items()})

    async def fetch_wanted(self, wanted: Mapping[str, FetchRequest]) -> None:
        """See `Contents.fetch_wanted`; what takes longer goes on in `run`."""
        fresh: list[Entry] = []
        kept = sum(not isinstance(entry.offer, Failure) for entry in self._entries.values())
        for key, request in wanted.items():
            recalled = self._memory.recall(request)
            if recalled is not None:
                self._entries.setdefault(key, recalled)
            elif key not in self._entries:
                fresh.append(Entry(request))
        room = max(0, self._policy.max_contents - kept)
        for entry in fresh[room:]:
            reason = f"templates fetch more than {self._policy.max_contents} contents"
            self._give_up(entry, Failure(reason, "`http.maxContents` is the limit"))
        # A moment longer than each of them, so that it can say itself what has taken so long.
        with trio.move_on_after(max((entry.request.timeout for entry in fresh), default=0.0) + _GRACE):
            async with trio.open_nursery() as nursery:
                for entry in fresh[:room]:
                    nursery.start_soon(self._fetch_first, entry)
        for entry in fresh[:room]:
            if entry.request.key not in self._entries:
                await self._restore(entry)
                self._give_up(entry, _LATE)
                entry.due = trio.current_time()
        self._wake_up()

    def _give_up(self, entry: Entry, failure: Failure) -> None:
        entry.fail(failure, trio.current_time())
        self._entries[entry.request.key] = entry
        self._report_failure(entry, None)

    async def _restore(self, entry: Entry) -> None:
        """Offer what an earlier process has stored for *entry*, which has no content."""
        if self._memory.files is None:
            return
        read = self._memory.files.read
        try:
            stored = await trio.to_thread.run_sync(read, entry.request, self._policy.max_bytes)
        except StoredContentError as exc:
            entry.fallback = f"there is no content, and the stored one is ignored: {exc}"
        else:
            if stored is not None:
                entry.restore(stored, trio.current_time())

    async def _fetch_first(self, entry: Entry) -> None:
        await self._fetch(entry, is_first=True)
        self._entries[entry.request.key] = entry

    def release(self, used: frozenset[str]) -> None:
        """See `Contents.release`."""
        for key, entry in tuple(self._entries.items()):
            if key not in used:
                del self._entries[key]
                self._changed.pop(entry.request.label, None)
                if entry.failure is not None:
                    self._report(FetchProblem(entry.request.label, None))
        self._memory.forget_others(used)

    def pending(self) -> Mapping[str, Content]:
        """See `Contents.pending`."""
        return {
            key: entry.pending
            for key, entry in self._entries.items()
            if entry.pending is not None and not entry.is_withheld
        }

    def withhold(self, suspects: Mapping[str, Content]) -> None:
        """See `Contents.withhold`."""
        self._set_withheld(suspects, is_withheld=True)

    def give_back(self, suspects: Mapping[str, Content]) -> None:
        """See `Contents.give_back`."""
        self._set_withheld(suspects, is_withheld=False)

    def _set_withheld(self, suspects: Mapping[str, Content], *, is_withheld: bool) -> None:
        for key, content in suspects.items():
            entry = self._entries.get(key)
            if entry is not None and entry.pending is content:
                entry.is_withheld = is_withheld

    def accept(self, contents: Mapping[str, Content]) -> None:
        """See `Contents.accept`."""
        for key, content in contents.items():
            entry = self._entries.get(key)
            if entry is not None and entry.accept(content):
                self._memory.note(entry)
                label = entry.request.label
                self._report(HttpContentAccepted(url=label, digest=content.digest, bytes=content.size))
        self._memory.settle(self._entries.values())

    def reject(self, key: str, content: Content, problem: Problem) -> None:
        """See `Contents.reject`."""
        entry = self._entries.get(key)
        if entry is not None and entry.reject(content, problem):
            self._report(
                HttpContentRejected(
                    url=entry.request.label,
                    digest=content.digest,
                    problem=problem,
                    has_former=entry.accepted is not None,
                )
            )

    def announce(self) -> None:
        """See `Contents.announce`."""
        self._changed.update((entry.request.label, None) for entry in self._entries.values() if entry.pending)
        self._wake_up()

    async def run(self, changed: Changed) -> NoReturn:
        """Fetch at the intervals and call *changed* with the labels of changed contents, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                wake = self._wake
                if labels := tuple(self._changed):
                    self._changed.clear()
                    await changed(labels)
                now = trio.current_time()
                for entry in self._entries.values():
                    if entry.due <= now and not entry.is_busy:
                        entry.is_busy = True
                        nursery.start_soon(self._refresh, entry)
                idle = (entry.due for entry in self._entries.values() if not entry.is_busy)
                with trio.move_on_at(min(idle, default=inf)):
                    await wake.wait()
        raise AssertionError

    async def _refresh(self, entry: Entry) -> None:
        try:
            before = entry.offer
            await self._fetch(entry)
            if self._entries.get(entry.request.key) is entry:
                self._memory.note(entry)
                if entry.offer is not before and (isinstance(before, Content) or isinstance(entry.offer, Content)):
                    self._changed[entry.request.label] = None
        finally:
            entry.is_busy = False
            self._wake_up()

    def _wake_up(self) -> None:
        self._wake.set()
        self._wake = trio.Event()

    async def _fetch(self, entry: Entry, *, is_first: bool = False) -> None:
        request, failed_before = entry.request, entry.failure
        async with self._limiter:
            began = trio.current_time()
            size, outcome = 0, "unchanged"
            try:
                content = await self._fetcher.fetch(request, entry.newest)
            except FetchError as exc:
                entry.fail(Failure(exc.reason, exc.hint), trio.current_time())
                outcome = "failed"
                if is_first:
                    await self._restore(entry)
            else:
                if content is not None:
                    size = content.size
                    if entry.newest is None or content.digest != entry.newest.digest:
                        outcome = "changed"
                entry.take(content, trio.current_time())
            seconds = trio.current_time() - began
        self._report_failure(entry, failed_before)
        self._report(HttpFetched(url=request.label, outcome=outcome, seconds=seconds, bytes=size))

    def _report_failure(self, entry: Entry, before: Failure | None) -> None:
        """Report a failure of fetching once for each reason, and its end."""
        label, failure = entry.request.label, entry.failure
        if failure is before:
            return
        problem = None
        if failure is not None:
            serving = "the content before it stays" if entry.accepted else entry.fallback
            problem = Problem(message=f"{failure.reason}; {serving}", source=label, hint=failure.hint)
        self._report(FetchProblem(label, problem))


class _Offers:
    def __init__(self, offers: Mapping[str, Offer]) -> None:
        self._offers = offers

    def find(self, request: FetchRequest) -> Offer:
        return self._offers.get(request.key)
