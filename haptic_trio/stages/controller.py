"""Reinitialisation loop: runs one iteration after another for as long as the process lives."""

from itertools import count

import trio

from haptic_trio.backoff import Backoff
from haptic_trio.config.load import LoadedConfig
from haptic_trio.errors import HapticError, Problem, leaves_of
from haptic_trio.messages import ConfigValidated, IterationEnded, ProblemsReported
from haptic_trio.stages.gc_tuning import building_without_collections
from haptic_trio.stages.iteration import Opening, StartTimeoutError, run_iteration
from haptic_trio.stages.process import IterationState, Process

RETRY_BASE = 0.5
RETRY_MAX = 30.0


async def run_controller(process: Process) -> None:
    """Run iterations until cancelled.

    After a configuration change the next iteration starts at once. After a
    failure it starts after a delay that doubles up to `RETRY_MAX` seconds.
    After a start timeout it runs the last good configuration.
    """
    checked: LoadedConfig | None = None
    last_good: LoadedConfig | None = None
    last_valid: ConfigValidated | None = None
    unstartable: frozenset[str] = frozenset()
    backoff = Backoff(base=RETRY_BASE, limit=RETRY_MAX, jitter=lambda: 0.0)
    for number in count(1):
        state = IterationState(number=number, opened=trio.current_time())
        process.running.put(state)
        delay = 0.0
        try:
            opening = Opening(checked=checked, last_good=last_good, unstartable=unstartable, last_valid=last_valid)
            checked = None
            with building_without_collections(wanted=process.tunes_gc):
                change = await run_iteration(process, state, opening)
            reason, checked = "configuration changed", change.loaded
            backoff.reset()
        except* StartTimeoutError as group:
            reason = "start timed out"
            process.events.record(_failure(number, group, delay))
            if state.loaded is not None and last_good is not None and state.loaded.version != last_good.version:
                unstartable |= {state.loaded.version}
        except* (HapticError, OSError) as group:
            # Any other exception is a bug and ends the process with a traceback.
            reason = "failed"
            delay = backoff.next()
            process.events.record(_failure(number, group, delay))
        finally:
            process.running.put(None)
        if state.stage == 5:
            last_good = state.loaded
        if state.validated is not None and state.validated.value is not None:
            last_valid = state.validated.value
        process.events.record(
            IterationEnded(iteration=number, reason=reason, seconds=trio.current_time() - state.opened)
        )
        await trio.sleep(delay)


def _failure(number: int, group: BaseExceptionGroup[Exception], delay: float) -> ProblemsReported:
    hint = f"next attempt in {delay:g} s" if delay else ""
    problems = [Problem(message=str(error) or repr(error), hint=hint) for error in leaves_of(group)]
    return ProblemsReported(source=f"iteration {number}", problems=tuple(problems))
