"""Candidate: a changed configuration that is rendered and checked beside the running iteration."""

from functools import partial
from typing import Final

import msgspec
import trio

from haptic_trio.channels import CHANGE_BUFFER, Change, EventBuffer
from haptic_trio.config.load import LoadedConfig
from haptic_trio.config.model import StoreKind
from haptic_trio.dataplane.planner import Planner
from haptic_trio.deployment.instance_count import INSTANCES, instance_objects
from haptic_trio.errors import Problem, ProblemsError
from haptic_trio.gateway.listeners.port_rules import TAKEN_PORTS
from haptic_trio.k8s.shared_watches import SharedWatches
from haptic_trio.messages import ConfigValidated, Reason
from haptic_trio.pipeline.cycle import Pipeline
from haptic_trio.pipeline.rejection.errors import RejectedError
from haptic_trio.stages.components import build_components
from haptic_trio.stages.iteration_components import IterationComponents
from haptic_trio.stages.process import Candidate, Process
from haptic_trio.stages.progress import prolonged
from haptic_trio.stages.watch_resources import go_on_after, run_watch_resources

CATCH_UP: Final = 5
"""Maximum number of checks of a candidate while objects change structurally."""


class _HeldEvents(EventBuffer):
    """Events of a candidate, passed on by the iteration that runs it: a rejected candidate quarantines nothing."""

    def __init__(self, events: EventBuffer) -> None:
        super().__init__(0)
        self._events = events
        self._held: list[msgspec.Struct] | None = []

    def record(self, event: msgspec.Struct) -> None:
        if self._held is None:
            self._events.record(event)
        else:
            self._held.append(event)

    def pass_on(self) -> None:
        held, self._held = self._held or [], None
        for event in held:
            self._events.record(event)


async def make_candidate(
    process: Process,
    watches: SharedWatches,
    loaded: LoadedConfig,
    *,
    running: IterationComponents | None = None,
    correlation: str,
) -> Candidate:
    """Render and check *loaded* with all present objects; the caller closes the result.

    What is still valid of the output of *running* is not rendered again.
    The running iteration is not touched. Raises a group of errors:
    `RejectedError`, `ProblemsError`, and errors of watches.
    """
    events = _HeldEvents(process.events)
    components = await build_components(process, loaded, process.retained.contents.copy(), events, watches)
    changes_in, changes_out = trio.open_memory_channel[Change](CHANGE_BUFFER)
    try:
        with changes_out:
            if running is not None:
                await _take_over(components, running)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_discard, changes_out)
                with changes_in:
                    await _fill_stores(process, components, loaded, changes_in, events, nursery=nursery)
                valid = await _validate(components.pipeline, correlation)
                nursery.cancel_scope.cancel(reason="the candidate is complete")
    except BaseException:
        await components.aclose()
        process.collections.retire(components.pipeline.dismantle)
        raise
    return Candidate(loaded=loaded, components=components, valid=valid, report=events.pass_on)


async def _take_over(built: IterationComponents, running: IterationComponents) -> None:
    """Have *built*, which nothing uses yet, begin with what is still valid of the output and stores of *running*."""
    config, former = built.config, running.config
    kinds = {TAKEN_PORTS, INSTANCES} & built.stores.keys() & running.stores.keys()
    if config.watched_resources_ignore_fields == former.watched_resources_ignore_fields:
        kinds |= {
            name
            for name, watched in config.watched_resources.items()
            if watched.store is StoreKind.FULL and watched == former.watched_resources.get(name)
        }
    begin = partial(go_on_after, built.watches, running.watches, config.watched_resources, built.stores, kinds)
    await built.pipeline.take_over(running.pipeline, kinds, begin)


async def _discard(changes: trio.MemoryReceiveChannel[Change]) -> None:
    # The iteration that runs the candidate renders the stores when it opens, and finds the changes there.
    async for _change in changes:
        pass


async def _fill_stores(
    process: Process,
    components: IterationComponents,
    loaded: LoadedConfig,
    changes: trio.MemorySendChannel[Change],
    events: EventBuffer,
    *,
    nursery: trio.Nursery,
) -> None:
    """Fill the stores, and keep them equal to the cluster for as long as *nursery* is open."""
    limit = loaded.config.controller.start_timeout
    pending_lists: set[str] = set()
    if (ports := components.stores.get(TAKEN_PORTS)) is not None:
        ports.replace(process.retained.taken_ports.objects())
    if (instances := components.stores.get(INSTANCES)) is not None:
        instances.replace(instance_objects(process.endpoints.value))
    with (
        trio.move_on_after(limit) as listing,
        prolonged(nursery, listing, limit, lambda: process.client.listing),
    ):
        await nursery.start(
            partial(
                run_watch_resources,
                components.watches,
                loaded.config.watched_resources,
                components.stores,
                changes.clone(),
                events=events,
                pending_lists=pending_lists,
                in_thread=True,
            )
        )
    if listing.cancelled_caught:
        raise ProblemsError([_lists_missing(pending_lists, limit)])


async def _validate(pipeline: Pipeline, correlation: str) -> ConfigValidated:
    """Return a valid configuration that differs from the present stores by data only, unless they never rest."""
    planner = Planner()
    valid = await pipeline.run(correlation, Reason.SYNCHRONIZED)
    for _ in range(CATCH_UP):
        try:
            prepared = await pipeline.prepare(correlation, Reason.SYNCHRONIZED)
            if await planner.is_only_data(valid.generation, prepared.generation):
                break
            valid = await pipeline.check(prepared, idle=False)
        except RejectedError as exc:
            if not exc.is_quarantined:
                raise
    return valid


def _lists_missing(names: set[str], limit: float) -> Problem:
    return Problem(
        message=f"no list of {', '.join(sorted(names))} within {limit:g} s",
        path="watchedResources",
        hint="does the cluster serve this kind, and may haptic-trio list it? `required: false` does not wait for it",
    )
