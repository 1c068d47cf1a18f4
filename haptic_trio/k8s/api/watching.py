"""Watch of one kind in one namespace: lists, then follows from there.

The version of the newest event is kept, so that a watch which ends (they all
do, after some minutes) goes on where it was. When the server no longer knows
that version, a new list replaces everything: what was deleted meanwhile is
not in it. Until a list is complete nothing of it is handed on.
"""

import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, TypeAlias

import msgspec
import trio

from haptic_trio.backoff import Backoff
from haptic_trio.errors import Problem
from haptic_trio.k8s.api.connection import Connection
from haptic_trio.k8s.api.decode import RawEvent, completed, ends_initial_events
from haptic_trio.k8s.api.discovery import Discovery, ServedKind
from haptic_trio.k8s.api.listing import Query, list_objects
from haptic_trio.k8s.api.retry_delays import RetryDelays
from haptic_trio.k8s.api.watch_counts import WatchCounts
from haptic_trio.k8s.api.watch_stream import open_watch
from haptic_trio.k8s.client import Deleted, Listed, Selection, Upserted, WatchEvent
from haptic_trio.k8s.errors import (
    AbsentKindError,
    ApiError,
    ExpiredError,
    ForbiddenError,
    InvalidError,
    MissingError,
    ServerFailedError,
    UnauthorizedError,
    UnreachableError,
    error_of,
)
from haptic_trio.k8s.resource import Resource, ResourceRef, ref_of, version_of

Publish: TypeAlias = Callable[[Sequence[WatchEvent]], Awaitable[None]]
ReportProblems: TypeAlias = Callable[[tuple[Problem, ...]], None]
_Gathered: TypeAlias = dict[ResourceRef, Resource]

