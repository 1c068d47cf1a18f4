"""Reflector: follows a watch and keeps stores equal to it."""

from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec
import trio

from haptic_trio.errors import Problem
from haptic_trio.k8s.client import Client, Deleted, Listed, Report, Selection, Upserted, WatchEvent
from haptic_trio.k8s.resource import Resource, ResourceRef, ref_of
from haptic_trio.k8s.store import Store
from haptic_trio.k8s.watch_feed import Drainable, Resumable


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
    read. Objects without a name are skipped and reported to *report*.

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
                refs = reflection.take([event])
            changed = reflection.take_changed()
            if initial:
                initial = False
                task_status.started()
                await emit(ResourceChanged(stores=names, refs=refs, initial=True))
                continue
            if isinstance(events, Drainable):
                refs = _together(refs, reflection.take(events.drain()))
                changed |= reflection.take_changed()
            if refs:
                await emit(ResourceChanged(stores=tuple(name for name in names if name in changed), refs=refs))


class _Reflection:
    """Decisions of a reflector about events, without I/O."""

    def __init__(self, source: str, stores: Sequence[Store], report: Report) -> None:
        self._source = source
        self._stores = stores
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
        for event in events:
            match event:
                case Listed(objects):
                    refs |= dict.fromkeys(self._replace(objects))
                case Upserted(resource) if not _has_name(resource):
                    self._has_nameless = True
                    self._report(self._source, (_nameless(self._source, 1),))
                case Upserted(resource):
                    kept = self._stores[0].without_ignored(resource)
                    if changed := {store.name for store in self._stores if store.upsert(kept)}:
                        self._changed |= changed
                        refs[ref_of(resource)] = None
                case Deleted(resource):
                    if changed := {store.name for store in self._stores if store.delete(ref_of(resource))}:
                        self._changed |= changed
                        refs[ref_of(resource)] = None
        return tuple(refs)

    def _replace(self, objects: Sequence[Resource]) -> tuple[ResourceRef, ...]:
        named = [self._stores[0].without_ignored(resource) for resource in objects if _has_name(resource)]
        if self._has_nameless != (len(named) < len(objects)):
            self._has_nameless = not self._has_nameless
            problem = _nameless(self._source, len(objects) - len(named))
            self._report(self._source, (problem,) if self._has_nameless else ())
        changes = {store.name: store.replace(named) for store in self._stores}
        self._changed |= {name for name, change in changes.items() if change}
        return tuple(dict.fromkeys(ref for change in changes.values() for ref in change.refs))


def _together(first: tuple[ResourceRef, ...], second: tuple[ResourceRef, ...]) -> tuple[ResourceRef, ...]:
    return tuple(dict.fromkeys(first + second)) if second else first


def _has_name(resource: Resource) -> bool:
    return bool(ref_of(resource).name)


def _nameless(source: str, count: int) -> Problem:
    return Problem(
        message=f"{count} object{'s' if count > 1 else ''} without metadata.name left out",
        source=source,
        hint="the server's answer is incomplete; is there a proxy in between?",
    )
