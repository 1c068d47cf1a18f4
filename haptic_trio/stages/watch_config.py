"""Stage 4, `watch_config`: checks each change of ConfigMap and Secret; only a valid one ends the iteration."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import trio

from haptic_trio.backoff import Backoff
from haptic_trio.channels import ConfigSeen, EventBuffer, Latest
from haptic_trio.config.load import Load, LoadedConfig
from haptic_trio.errors import HapticError, Problem, ProblemsError, leaves_of, text_of
from haptic_trio.messages import ConfigChanged, ConfigInvalid
from haptic_trio.pipeline.rejection.errors import RejectedError, UndecidedError

RETRY_BASE: Final = 1.0
RETRY_MAX: Final = 60.0
"""Seconds until a rejected configuration is tried with the objects of that time; the delay doubles."""

Try: TypeAlias = Callable[[LoadedConfig], Awaitable[None]]
"""Renders and checks a configuration with all present objects, or raises a group of errors. Keeps what it has made."""
Report: TypeAlias = Callable[[ConfigInvalid], None]


async def run_watch_config(
    candidates: Latest[ConfigSeen],
    config: trio.MemorySendChannel[ConfigChanged],
    *,
    load: Load,
    running: str,
    try_candidate: Try,
    rejected: set[str],
    invalid: Latest[ConfigInvalid],
    events: EventBuffer,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Send `ConfigChanged` for the first valid configuration whose version is not *running*, and end.

    A configuration that *try_candidate* rejects is added to *rejected* and
    tried again later: its objects may arrive after it. A newer one ends the
    trial of an older one. started() when the candidate that was present at
    the start has been loaded. Takes ownership of *config*.
    """

    def report(rejection: ConfigInvalid) -> None:
        invalid.put(rejection)
        events.record(rejection)

    seen = 0
    ready = False
    with config:
        while True:
            seen, candidate = await candidates.wait_newer(seen)
            loaded = await _load(candidate, load, running, report)
            if not ready:
                # Before the change is sent: it may have arrived while stage `load_config` ran.
                ready = True
                task_status.started()
            if loaded is None:
                continue
            trial = _Trial(loaded, try_candidate, rejected, report)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trial.run, nursery.cancel_scope)
                await candidates.wait_newer(seen)
                nursery.cancel_scope.cancel(reason="the configuration changed again")
            if trial.has_passed:
                change = ConfigChanged(loaded=loaded)
                events.record(change)
                await config.send(change)
                return


class _Trial:
    """Attempts to use a configuration, until one succeeds."""

    def __init__(self, loaded: LoadedConfig, try_candidate: Try, rejected: set[str], report: Report) -> None:
        self._loaded = loaded
        self._try = try_candidate
        self._rejected = rejected
        self._report = report
        self.has_passed = False

    async def run(self, scope: trio.CancelScope) -> None:
        """Try until the configuration passes, then cancel *scope*."""
        backoff = Backoff(base=RETRY_BASE, limit=RETRY_MAX)
        reported: tuple[Problem, ...] = ()
        while True:
            errors: list[BaseException] = []
            try:
                await self._try(self._loaded)
            except* (HapticError, OSError) as group:
                errors = [*leaves_of(group)]
            problems = tuple(problem for error in errors for problem in _problems_of(error))
            if not problems:
                self._rejected.discard(self._loaded.version)
                self.has_passed = True
                scope.cancel(reason="the configuration is valid")
                return
            self._rejected.add(self._loaded.version)
            if problems != reported:
                reported = problems
                is_verdict = not any(isinstance(error, UndecidedError) for error in errors)
                self._report(ConfigInvalid(version=self._loaded.version, problems=problems, is_verdict=is_verdict))
            await trio.sleep(backoff.next())


def _problems_of(error: BaseException) -> tuple[Problem, ...]:
    if isinstance(error, RejectedError | ProblemsError):
        return error.problems
    return (Problem(message=text_of(error)),)


async def _load(candidate: ConfigSeen, load: Load, running: str, report: Report) -> LoadedConfig | None:
    if candidate.version == running:
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
            return await trio.to_thread.run_sync(load, candidate.config_map, candidate.secret)
        except ProblemsError as exc:
            problems = exc.problems
    report(ConfigInvalid(version=candidate.version, problems=problems))
    return None
