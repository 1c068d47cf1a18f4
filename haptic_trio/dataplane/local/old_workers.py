"""Observation of old HAProxy workers: those that finish their connections after a reload."""

from typing import Final

import trio

from haptic_trio.dataplane.endpoint import EndpointError
from haptic_trio.dataplane.local.master import MasterClient
from haptic_trio.dataplane.local.process import PROC
from haptic_trio.logs import get_logger

WARNED_FROM: Final = 10
"""Old workers from which on their number is logged, and again whenever it has doubled."""


class OldWorkers:
    """Old workers of the instance *name*."""

    def __init__(self, name: str) -> None:
        self._log = get_logger("supervisor").bind(instance=name)
        self._next_warning = WARNED_FROM
        self.count = 0
        """As of the last observation."""

    async def observe(self, master: MasterClient) -> None:
        """Count the old workers, and log a warning while there are many. A master that does not answer is ignored."""
        try:
            pids = (await master.fetch_state()).old_workers
        except EndpointError:
            return
        self.count = len(pids)
        if len(pids) < WARNED_FROM:
            self._next_warning = WARNED_FROM
        if len(pids) < self._next_warning:
            return
        self._next_warning = 2 * len(pids)
        self._log.warning(
            "many old haproxy processes finish their connections; fewer reloads, or lower values of"
            " maxOldProcesses and hardStopAfter, limit their memory",
            processes=len(pids),
            mebibytes=await trio.to_thread.run_sync(_measure, pids),
        )


def _measure(pids: tuple[int, ...]) -> int:
    """Return the resident memory of *pids* in MiB; blocks."""
    return sum(map(_read_kilobytes, pids)) >> 10


def _read_kilobytes(pid: int) -> int:
    try:
        lines = (PROC / str(pid) / "status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmRSS:")), 0)
