"""Stage 3, `watch_resources`: a reflector for each watched kind; ready when all first lists are stored."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import msgspec
import trio

from haptic_trio.channels import Change, Facts, Latest
from haptic_trio.config.model import WatchedResource
from haptic_trio.errors import Problem
from haptic_trio.k8s.client import Client, Selection
from haptic_trio.k8s.on_demand import OnDemandStore
from haptic_trio.k8s.reflector import run_reflector
from haptic_trio.k8s.resource import ResourceRef, ResourceType
from haptic_trio.k8s.store import Stores
from haptic_trio.messages import IndexSynchronized, ProblemsReported, ResourceChanged

IsRead: TypeAlias = Callable[[Iterable[str]], Awaitable[bool]]
"""Whether anything that is rendered depends on any of the stores of these names."""


def selection_of(watched: WatchedResource) -> Selection:
    """Return what to watch for *watched*."""
    return Selection(
        type=ResourceType(watched.api_version, watched.resources),
        namespaces=watched.namespaces,
        label_selector=watched.label_selector,
        field_selector=watched.field_selector,
    )


async def run_watch_resources(
    client: Client,
    watched_resources: Mapping[str, WatchedResource],
    stores: Stores,
    changes: trio.MemorySendChannel[Change],
    *,
    facts: Facts,
    unlisted: set[str] | None = None,
    is_read: IsRead | None = None,
    unread: Latest[ResourceChanged] | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Keep *stores* in step with the cluster, and send every change.

    started() means that every required kind has its first list; the index
    synchronisation is sent right after. A kind that is not required may
    come later: its list is then a change like any other. An object that could
    not be fetched is a change when that may be tried again. *unlisted* holds
    the stores whose list the start waits for.

    What has changed in stores alone for which *is_read* says no is put into
    *unread* instead: nothing that is rendered depends on it. Takes ownership
    of *changes*.
    """
    synchronized = False
    unlisted = unlisted if unlisted is not None else set()

    async def emit(sender: trio.MemorySendChannel[Change], change: ResourceChanged) -> None:
        # The index synchronisation covers the first lists before it only.
        change = _as_later_change(change) if synchronized else change
        if change.initial or change.refs:
            await _send(change, sender, is_read, unread)

    def report(source: str, problems: tuple[Problem, ...]) -> None:
        facts.tell(ProblemsReported(source=source, problems=problems))

    async def reflect(
        selection: Selection,
        names: Sequence[str],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        with changes.clone() as sender:
            await run_reflector(
                client,
                selection,
                [stores[name] for name in names],
                partial(emit, sender),
                report=report,
                task_status=task_status,
            )

    async def keep_up(store: OnDemandStore) -> None:
        with changes.clone() as sender:

            async def retry(refs: tuple[ResourceRef, ...]) -> None:
                await sender.send(ResourceChanged(stores=(store.name,), refs=refs))

            await store.run_upkeep(retry)

    with changes:
        async with trio.open_nursery() as nursery:

            async def wait_listed(selection: Selection, names: Sequence[str]) -> None:
                unlisted.update(names)
                await nursery.start(reflect, selection, names)
                unlisted.difference_update(names)

            for store in stores.values():
                if isinstance(store, OnDemandStore):
                    nursery.start_soon(keep_up, store)
            async with trio.open_nursery() as starting:
                for selection, names in _by_selection(watched_resources, stores):
                    if any(watched_resources[name].required for name in names):
                        starting.start_soon(wait_listed, selection, names)
                    else:
                        nursery.start_soon(reflect, selection, names)
            task_status.started()
            synchronized = True
            message = IndexSynchronized(counts={name: len(stores[name]) for name in watched_resources})
            facts.tell(message)
            await changes.send(message)


def _as_later_change(change: ResourceChanged) -> ResourceChanged:
    """Return *change* as one that triggers, even if it is the first list of its kind."""
    return msgspec.structs.replace(change, initial=False) if change.initial else change


async def _send(
    change: ResourceChanged,
    sender: trio.MemorySendChannel[Change],
    is_read: IsRead | None,
    unread: Latest[ResourceChanged] | None,
) -> None:
    if change.initial or is_read is None or unread is None or await is_read(change.stores):
        await sender.send(change)
    else:
        unread.put(change)


def _by_selection(
    watched_resources: Mapping[str, WatchedResource], stores: Stores
) -> list[tuple[Selection, list[str]]]:
    """Return which stores take the same objects: they differ in their indexes and share a watch.

    The first of them ignores nothing that the others do not: what it strips is stripped for all. What a store on
    demand keeps of an object is its own affair, and so is its watch.
    """
    groups: list[tuple[Selection, list[str]]] = []
    for name, watched in sorted(watched_resources.items(), key=lambda item: len(item[1].ignore_fields)):
        selection, store = selection_of(watched), stores[name]
        if isinstance(store, OnDemandStore):
            selection = msgspec.structs.replace(
                selection, reduce=store.reduce, metadata_is_enough=store.needs_only_metadata
            )
        for known, names in groups:
            ignored = watched_resources[names[0]].ignore_fields
            if known == selection and set(ignored) <= set(watched.ignore_fields):
                names.append(name)
                break
        else:
            groups.append((selection, [name]))
    return groups
