"""CPU time of a child process, which a busy or throttled machine does not lengthen, and a limit on it."""

import math
import time

import trio

SHORTEST_POLL = 0.01
"""Minimum number of seconds between two readings of the CPU time of a process."""
_OF_PROCESS = 2
"""`CPUCLOCK_SCHED` of the kernel: the time that all threads of a process have run."""


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
        await trio.sleep(max(left, SHORTEST_POLL))
    await trio.sleep_forever()