# A watch that lived this long, in seconds, was no failure.
_HEALTHY: Final = 5.0


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Intervals and limits of a watch, in seconds."""

    duration: tuple[int, int] = (300, 600)
    """A watch is asked to end after a time in between, random for each watch: not all end at once."""
    silence: float = 90.0
    """A watch without data, bookmarks neither, is opened again; servers send a bookmark each minute."""
    initial_silence: float = 3.0
    """A streamed list that stalls for this long is given up, for plain lists: an old server does not know how to end
    it, and one over an old etcd does so late."""
    retry: float = 0.2
    """Before the second attempt; the delay doubles up to *retry_limit*."""
    retry_limit: float = 15.0
    recheck: float = 1.0
    """Before an absent kind is looked for again; doubles up to *recheck_limit*."""
    recheck_limit: float = 30.0
    absence_grace: float = 10.0
    """A kind that was there must be absent for this long before its objects count as gone: a server that
    starts may not yet know all of its kinds."""


class Streaming:
    """Whether the server can stream lists, as far as is known; shared by all watches of a cluster."""

    def __init__(self, *, is_possible: bool = True) -> None:
        self.is_possible = is_possible


class KindWatch:
    """Keeps a reader up to date about one kind in one namespace (or, if that is empty, in all)."""

    def __init__(
        self,
        connection: Connection,
        discovery: Discovery,
        streaming: Streaming,
        selection: Selection,
        namespace: str,
        *,
        publish: Publish,
        report: ReportProblems,
        pace: Pace,
        counts: WatchCounts,
    ) -> None:
        """Raises `SelectorError`. *report* receives the current problems each time that they change."""
        self._connection = connection
        self._discovery = discovery
        self._streaming = streaming
        self._type = selection.type
        self._query = Query(selection)
        self._namespace = namespace
        self._publish = publish
        self._report = report
        self._pace = pace
        self._counts = counts
        self._delays = RetryDelays(base=pace.retry, limit=pace.retry_limit)
        self._rechecks = Backoff(base=pace.recheck, limit=pace.recheck_limit)
        self._version: str | None = None
        self._synced = False
        self._absent_since: float | None = None
        self._reported: tuple[Problem, ...] = ()

    async def run(self) -> None:
        """Follow the kind until cancelled; errors are reported and the watch is retried."""
        while True:
            began = trio.current_time()
            self._delays.begin()
            may_wake = True
            try:
                served = await self._discovery.find(self._type)
                if self._namespace and not served.is_namespaced:
                    delay = await self._note_absence(_not_namespaced(served))
                else:
                    has_news = await self._follow(served)
                    is_healthy = has_news or trio.current_time() - began >= _HEALTHY
                    delay = 0.0 if is_healthy else self._delays.after_end()
            except AbsentKindError as error:
                delay = await self._note_absence(Problem(message=str(error), hint=error.hint))
            except ApiError as error:
                if trio.current_time() - began >= _HEALTHY:
                    self._delays.prosper()
                delay = self._note_failure(error)
                # What the server asked for holds although it answers others.
                may_wake = not error.retry_after
            if not may_wake:
                await trio.sleep(delay)
            elif await self._connection.outage.sleep(delay):
                self._delays.recover()

    async def _follow(self, served: ServedKind) -> bool:
        """List if that is needed, then watch until the watch ends; return whether it brought anything."""
        if self._version is None and self._streaming.is_possible:
            try:
                return await self._watch(served)
            except (InvalidError, ForbiddenError, ServerFailedError):
                if self._version is not None:
                    raise
                # Without the feature the server rejects the parameters, over an etcd that lacks what it needs it
                # fails, and a role may allow lists and no watches. If it is something else, the list will show it.
                await self._list(served)
                self._streaming.is_possible = False
        if self._version is None:
            await self._list(served)
        return await self._watch(served)

    async def _list(self, served: ServedKind) -> None:
        objects, version = await list_objects(self._connection, served, self._namespace, self._query, self._note_listed)
        await self._note_list(objects, version)

    async def _watch(self, served: ServedKind) -> bool:
        """Watch from the version that is known, or stream a list if none is."""
        gathered: _Gathered | None = {} if self._version is None else None
        has_news = False
        async with open_watch(
            self._connection,
            served,
            self._namespace,
            self._query.params,
            version=self._version,
            duration=random.randint(*self._pace.duration),  # noqa: S311  spreads load, hides nothing
            silence=self._pace.silence,
            accept=self._query.accepted(in_lists=False),
        ) as batches:
            self._counts.connections[str(self._type)] += 1
            self._delays.accept()
            if gathered is None:
                self._note_success()
            while (batch := await self._next_batch(batches, is_listing=gathered is not None)) is not None:
                before = self._version
                gathered = await self._take(batch, served, gathered)
                # A server that sends the same again at each request would be asked in a loop.
                if gathered is None and self._version != before:
                    has_news = True
                    self._delays.prosper()
        if gathered is not None:
            raise UnreachableError(f"list {served.type}", "the stream ended before the list was complete")
        return has_news

    async def _next_batch(self, batches: AsyncIterator[list[RawEvent]], *, is_listing: bool) -> list[RawEvent] | None:
        limit = self._pace.initial_silence if is_listing else math.inf
        with trio.move_on_after(limit) as waiting, self._connection.outage.end_if_hanging() as hang:
            return await anext(batches, None)
        if hang.cancelled_caught:
            error = UnreachableError(f"watch {self._type}", "the server answers no request and sends no data")
            # Probes have failed for a while, so this is not a short interruption.
            self._report_problems((Problem(message=str(error), source=self._connection.where, hint=error.hint),))
            raise error
        assert waiting.cancelled_caught
        self._streaming.is_possible = False
        return None

    async def _take(
        self, batch: Sequence[RawEvent], served: ServedKind, gathered: _Gathered | None
    ) -> _Gathered | None:
        """Hand on what *batch* says; return what is gathered of a list that is not complete yet."""
        events: list[WatchEvent] = []
        version = self._version
        if gathered is not None:
            self._note_listed(len(batch))
        failure: ApiError | None = None
        for event in batch:
            if event.type == "ERROR":
                failure = error_of(f"watch {served.type}", 0, msgspec.json.encode(event.object))
                break
            version = version_of(event.object) or version
            if event.type == "BOOKMARK":
                if gathered is not None and ends_initial_events(event.object):
                    await self._note_list(tuple(gathered.values()), version or "")
                    gathered = None
                continue
            resource = completed(event.object, served)
            is_wanted = event.type != "DELETED" and self._query.matches(resource)
            kept = self._query.reduced(resource)
            if gathered is None:
                events.append(Upserted(kept) if is_wanted else Deleted(kept))
            elif is_wanted:
                gathered[ref_of(kept)] = kept
            else:
                # Changes before the end of the list are part of it.
                gathered.pop(ref_of(kept), None)
        if gathered is None:
            self._version = version
            if events:
                await self._publish(events)
        if failure is not None:
            raise failure
        return gathered

    async def _note_list(self, objects: tuple[Resource, ...], version: str) -> None:
        self._counts.lists[str(self._type)] += 1
        self._version = version
        self._synced = True
        self._absent_since = None
        self._rechecks.reset()
        self._delays.accept()
        self._note_success()
        await self._publish([Listed(objects)])

    def _note_listed(self, count: int) -> None:
        self._counts.listed += count

    def _note_success(self) -> None:
        self._report_problems(())

    def _note_failure(self, error: ApiError) -> float:
        """Return the seconds until the next attempt."""
        self._counts.failures[str(self._type), type(error).__name__.removesuffix("Error")] += 1
        delay = self._delays.after_failure(error)
        if isinstance(error, ExpiredError):
            self._version = None
            return delay
        if isinstance(error, MissingError):
            self._discovery.forget(self._type.api_version)
        # A single failure is an interruption, which is not reported.
        if self._delays.is_repeated or isinstance(error, ForbiddenError | InvalidError | UnauthorizedError):
            self._report_problems((Problem(message=str(error), source=self._connection.where, hint=error.hint),))
        return delay

    async def _note_absence(self, problem: Problem) -> float:
        """Let the kind count as empty, after the grace if it was served before; return the seconds until a retry."""
        now = trio.current_time()
        is_new = self._absent_since is None
        if self._absent_since is None:
            self._absent_since = now
        self._version = None
        self._report_problems((problem,))
        remaining = self._absent_since + self._pace.absence_grace - now if self._synced else 0.0
        if remaining > 0:
            return min(remaining, self._rechecks.next())
        if is_new or self._synced:
            self._synced = False
            await self._publish([Listed(())])
        return self._rechecks.next()

    def _report_problems(self, problems: tuple[Problem, ...]) -> None:
        if problems != self._reported:
            self._reported = problems
            self._report(problems)


def _not_namespaced(served: ServedKind) -> Problem:
    return Problem(
        message=f"{served.type} is in no namespace, and namespaces are named",
        hint="remove `namespaces` of this watched resource; until then it counts as empty",
    )
