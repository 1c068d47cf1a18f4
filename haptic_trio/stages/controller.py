"""Reinitialisation loop: runs one iteration after another for as long as the process lives."""

from functools import partial
from itertools import count
from typing import Final

import trio

from haptic_trio.backoff import Backoff
from haptic_trio.errors import HapticError, Problem, leaves_of, text_of
from haptic_trio.k8s.shared_watches import SharedWatches
from haptic_trio.messages import ConfigChanged, IterationEnded, ProblemsReported
from haptic_trio.stages.config_watch import run_config_watch
from haptic_trio.stages.iteration import Opening, StartTimeoutError, run_iteration
from haptic_trio.stages.process import STAGES, IterationState, Process

RETRY_BASE: Final = 0.5
RETRY_MAX: Final = 30.0
HEALTHY: Final = 30.0
"""Seconds after which an iteration whose stages are all up counts as healthy: its failure is not a repeated one."""


async def run_controller(process: Process) -> None:
    """Run iterations until cancelled.

    After a configuration change the next iteration starts at once, with the
    candidate that was checked while the previous one ran. After a failure it
    starts after a delay that doubles up to `RETRY_MAX` seconds, or as soon as
    the ConfigMap changes. After a start timeout it runs the last good
    configuration.
    """
    watches = SharedWatches(process.client)
    async with trio.open_nursery() as nursery:
        await nursery.start(watches.run)
        nursery.start_soon(
            partial(run_config_watch, process.client, process.source, process.candidates, events=process.events)
        )
        await _run_iterations(process, watches, nursery=nursery)


async def _run_iterations(process: Process, watches: SharedWatches, *, nursery: trio.Nursery) -> None:
    opening = Opening()
    rejected = process.retained.rejected
    backoff = Backoff(base=RETRY_BASE, limit=RETRY_MAX, jitter=lambda: 0.0)
    for number in count(1):
        state = IterationState(number=number, opened=trio.current_time())
        process.running.put(state)
        delay = 0.0
        # Stage `load_config` chooses from this version on.
        seen, _ = await process.candidates.wait_newer(0)
        change: ConfigChanged | None = None
        try:
            with process.collections.building(is_resumed=opening.candidate is not None):
                change = await run_iteration(process, state, opening, watches)
            reason = "configuration changed"
            backoff.reset()
        except* StartTimeoutError as group:
            reason = "start timed out"
            process.events.record(_failure(number, group, delay))
            good = opening.last_good
            if state.loaded is not None and good is not None and state.loaded.version != good.version:
                rejected.add(state.loaded.version)
        except* (HapticError, OSError) as group:
            # Any other exception is a bug and ends the process with a traceback.
            reason = "failed"
            if state.stage == len(STAGES) and trio.current_time() - state.opened >= HEALTHY:
                backoff.reset()
            delay = backoff.next()
            process.events.record(_failure(number, group, delay))
        finally:
            process.running.put(None)
            _close(process, state, opening, is_followed=change is not None, nursery=nursery)
        valid = state.validated.value if state.validated is not None else None
        opening = Opening(
            checked=change.loaded if change is not None else None,
            candidate=state.candidate if change is not None else None,
            last_good=state.loaded if state.stage == len(STAGES) else opening.last_good,
            last_valid=valid or opening.last_valid,
        )
        process.events.record(
            IterationEnded(iteration=number, reason=reason, seconds=trio.current_time() - state.opened)
        )
        newest = process.candidates.value
        if newest is None or newest.version in rejected:
            seen = process.candidates.version
        with trio.move_on_after(delay):
            # A corrected ConfigMap is tried at once, also one that arrived while the iteration failed.
            await process.candidates.wait_newer(seen)


def _close(
    process: Process, state: IterationState, opening: Opening, *, is_followed: bool, nursery: trio.Nursery
) -> None:
    """Close the components of an iteration in the background: the next one does not wait for the disk."""
    # A candidate that no stage `components` has taken over is not used any more.
    owned = state.owned or (opening.candidate.components if opening.candidate is not None else None)
    if owned is not None:
        nursery.start_soon(owned.aclose)
    if not is_followed and state.candidate is not None:
        nursery.start_soon(state.candidate.components.aclose)
        process.collections.retire(state.candidate.components.pipeline.dismantle)
    if state.components is not None:
        process.collections.retire(state.components.pipeline.dismantle)


def _failure(number: int, group: BaseExceptionGroup[Exception], delay: float) -> ProblemsReported:
    hint = f"next attempt in {delay:g} s" if delay else ""
    problems = [Problem(message=text_of(error), hint=hint) for error in leaves_of(group)]
    return ProblemsReported(source=f"iteration {number}", problems=tuple(problems))
