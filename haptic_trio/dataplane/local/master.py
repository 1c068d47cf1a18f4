"""Client of the master socket: lists processes and reloads."""

from pathlib import Path

import msgspec
import trio

from haptic_trio.dataplane.cli_socket import exchange
from haptic_trio.dataplane.endpoint import EndpointTimeoutError, EndpointUnreachableError
from haptic_trio.haproxy.runtime.replies import parse_proc

ANSWER_LIMIT = 5.0
"""Seconds for a query."""
POLL_INTERVAL = 0.02
"""Seconds between two queries during a reload that the master does not report."""


class MasterState(msgspec.Struct, frozen=True, kw_only=True):
    """State according to `show proc`."""

    pid: int
    reloads: int
    """Since the start of the master, failed ones included."""
    worker: int
    """Pid of the worker with the newest configuration; 0 if none runs."""
    old_workers: tuple[int, ...] = ()
    """Pids of the workers that finish their connections after a reload."""


class ReloadReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a reload."""

    loaded: bool
    """False: HAProxy rejected the configuration, and the former worker continues."""
    output: str
    """Output of HAProxy."""


class MasterClient:
    """Client of the master socket at *path*; errors name *endpoint*."""

    def __init__(self, path: Path, *, endpoint: str) -> None:
        self._path = path
        self._endpoint = endpoint

    async def fetch_state(self) -> MasterState:
        """Return the master and its newest worker; raises `EndpointUnreachableError`."""
        processes = parse_proc(await exchange(self._path, "show proc\n", endpoint=self._endpoint, limit=ANSWER_LIMIT))
        master = next((process for process in processes if process.kind == "master"), None)
        if master is None:
            raise EndpointUnreachableError(self._endpoint, "`show proc` of the master lists no master")
        # After a failed reload some versions list the continuing worker among the old ones.
        workers = [process for process in processes if process.kind == "worker"]
        newest = min(workers, key=lambda process: (process.is_old, process.reloads), default=None)
        return MasterState(
            pid=master.pid,
            reloads=master.reloads,
            worker=newest.pid if newest is not None else 0,
            old_workers=tuple(process.pid for process in workers if process is not newest),
        )

    async def reload(self, *, limit: float) -> ReloadReport:
        """Reload; returns once the new worker runs or has failed.

        Not by a signal: HAProxy loses a signal that arrives soon after a start.
        """
        before = await self.fetch_state()
        text = await exchange(self._path, "reload\n", endpoint=self._endpoint, limit=limit)
        outcome, _, output = text.partition("\n--\n")
        if outcome.startswith("Success="):
            return ReloadReport(loaded=outcome.strip() == "Success=1", output=output.strip())
        return await self._await_reload(before, limit=limit)

    async def _await_reload(self, before: MasterState, *, limit: float) -> ReloadReport:
        # HAProxy before 2.7 sends no answer; `show proc` has the result a little later.
        with trio.move_on_after(limit):
            while True:
                try:
                    now = await self.fetch_state()
                except EndpointUnreachableError:
                    now = before
                if now.reloads > before.reloads:
                    return ReloadReport(loaded=now.worker != before.worker, output="")
                await trio.sleep(POLL_INTERVAL)
        raise EndpointTimeoutError(self._endpoint, f"the reload did not finish within {limit:g} s")
