"""One iteration: a nursery with all channels and five stages, cancelled as a whole by a configuration change."""

from collections.abc import Callable
from functools import partial
from itertools import count

import msgspec
import trio

from haptic_trio.channels import Channels
from haptic_trio.config.load import LoadedConfig
from haptic_trio.errors import HapticError
from haptic_trio.messages import ConfigValidated, StageReached
from haptic_trio.stages.components import run_components
from haptic_trio.stages.gc_tuning import run_freeze
from haptic_trio.stages.load_config import run_load_config
from haptic_trio.stages.process import IterationState, Process
from haptic_trio.stages.reconcile import run_reconcile
from haptic_trio.stages.watch_config import run_watch_config
from haptic_trio.stages.watch_resources import run_watch_resources


class StartTimeoutError(HapticError):
    """The stages were not up within `controller.startTimeout`; the last good configuration should run instead."""

    def __init__(self, limit: float, stage: int) -> None:
        self.stage = stage
        super().__init__(f"stage {stage + 1} was not ready within {limit:g} s")


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """What an iteration should know of those before it."""

    last_good: LoadedConfig | None = None
    """What to run when the present configuration is invalid or unstartable."""
    unstartable: frozenset[str] = frozenset()
    """Versions that were valid but could not be started."""
    last_valid: ConfigValidated | None = None
    """What HAProxy should run for as long as this iteration makes nothing valid itself."""


async def run_iteration(process: Process, state: IterationState, opening: Opening) -> str:
    """Start the five stages in order and run them until the configuration changes; return why it ended.

    By then every task started here has finished. *state* is kept up to date
    for those who look at the iteration from outside.
    """
    reason = "cancelled"
    correlations = count(1)
    with Channels() as channels:
        state.validated, state.completed = channels.validated, channels.completed
        state.leadership, state.channels = process.leadership, channels
        async with trio.open_nursery() as nursery:

            async def end_on_change() -> None:
                nonlocal reason
                # Received from the start on: a correction also ends an iteration that cannot start.
                change = await channels.config_out.receive()
                reason = "configuration changed"
                nursery.cancel_scope.cancel(reason=f"configuration {change.loaded.version}")

            nursery.start_soon(end_on_change)
            await _start_stages(
                process, state, opening, channels, nursery, lambda: f"{state.number}-{next(correlations)}"
            )
    return reason


async def _start_stages(
    process: Process,
    state: IterationState,
    opening: Opening,
    channels: Channels,
    nursery: trio.Nursery,
    next_correlation: Callable[[], str],
) -> None:
    def reached(stage: int, name: str) -> None:
        state.stage = stage
        process.facts.tell(
            StageReached(iteration=state.number, stage=stage, name=name, seconds=trio.current_time() - state.opened)
        )

    loaded = state.loaded = await nursery.start(
        partial(
            run_load_config,
            process.client,
            process.source,
            channels.candidates,
            load=process.load,
            last_good=opening.last_good,
            unstartable=opening.unstartable,
            facts=process.facts,
        )
    )
    reached(1, "load_config")
    synced = trio.Event()

    async def watch_config() -> None:
        await nursery.start(
            partial(
                run_watch_config,
                channels.candidates,
                channels.config_in.clone(),
                load=process.load,
                running=loaded.version,
                ignored=opening.unstartable,
                facts=process.facts,
            )
        )
        synced.set()

    # Beside the other stages: a changed configuration is taken even while one of them is held up.
    nursery.start_soon(watch_config)
    limit = loaded.config.controller.start_timeout
    with trio.move_on_after(limit) as starting:
        parts = state.parts = await nursery.start(partial(run_components, process, loaded, channels, state.pulses))
        reached(2, "components")
        await nursery.start(
            partial(
                run_watch_resources,
                process.client,
                loaded.config.watched_resources,
                parts.stores,
                channels.changes_in.clone(),
                facts=process.facts,
                unlisted=state.unlisted,
                is_read=parts.pipeline.reads,
                unread=channels.unread,
            )
        )
        reached(3, "watch_resources")
        await synced.wait()
        reached(4, "watch_config")
        await nursery.start(
            partial(
                run_reconcile,
                process,
                parts,
                channels,
                next_correlation=next_correlation,
                last_valid=opening.last_valid,
            )
        )
        reached(5, "reconcile")
        if process.tunes_gc:
            nursery.start_soon(run_freeze, channels.validated)
    if starting.cancelled_caught:
        raise StartTimeoutError(limit, state.stage)
