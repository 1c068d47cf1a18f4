"""The reflector: follows a watch and keeps stores like it."""

from collections.abc import Awaitable, Callable, Sequence

import msgspec
import trio

from haptic_trio.errors import Problem
from haptic_trio.k8s.client import Client, Deleted, Listed, Report, Selection, Upserted
from haptic_trio.k8s.resource import Resource, ResourceRef, ref_of
from haptic_trio.k8s.store import Store


class StoreChange(msgspec.Struct, frozen=True):
    """What changed; the stores have it already."""

    stores: tuple[str, ...]
    refs: tuple[ResourceRef, ...]
    initial: bool = False
    """The first list: everything that was there; may be nothing."""


async def run_reflector(
    client: Client,
    selection: Selection,
    stores: Sequence[Store],
    emit: Callable[[StoreChange], Awaitable[None]],
    *,
    report: Report,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Keep each of *stores* as *selection* is, and *emit* each real change; ends with the watch.

    Stores of one reflector differ in their indexes alone: they share one
    watch and their objects. started() means that the first list is in all
    of them; it is emitted right after that, so that a slow reader does not
    hold up the start. Is the stores' only writer. While *emit* waits the watch is not read. Objects
    without a name are left out and told to *report*.
    """
    source = f"watch of {selection.type}"
    names = tuple(store.name for store in stores)
    nameless = False
    async with client.watch(selection) as events:
        initial = True
        async for event in events:
            refs: tuple[ResourceRef, ...] = ()
            match event:
                case Listed(objects):
                    named = [stores[0].without_ignored(resource) for resource in objects if _has_name(resource)]
                    if nameless != (len(named) < len(objects)):
                        nameless = not nameless
                        report(source, (_nameless(source, len(objects) - len(named)),) if nameless else ())
                    changes = [store.replace(named) for store in stores]
                    refs = changes[0].refs
                case Upserted(resource) if _has_name(resource):
                    kept = stores[0].without_ignored(resource)
                    if any([store.upsert(kept) for store in stores]):  # noqa: C419  each of them, not until one has changed
                        refs = (ref_of(resource),)
                case Deleted(resource):
                    if any([store.delete(ref_of(resource)) for store in stores]):  # noqa: C419
                        refs = (ref_of(resource),)
                case _:
                    nameless = True
                    report(source, (_nameless(source, 1),))
            change = StoreChange(names, refs, initial and isinstance(event, Listed))
            if change.initial:
                initial = False
                task_status.started()
            if change.refs or change.initial:
                await emit(change)


def _has_name(resource: Resource) -> bool:
    return bool(ref_of(resource).name)


def _nameless(source: str, count: int) -> Problem:
    return Problem(
        message=f"{count} object{'s' if count > 1 else ''} without metadata.name left out",
        source=source,
        hint="the server's answer is incomplete; is there a proxy in between?",
    )
