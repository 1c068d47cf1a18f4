"""Trio instrument that reports tasks which keep the event loop busy with one step."""

import time
from collections.abc import Callable
from typing import Final

import msgspec
import trio

from haptic_trio.logs import get_logger

LIMIT: Final = 0.1
"""Seconds of CPU time of the event loop's thread that one step of a task may take."""
FREEZE: Final = 1.0
"""Seconds from which a step is logged as a warning."""
_PREFIX: Final = "haptic_trio."


class SlowStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a task, from one checkpoint to the next, that took longer than the limit."""

    task: str
    place: str
    """Module, line and function in which the task waits after the step; empty after its last step."""
    seconds: float
    """CPU time, so load of other processes and threads does not count."""


class SlowSteps(trio.abc.Instrument):
    """Measures each step of the tasks whose name begins with *prefix*, and passes slow ones to *report*.

    A step ends when the next one begins: so each step costs one call and one
    reading of the monotonic clock, and a step before a long wait is reported
    after the wait. CPU time, which takes a system call, is read only after
    slow steps and long waits, and a few times in *limit*; so the seconds may
    include a tenth of *limit* from before the step. *report* must not block.
    """

    def __init__(self, report: Callable[[SlowStep], None], *, limit: float = LIMIT, prefix: str = _PREFIX) -> None:
        self._report = report
        self._limit = limit
        self._prefix = prefix
        self._task: trio.lowlevel.Task | None = None
        """The task whose step runs, or was the last one."""
        self._began = 0.0
        self._cpu = 0.0
        self._read_until = 0.0
        """Until when `_cpu` is recent enough."""

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Report the former step if it was slow, and start the clock."""
        now = time.monotonic()
        if now - self._began > self._limit:
            self._end_former()
        self._task, self._began = task, now
        if now >= self._read_until:
            self._cpu, self._read_until = time.thread_time(), now + self._limit / 10

    def _end_former(self) -> None:
        task = self._task
        if task is not None and task.name.startswith(self._prefix):
            seconds = time.thread_time() - self._cpu
            if seconds > self._limit:
                name = task.name.removeprefix(_PREFIX)
                self._report(SlowStep(task=name, place=_place_of(task), seconds=seconds))


def log_slow_steps() -> SlowSteps:
    """Return an instrument that logs slow steps: at debug, and as a warning if they freeze the program noticeably."""
    log = get_logger("event-loop")

    def report(step: SlowStep) -> None:
        emit = log.warning if step.seconds >= FREEZE else log.debug
        emit("a task kept the event loop busy", task=step.task, place=step.place, seconds=round(step.seconds, 3))

    return SlowSteps(report)


def _place_of(task: trio.lowlevel.Task) -> str:
    place = ""
    for frame, line in task.iter_await_frames():
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(_PREFIX):
            place = f"{module.removeprefix(_PREFIX)}:{line} {frame.f_code.co_name}"
    return place
