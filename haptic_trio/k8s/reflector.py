"""Reflector: follows a watch and keeps stores equal to it."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec
import trio

from haptic_trio.errors import Problem
from haptic_trio.k8s.client import Client, Deleted, Listed, Report, Selection, Upserted, WatchEvent
from haptic_trio.k8s.resource import Resource, ResourceRef, ref_of
from haptic_trio.k8s.store import Store
from haptic_trio.k8s.watch_feed import Drainable, Resumable

SLICE: Final = 200
"""Objects that are taken in before other tasks run: a few milliseconds."""


class IndexSynchronized(msgspec.Struct, frozen=True, kw_only=True):
    """The first list of every watched kind is in its store."""

    counts: dict[str, int]


class ResourceChanged(msgspec.Struct, frozen=True, kw_only=True):
    """Objects of one watched kind changed, and the stores contain the change."""

    stores: tuple[str, ...]
    """Stores in which something changed: a store that ignores some fields may find an object unchanged."""
    refs: tuple[ResourceRef, ...]
    initial: bool = False
    """The first list, which may be empty and triggers nothing by itself."""


async def run_reflector(
    client: Client,
    selection: Selection,
    stores: Sequence[Store],
    emit: Callable[[ResourceChanged], Awaitable[None]],
    *,
    report: Report,
    in_thread: bool = False,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Keep each of *stores* as *selection* is, and *emit* each real change; ends with the watch.

    Stores of one reflector differ in their indexes alone: they share one
    watch and their objects. started() means that the first list is in all
    of them; it is emitted right after that, so that a slow reader does not
    hold up the start. Events that have arrived together are emitted as one
    change. Is the stores' only writer. While *emit* waits the watch is not
    read. Objects without a name are skipped and reported to *report*. Other
    tasks run while a long list is taken in: its objects reach the stores one
    after another, each in all of them at once, and objects that are gone leave
    them at the end.

    *in_thread*: nothing reads the stores before started(), so a worker thread
    puts the first list into them. A watch that is resumed has no first list.
    """
    reflection = _Reflection(f"watch of {selection.type}", stores, report)
    names = tuple(store.name for store in stores)
    async with client.watch(selection) as events:
        initial = not (isinstance(events, Resumable) and events.is_resumed)
        if not initial:
            task_status.started()
        async for event in events:
            if initial and in_thread:
                refs = await trio.to_thread.run_sync(reflection.take, [event])
            else:
                refs = await reflection.take_gradually([event])
            changed = reflection.take_changed()
            if initial:
                initial = False
                task_status.started()
                await emit(ResourceChanged(stores=names, refs=refs, initial=True))
                continue
            if isinstance(events, Drainable):
                refs = _together(refs, await reflection.take_gradually(events.drain()))
                changed |= reflection.take_changed()
            if refs:
                await emit(ResourceChanged(stores=tuple(name for name in names if name in changed), refs=refs))


class _Reflection:
    """Decisions of a reflector about events, without I/O."""

    def __init__(self, source: str, stores: Sequence[Store], report: Report) -> None:
        self._source = source
        self._stores = stores
        # Most stores of a watch ignore the same fields, so they share the object without them.
        self._removes_more = [store.remove_ignored != stores[0].remove_ignored for store in stores]
        self._report = report
        self._has_nameless = False
        self._changed: set[str] = set()

    def take_changed(self) -> set[str]:
        """Return the names of the stores that have changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def take(self, events: Iterable[WatchEvent]) -> tuple[ResourceRef, ...]:
        """Bring the stores up to date; return what has changed in them."""
        refs: dict[ResourceRef, None] = {}
        for _ in self._steps(events, refs):
            pass
        return tuple(refs)

    async def take_gradually(self, events: Iterable[WatchEvent]) -> tuple[ResourceRef, ...]:
        """Do the same in small steps, between which other tasks run; a checkpoint only if there are several."""
        refs: dict[ResourceRef, None] = {}
        for _ in self._steps(events, refs):
            await trio.lowlevel.checkpoint()
        return tuple(refs)

    def _steps(self, events: Iterable[WatchEvent], refs: dict[ResourceRef, None]) -> Iterator[None]:
        """Bring the stores up to date, and add what has changed to *refs*; yields where other tasks may run."""
        for number, event in enumerate(events, 1):
            match event:
                case Listed(objects):
                    yield from self._replace(objects, refs)
                case Upserted(resource) if not _has_name(resource):
                    self._has_nameless = True
                    self._report(self._source, (_nameless(self._source, 1),))
                case Upserted(resource):
                    self._upsert(ref_of(resource), resource, refs)
                case Deleted(resource):
                    self._delete(ref_of(resource), self._stores, refs)
            if number % SLICE == 0:
                yield

    def _upsert(self, ref: ResourceRef, resource: Resource, refs: dict[ResourceRef, None]) -> None:
        kept = self._stores[0].without_ignored(resource)
        if changed := {
            store.name
            for store, removes_more in zip(self._stores, self._removes_more, strict=True)
            if store.put(ref, store.without_ignored(kept) if removes_more else kept)
        }:
            self._changed |= changed
            refs[ref] = None

    def _delete(self, ref: ResourceRef, stores: Iterable[Store], refs: dict[ResourceRef, None]) -> None:
        if changed := {store.name for store in stores if store.delete(ref)}:
            self._changed |= changed
            refs[ref] = None

    def _replace(self, objects: Sequence[Resource], refs: dict[ResourceRef, None]) -> Iterator[None]:
        # Of several objects with one reference the last one counts.
        found = [(ref_of(resource), resource) for resource in objects]
        named = {ref: resource for ref, resource in found if ref.name}
        nameless = sum(not ref.name for ref, _ in found)
        if self._has_nameless != bool(nameless):
            self._has_nameless = not self._has_nameless
            self._report(self._source, (_nameless(self._source, nameless),) if self._has_nameless else ())
        for number, ref in enumerate(sorted(named, key=_order), 1):
            self._upsert(ref, named[ref], refs)
            if number % SLICE == 0:
                yield
        gone: dict[ResourceRef, None] = {}
        for store in self._stores:
            yield
            gone |= dict.fromkeys(store.present() - named.keys())
        for number, ref in enumerate(sorted(gone, key=_order), 1):
            self._delete(ref, self._stores, refs)
            if number % SLICE == 0:
                yield


def _together(first: tuple[ResourceRef, ...], second: tuple[ResourceRef, ...]) -> tuple[ResourceRef, ...]:
    return tuple(dict.fromkeys(first + second)) if second else first


def _order(ref: ResourceRef) -> tuple[str, str, str]:
    return ref.namespace, ref.name, ref.kind


def _has_name(resource: Resource) -> bool:
    return bool(ref_of(resource).name)


def _nameless(source: str, count: int) -> Problem:
    return Problem(
        message=f"{count} object{'s' if count > 1 else ''} without metadata.name left out",
        source=source,
        hint="the server's answer is incomplete; is there a proxy in between?",
    )
