"""Stage 4, `watch_config`: checks each change of ConfigMap and Secret; only a valid one ends the iteration."""

from collections.abc import Set as AbstractSet

import trio

from haptic_trio.channels import ConfigSeen, EventBuffer, Latest
from haptic_trio.errors import Problem, ProblemsError
from haptic_trio.messages import ConfigChanged, ConfigInvalid
from haptic_trio.stages.process import Load


async def run_watch_config(
    candidates: Latest[ConfigSeen],
    config: trio.MemorySendChannel[ConfigChanged],
    *,
    load: Load,
    running: str,
    ignored: AbstractSet[str],
    events: EventBuffer,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Send `ConfigChanged` for the first valid configuration whose version is not *running*, and end.

    Versions in *ignored* could not be started before. started() when the
    candidate that was present at the start has been checked. Takes ownership
    of *config*.
    """
    seen = 0
    ready = False
    with config:
        while True:
            seen, candidate = await candidates.wait_newer(seen)
            change = await _check(candidate, load, ignored | {running}, events)
            if not ready:
                # Before the change is sent: it may have arrived while stage `load_config` ran.
                ready = True
                task_status.started()
            if change is not None:
                events.record(change)
                await config.send(change)
                return


async def _check(
    candidate: ConfigSeen, load: Load, known: AbstractSet[str], events: EventBuffer
) -> ConfigChanged | None:
    if candidate.version in known:
        return None
    problems: tuple[Problem, ...]
    if candidate.config_map is None:
        problems = (
            Problem(
                message="the ConfigMap was deleted", hint="the running configuration stays in force; create it again"
            ),
        )
    else:
        try:
            return ConfigChanged(loaded=await trio.to_thread.run_sync(load, candidate.config_map, candidate.secret))
        except ProblemsError as exc:
            problems = exc.problems
    events.record(ConfigInvalid(version=candidate.version, problems=problems))
    return None
