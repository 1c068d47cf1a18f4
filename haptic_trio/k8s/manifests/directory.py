"""Cluster client for a directory of manifests.

One task follows the directory: kernel events name what may have changed, a
worker thread reads it, the catalog decides what that means, and every
watcher gets the changes it has selected. Kernel events can be lost (a full
queue, a directory filled while it is new), so a slow audit compares the
times of all files; it reads only those that differ.
"""

import math
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import trio

from haptic_trio.errors import Problem
from haptic_trio.k8s.client import Listing, NotFoundError, Report, Selection, WatchEvent
from haptic_trio.k8s.manifests.catalog import Catalog, FileContent, Outcome
from haptic_trio.k8s.manifests.files import (
    Known,
    Reading,
    RootMissingError,
    Scan,
    read_files,
    scan_all,
    scan_paths,
    shown_path,
)
from haptic_trio.k8s.manifests.objects import Check
from haptic_trio.k8s.manifests.subscription import Matcher, Subscription
from haptic_trio.k8s.manifests.tree import DirectoryError, TreeChange, find_unwatched, watch_tree
from haptic_trio.k8s.resource import Place, Places, Resource, ResourceRef, ResourceType

T = TypeVar("T")

GRACE: Final = 0.1
"""Seconds that an object outlives its disappearance."""
AUDIT_INTERVAL: Final = 30.0
BUFFER: Final = 1000
"""Events that a watcher may fall behind before it gets a new list instead."""

WATCH_LIMIT: Final = "fs.inotify.max_user_watches"
"""Source of the problem that the kernel does not watch all directories."""
LEAST_WATCHES: Final = 524_288
"""Limit of watches that is recommended at least; the kernel's default on machines with much memory."""

# Small, so that the event loop gets its turn between files.
_BATCH_FILES: Final = 32


