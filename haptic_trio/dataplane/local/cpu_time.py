"""CPU time of a child process, which a busy or throttled machine does not lengthen, and a limit on it."""

import math
import time

import trio

SHORTEST_LOOK = 0.01
"""Seconds between two looks at the CPU time of a process, at least."""
_OF_PROCESS = 2
"""What the kernel calls `CPUCLOCK_SCHED`: the time that all threads of a process have run."""


def cpu_time_of(pid: int) -> float:
    """Return the CPU seconds that the child *pid* has taken so far; it may have ended, but must not be reaped."""
    # As clock_getcpuclockid(3) does, which Python does not have.
    return time.clock_gettime((~pid << 3) | _OF_PROCESS)


async def wait_for_cpu_time(pid: int, most: float) -> None:
    """Return once the child *pid* has taken more than *most* CPU seconds; until then, or if it is reaped, wait."""
    while math.isfinite(most):
        try:
            left = most - cpu_time_of(pid)
        except OSError:
            break
        if left < 0:
            return
        # CPU time of one thread never goes faster than the clock.
        await trio.sleep(max(left, SHORTEST_LOOK))
    await trio.sleep_forever()
