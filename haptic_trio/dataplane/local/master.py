"""Client of the master socket: lists processes and reloads."""

from pathlib import Path

import msgspec
import trio

from haptic_trio.dataplane.cli_socket import exchange
from haptic_trio.dataplane.endpoint import EndpointTimeoutError, EndpointUnreachableError
from haptic_trio.haproxy.runtime.replies import parse_proc

ANSWER_LIMIT = 5.0
"""Seconds for a question."""
POLL_INTERVAL = 0.02
"""Seconds between two looks at a reload that the master does not report."""


class MasterState(msgspec.Struct, frozen=True, kw_only=True):
    """What `show proc` says."""

    pid: int
    reloads: int
    """Since the master was started, refused ones included."""
    worker: int
    """Pid of the worker that has the newest configuration; 0 when none runs."""


class ReloadReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a reload ended."""

    loaded: bool
    """False: HAProxy has refused the configuration, and the former worker goes on."""
    output: str
    """HAProxy's own words."""


class MasterClient:
    """Talks to the master socket at *path*; *endpoint* is named in errors."""

    def __init__(self, path: Path, *, endpoint: str) -> None:
        self._path = path
        self._endpoint = endpoint

    async def fetch_state(self) -> MasterState:
        """Return the master and its newest worker."""
        processes = parse_proc(await exchange(self._path, "show proc\n", endpoint=self._endpoint, limit=ANSWER_LIMIT))
        master = next((process for process in processes if process.kind == "master"), None)
        if master is None:
            raise EndpointUnreachableError(self._endpoint, "the master does not know itself")
        # After a failed reload some versions list the worker that goes on among the old ones.
        workers = [process for process in processes if process.kind == "worker"]
        newest = min(workers, key=lambda process: (process.is_old, process.reloads), default=None)
        return MasterState(pid=master.pid, reloads=master.reloads, worker=newest.pid if newest is not None else 0)

    async def reload(self, *, limit: float) -> ReloadReport:
        """Have the master load its configuration again; returns when the new worker runs, or has failed to.

        The signal that does the same gets lost when it comes soon after a
        start, so this is the only way used here.
        """
        before = await self.fetch_state()
        text = await exchange(self._path, "reload\n", endpoint=self._endpoint, limit=limit)
        outcome, _, output = text.partition("\n--\n")
        if outcome.startswith("Success="):
            return ReloadReport(loaded=outcome.strip() == "Success=1", output=output.strip())
        return await self._await_reload(before, limit=limit)

    async def _await_reload(self, before: MasterState, *, limit: float) -> ReloadReport:
        # HAProxy before 2.7 answers nothing; its table says the same a little later.
        with trio.move_on_after(limit):
            while True:
                try:
                    now = await self.fetch_state()
                except EndpointUnreachableError:
                    now = before
                if now.reloads > before.reloads:
                    return ReloadReport(loaded=now.worker != before.worker, output="")
                await trio.sleep(POLL_INTERVAL)
        raise EndpointTimeoutError(self._endpoint, f"the reload was not over within {limit:g} s")