class DirectoryCluster:
    """A `Client` over all `*.yaml`, `*.yml` and `*.json` files below a directory.

    Names that begin with a dot are ignored, and links to directories are
    not followed. Problems of files go to *report*, and its
    last good objects stay. So does what *check*, which worker threads call,
    finds in objects that are used all the same. Watches wait until `run` has made its first scan.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        report: Report,
        check: Check | None = None,
        grace: float = GRACE,
        audit_interval: float = AUDIT_INTERVAL,
        buffer: int = BUFFER,
    ) -> None:
        self._root = Path(path).absolute()
        self._report = report
        self._check = check
        self._grace = grace
        self._audit_interval = audit_interval
        self._buffer = buffer
        self._catalog = Catalog(grace)
        self._known: dict[str, Known] = {}
        self._rejected: set[str] = set()
        self._rechecks: dict[str, float] = {}
        self._unwatched: frozenset[str] = frozenset()
        """Directories without a watch, as of the last audit; a new one gets its watch a moment later."""
        self._reported_watches: tuple[Problem, ...] = ()
        self._subscriptions: set[Subscription] = set()
        self._scanned = trio.Event()
        self._ended = False
        self._read_bytes = self._bytes_to_read = 0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the directory until cancelled; to be called once.

        started() means that the first scan is complete. Ends all watches
        when it ends. Raises `DirectoryError` if the directory cannot be
        listed or watched at the start; one that vanishes later is reported
        and everything in it kept until it is there again.
        """
        self._check_root()
        changes_in, changes_out = trio.open_memory_channel[TreeChange](0)
        try:
            async with trio.open_nursery() as nursery:
                # Before the scan, so that nothing falls between the two.
                nursery.start_soon(watch_tree, self._root, changes_in)
                await self._scan(None)
                self._scanned.set()
                task_status.started()
                await self._follow(changes_out)
        finally:
            self._ended = True
            self._scanned.set()
            for subscription in self._subscriptions:
                subscription.close()

    @asynccontextmanager
    async def watch(self, selection: Selection) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """See `Client.watch`. Raises `SelectorError`."""
        matcher = Matcher(selection)
        await self._scanned.wait()
        subscription = Subscription(matcher, lambda: self._catalog.select(selection.type), buffer=self._buffer)
        if self._ended:
            subscription.close()
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)

    async def get(self, resource_type: ResourceType, namespace: str, name: str) -> Resource:
        """See `Client.get`; raises `NotFoundError`."""
        await self._scanned.wait()
        resource = self._catalog.find(resource_type, namespace, name)
        if resource is None:
            raise NotFoundError(ResourceRef(resource_type.plural, namespace, name))
        return resource

    def place_of(self, ref: ResourceRef) -> Place | None:
        """Return the place of the manifest of *ref*, with an absolute path; None if there is none."""
        found = self._catalog.place_of(ref)
        return Place(*found) if found is not None else None

    def places(self) -> Places:
        """Return `place_of` for the objects of now, without the memory that the catalog takes to follow changes."""
        found = self._catalog.places()

        def place_of(ref: ResourceRef) -> Place | None:
            place = found.get((ref.kind, ref.namespace, ref.name))
            return Place(*place) if place is not None else None

        return place_of

    @property
    def listing(self) -> Listing:
        """See `Client.listing`: the bytes of the present or last scan. May be asked from any thread."""
        return Listing(min(self._read_bytes, self._bytes_to_read), self._bytes_to_read)

    def objects(self) -> tuple[Resource, ...]:
        """Return all objects of the newest scan, of any kind."""
        return tuple(self._catalog.all())

    def _check_root(self) -> None:
        try:
            if not self._root.is_dir():
                what = "is not a directory" if self._root.exists() else "does not exist"
                raise DirectoryError(self._root, what, "name a directory that holds manifests")
            next(self._root.iterdir(), None)
        except OSError as error:
            hint = "give the user of this process the right to list it"
            raise DirectoryError(self._root, f"cannot be listed: {error.strerror}", hint) from error

    async def _follow(self, changes: trio.MemoryReceiveChannel[TreeChange]) -> None:
        audit_at = trio.current_time() + self._audit_interval
        with changes:
            while True:
                change: TreeChange = frozenset()
                with trio.move_on_at(min(audit_at, self._next_deadline())):
                    change = await changes.receive()
                now = trio.current_time()
                if now >= audit_at:
                    change, audit_at = None, now + self._audit_interval
                await self._scan(change)

    def _next_deadline(self) -> float:
        expiry = self._catalog.next_expiry
        return min([*self._rechecks.values(), *([] if expiry is None else [expiry])], default=math.inf)

    async def _scan(self, change: TreeChange) -> None:
        """Bring the catalog up to date with the files that *change* names, and with the time."""
        now = trio.current_time()
        due = frozenset(path for path, at in self._rechecks.items() if at <= now)
        for path in due:
            del self._rechecks[path]
        root = str(self._root)
        try:
            if change is None:
                scan = await _in_thread(partial(scan_all, root, self._known))
                await self._read(scan)
                await self._report_unwatched(scan.listed)
            elif change or due:
                scan = await _in_thread(partial(scan_paths, root, change | due, self._known))
                self._rechecks |= dict.fromkeys(set(scan.directories) - due, trio.current_time() + self._grace)
                await self._read(scan)
        except RootMissingError as error:
            self._rejected.add(root)
            self._publish([FileContent(path=root, problems=(error.problem,))], [])
        else:
            self._publish([], [])

    async def _read(self, scan: Scan) -> None:
        self._note_directories(scan)
        done, self._read_bytes, self._bytes_to_read = 0, 0, sum(scan.sizes.values())
        for start in range(0, len(scan.read), _BATCH_FILES):
            paths = scan.read[start : start + _BATCH_FILES]
            read = partial(read_files, str(self._root), paths, self._known, self._note_read, self._check)
            self._take(await _in_thread(read))
            # Files whose text was not read again, since it is known, have not been counted.
            done += sum(scan.sizes.get(path, 0) for path in paths)
            self._read_bytes = done
        self._take([Reading(path, None, None) for path in scan.gone])

    def _note_read(self, size: int) -> None:
        """Count bytes that the worker thread has read; only one reads at a time."""
        self._read_bytes += size

    async def _report_unwatched(self, directories: Sequence[str]) -> None:
        """Report the directories that had no kernel watch at the last two audits."""
        found = frozenset(await _in_thread(partial(find_unwatched, directories)))
        lasting, self._unwatched = found & self._unwatched, found
        problems: tuple[Problem, ...] = ()
        if lasting:
            one = shown_path(min(lasting))
            problems = (
                Problem(
                    message=f"the kernel watches {len(directories) - len(lasting)} of {len(directories)} directories"
                    f" below {self._root}; changes in the others, such as {one}, are noticed within"
                    f" {self._audit_interval:g} s",
                    source=WATCH_LIMIT,
                    hint=f"raise the limit: sysctl {WATCH_LIMIT}={max(LEAST_WATCHES, 4 * len(directories))}",
                ),
            )
        if problems != self._reported_watches:
            self._reported_watches = problems
            self._report(WATCH_LIMIT, problems)

    def _note_directories(self, scan: Scan) -> None:
        rejected = {content.path for content in scan.rejected}
        solved = self._rejected & {shown_path(path) for path in (*scan.listed, *scan.missing)}
        self._rejected = (self._rejected - solved) | rejected
        if rejected or solved:
            self._publish([*scan.rejected, *(FileContent(path=path) for path in solved)], [])

    def _take(self, readings: Iterable[Reading]) -> None:
        contents: list[FileContent] = []
        gone: list[str] = []
        for reading in readings:
            if reading.known is None:
                self._known.pop(reading.path, None)
                gone.append(shown_path(reading.path))
                continue
            self._known[reading.path] = reading.known
            if reading.content is not None:
                contents.append(reading.content)
        self._publish(contents, gone)

    def _publish(self, contents: Iterable[FileContent], gone: Iterable[str]) -> None:
        outcome: Outcome = self._catalog.update(contents, gone, trio.current_time())
        for change in outcome.changes:
            for subscription in self._subscriptions:
                subscription.offer(change)
        for source, problems in outcome.reports:
            self._report(source, problems)


async def _in_thread(function: Callable[[], T]) -> T:
    # It only reads, so a cancelled scan need not wait for the end of a large file.
    return await trio.to_thread.run_sync(function, abandon_on_cancel=True)
