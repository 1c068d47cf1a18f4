"""Stage 1, `load_config`: loads the configuration of this iteration, and waits for a valid one."""

from collections.abc import Set as AbstractSet

import trio

from haptic_trio.channels import ConfigSeen, EventBuffer, Latest
from haptic_trio.config.load import ConfigSource, Load, LoadedConfig
from haptic_trio.errors import Problem, ProblemsError
from haptic_trio.messages import ConfigInvalid


async def run_load_config(
    source: ConfigSource,
    candidates: Latest[ConfigSeen],
    *,
    load: Load,
    checked: LoadedConfig | None = None,
    last_good: LoadedConfig | None,
    rejected: AbstractSet[str],
    events: EventBuffer,
    task_status: trio.TaskStatus[LoadedConfig] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Choose the configuration to run, pass it to started(), and end.

    That is *checked* if it is given. Else it is the present configuration if
    that is valid and its version not among the *rejected*, else *last_good*;
    without that it waits for a valid one.
    """
    if checked is None:
        checked = await _first_valid(candidates, load, last_good, rejected, source, events)
    task_status.started(checked)


async def _first_valid(
    candidates: Latest[ConfigSeen],
    load: Load,
    last_good: LoadedConfig | None,
    rejected: AbstractSet[str],
    source: ConfigSource,
    events: EventBuffer,
) -> LoadedConfig:
    version = 0
    while True:
        version, seen = await candidates.wait_newer(version)
        if last_good is not None and seen.version in rejected | {last_good.version}:
            return last_good
        problems: tuple[Problem, ...] = (_absent(source),)
        if seen.config_map is not None:
            try:
                # The watch continues meanwhile, so a correction is not missed.
                return await trio.to_thread.run_sync(load, seen.config_map, seen.secret)
            except ProblemsError as exc:
                problems = exc.problems
        if last_good is not None:
            # Stage `watch_config` checks the same candidate, and reports it.
            return last_good
        events.record(ConfigInvalid(version=seen.version, problems=problems))


def _absent(source: ConfigSource) -> Problem:
    return Problem(
        message="not found",
        source=f"ConfigMap {source.namespace}/{source.config_map}",
        hint="create it, or name another one with --config-map",
    )
