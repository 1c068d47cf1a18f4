"""Stage 3, `watch_resources`: a reflector for each watched kind; ready with the first lists of required kinds."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import msgspec
import trio

from haptic_trio.channels import Change, EventBuffer, Latest, pass_on
from haptic_trio.config.model import WatchedResource
from haptic_trio.errors import Problem
from haptic_trio.k8s.client import Client, Selection
from haptic_trio.k8s.on_demand import OnDemandStore
from haptic_trio.k8s.reflector import run_reflector
from haptic_trio.k8s.resource import ResourceRef, ResourceType
from haptic_trio.k8s.shared_watches import WatchSession
from haptic_trio.k8s.store import Stores
from haptic_trio.messages import IndexSynchronized, ProblemsReported, ResourceChanged

IsRead: TypeAlias = Callable[[Iterable[str]], Awaitable[bool]]
"""Whether the rendered output depends on any of the named stores."""


def selection_of(watched: WatchedResource) -> Selection:
    """Return the selection of objects to watch for *watched*."""
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
    events: EventBuffer,
    pending_lists: set[str] | None = None,
    is_read: IsRead | None = None,
    unread: Latest[ResourceChanged] | None = None,
    in_thread: bool = False,
    is_resumed: bool = False,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Keep *stores* in step with the cluster, and send every change, until cancelled.

    started() when every required kind has its first list; the index
    synchronisation is sent right after. The first list of an optional kind
    may arrive later, and is then a normal change. An on-demand object whose
    fetch failed is sent as a change when a retry is due. *pending_lists* always
    holds the stores whose first list the start still waits for.

    A change of stores for which *is_read* returns False goes to *unread*
    instead, since the rendered output does not depend on it. *in_thread*:
    nothing reads the stores before started(). *is_resumed*: the stores are
    filled, and *client* continues the watches; there is no index
    synchronisation then. Takes ownership of *changes*.
    """
    synchronized = is_resumed
    pending_lists = pending_lists if pending_lists is not None else set()

    async def emit(sender: trio.MemorySendChannel[Change], change: ResourceChanged) -> None:
        # The index synchronisation covers only first lists that arrived before it.
        change = _as_later_change(change) if synchronized else change
        if change.initial or change.refs:
            await _send(change, sender, is_read, unread)

    def report(source: str, problems: tuple[Problem, ...]) -> None:
        events.record(ProblemsReported(source=source, problems=problems))

    async def reflect(
        selection: Selection,
        names: Sequence[str],
        *,
        in_thread: bool = False,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        with changes.clone() as sender:
            await run_reflector(
                client,
                selection,
                [stores[name] for name in names],
                partial(emit, sender),
                report=report,
                in_thread=in_thread,
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
                pending_lists.update(names)
                await nursery.start(partial(reflect, selection, names, in_thread=in_thread))
                pending_lists.difference_update(names)

            for store in [store for store in stores.values() if isinstance(store, OnDemandStore)]:
                nursery.start_soon(keep_up, store)
            async with trio.open_nursery() as starting:
                for selection, names in _by_selection(watched_resources, stores):
                    if any(watched_resources[name].required for name in names):
                        starting.start_soon(wait_listed, selection, names)
                    else:
                        nursery.start_soon(reflect, selection, names)
            task_status.started()
            synchronized = True
            if not is_resumed:
                message = IndexSynchronized(counts={name: len(stores[name]) for name in watched_resources})
                events.record(message)
                await changes.send(message)


def go_on_after(
    session: WatchSession,
    former: WatchSession,
    watched_resources: Mapping[str, WatchedResource],
    stores: Stores,
    kinds: Collection[str],
) -> None:
    """Have the watches of *session* go on where those of *former* are now, for stores named in *kinds*.

    These have the content of the stores of *former*.
    """
    for selection, names in _by_selection(watched_resources, stores):
        if set(names) <= set(kinds):
            session.go_on_after(former, selection)


def _as_later_change(change: ResourceChanged) -> ResourceChanged:
    """Return *change* without the mark of a first list, so that it triggers a reconciliation."""
    return msgspec.structs.replace(change, initial=False) if change.initial else change


async def _send(
    change: ResourceChanged,
    sender: trio.MemorySendChannel[Change],
    is_read: IsRead | None,
    unread: Latest[ResourceChanged] | None,
) -> None:
    if change.initial or is_read is None or unread is None or await is_read(change.stores):
        await pass_on(sender, change)
    else:
        unread.put(change)


def _by_selection(
    watched_resources: Mapping[str, WatchedResource], stores: Stores
) -> list[tuple[Selection, list[str]]]:
    """Group the stores that hold the same objects with different indexes, so that they share a watch.

    A watch removes the ignored fields of the first store in its group, so every other store of the group ignores at
    least these fields. An on-demand store, which keeps only parts of objects, has its own watch.
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
    # Applied by the watch, so that it keeps no fields that no store keeps.
    return [
        (
            selection
            if selection.reduce is not None
            else msgspec.structs.replace(selection, reduce=stores[names[0]].remove_ignored),
            names,
        )
        for selection, names in groups
    ]
