"""One iteration: a nursery with all channels and five stages, cancelled as a whole by a configuration change."""

from collections.abc import Callable
from functools import partial
from itertools import count

import msgspec
import trio

from haptic_trio.channels import Channels
from haptic_trio.config.load import LoadedConfig
from haptic_trio.errors import HapticError
from haptic_trio.k8s.shared_watches import SharedWatches
from haptic_trio.messages import ConfigChanged, ConfigValidated, StageReached
from haptic_trio.stages.candidate import make_candidate
from haptic_trio.stages.components import run_components
from haptic_trio.stages.load_config import run_load_config
from haptic_trio.stages.process import STAGES, Candidate, IterationState, Process
from haptic_trio.stages.progress import prolonged, report_progress
from haptic_trio.stages.reconcile import run_reconcile
from haptic_trio.stages.watch_config import run_watch_config
from haptic_trio.stages.watch_resources import run_watch_resources


class StartTimeoutError(HapticError):
    """The stages were not ready within `controller.startTimeout`; the last good configuration should run instead."""

    def __init__(self, limit: float, stage: int) -> None:
        self.stage = stage
        super().__init__(f"stage `{STAGES[stage][0]}` was not ready within {limit:g} s")


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """Results of the iteration before that a new one starts from."""

    checked: LoadedConfig | None = None
    """The configuration whose change ended that iteration: loaded there, so not loaded again."""
    candidate: Candidate | None = None
    """The same configuration, if it was rendered and checked there as well."""
    last_good: LoadedConfig | None = None
    """The configuration to run if the present one is invalid or was rejected."""
    last_valid: ConfigValidated | None = None
    """The configuration for HAProxy until this iteration has made a valid one."""


async def run_iteration(
    process: Process,
    state: IterationState,
    opening: Opening,
    watches: SharedWatches,
) -> ConfigChanged:
    """Start the five stages in order and run them until the configuration changes; return the change.

    Every task started here has finished on return. *state* is updated for
    health checks and the console; it also gets the candidate that ended this
    iteration, which the caller closes.
    """
    changes: list[ConfigChanged] = []
    correlations = count(1)
    with Channels() as channels:
        state.validated, state.completed = channels.validated, channels.completed
        state.leadership, state.channels = process.leadership, channels
        state.listing = lambda: process.client.listing
        async with trio.open_nursery() as nursery:

            async def end_on_change() -> None:
                # Received from the start on: a correction also ends an iteration that cannot start.
                change = await channels.config_out.receive()
                changes.append(change)
                nursery.cancel_scope.cancel(reason=f"configuration {change.loaded.version}")

            nursery.start_soon(end_on_change)
            nursery.start_soon(report_progress, state, process.events)
            await _start_stages(
                process,
                state,
                opening,
                channels,
                nursery,
                lambda: f"{state.number}-{next(correlations)}",
                watches,
            )
    return changes[0]


async def _start_stages(
    process: Process,
    state: IterationState,
    opening: Opening,
    channels: Channels,
    nursery: trio.Nursery,
    next_correlation: Callable[[], str],
    watches: SharedWatches,
) -> None:
    candidate, rejected = opening.candidate, process.retained.rejected
    if candidate is not None:
        candidate.report()

    def reached(stage: int, name: str) -> None:
        state.stage = stage
        process.events.record(
            StageReached(iteration=state.number, stage=stage, name=name, seconds=trio.current_time() - state.opened)
        )

    loaded = state.loaded = await nursery.start(
        partial(
            run_load_config,
            process.source,
            process.candidates,
            load=process.load,
            checked=opening.checked,
            last_good=opening.last_good,
            rejected=rejected,
            events=process.events,
        )
    )
    reached(1, "load_config")
    synced, serving = trio.Event(), trio.Event()

    async def try_candidate(changed: LoadedConfig) -> None:
        if changed.version in rejected:
            await serving.wait()
        # Before this iteration serves there is nothing to protect, and what it waits for may never come.
        if serving.is_set():
            await process.collections.release_retired()
            failure: Exception | None = None
            with process.collections.paused() as pause:
                try:
                    state.candidate = await make_candidate(
                        process, watches, changed, running=state.components, correlation=f"{state.number + 1}-0"
                    )
                except Exception as exc:  # noqa: BLE001  raised below
                    failure = exc
                if failure is not None:
                    await process.collections.release_retired()
                    pause.is_in_vain = True
                    raise failure

    async def watch_config() -> None:
        await nursery.start(
            partial(
                run_watch_config,
                process.candidates,
                channels.config_in.clone(),
                load=process.load,
                running=loaded.version,
                try_candidate=try_candidate,
                rejected=rejected,
                invalid=process.invalid,
                events=process.events,
            )
        )
        synced.set()

    # Concurrent with the other stages, so that a changed configuration ends an iteration with a blocked stage.
    nursery.start_soon(watch_config)
    limit = loaded.config.controller.start_timeout
    with trio.move_on_after(limit) as starting:
        components = state.components = await nursery.start(
            partial(
                run_components,
                process,
                loaded,
                channels,
                state.heartbeats,
                watches=watches,
                own=state.own,
                built=candidate.components if candidate is not None else None,
            )
        )
        reached(2, "components")
        with prolonged(nursery, starting, limit, lambda: process.client.listing):
            await nursery.start(
                partial(
                    run_watch_resources,
                    components.watches,
                    loaded.config.watched_resources,
                    components.stores,
                    channels.changes_in.clone(),
                    events=process.events,
                    pending_lists=state.pending_lists,
                    is_read=components.pipeline.reads,
                    unread=channels.unread,
                    is_resumed=candidate is not None,
                )
            )
        reached(3, "watch_resources")
        await synced.wait()
        reached(4, "watch_config")
        await nursery.start(
            partial(
                run_reconcile,
                process,
                components,
                channels,
                next_correlation=next_correlation,
                last_valid=opening.last_valid,
                checked=candidate.valid if candidate is not None else None,
            )
        )
        reached(5, "reconcile")
        serving.set()
        nursery.start_soon(
            partial(process.collections.run_freeze, channels.validated, is_resumed=candidate is not None)
        )
    if starting.cancelled_caught:
        raise StartTimeoutError(limit, state.stage)
