"""Endpoint for an HAProxy that another container of the same pod runs.

It is expected to be started, whenever both files are there, as

    haproxy -W -S MASTER_SOCKET -f STATE/process.cfg -f STATE/current/haproxy.cfg

with the same paths, by the same user, and is restarted by its container. This
module does not start, signal or end it: reloads are requested on the master
socket, and the start of the container loads the first generation.
"""

import contextlib
from functools import partial
from pathlib import Path

import trio

from haptic_trio.dataplane.endpoint import EndpointError, EndpointTimeoutError
from haptic_trio.dataplane.local.files.instance_directory import GenerationFiles
from haptic_trio.dataplane.local.instance import LocalAgent
from haptic_trio.dataplane.local.master import MasterClient, MasterState
from haptic_trio.dataplane.local.sockets import choose_socket_directory
from haptic_trio.dataplane.local.supervisor import START_LIMIT, LoadRejectedError, OnExit, Supervisor

WATCH_INTERVAL = 0.5
"""Seconds between two checks whether HAProxy runs."""
POLL_INTERVAL = 0.05
"""Seconds between two checks while HAProxy starts."""


class AttachedMaster(Supervisor):
    """Replaces the supervisor for an HAProxy that another container runs; *master_socket* is that of its master."""

    def __init__(
        self,
        directory: Path,
        files: GenerationFiles,
        binary: Path,
        *,
        name: str,
        lock: trio.Lock,
        master_socket: Path,
    ) -> None:
        super().__init__(directory, files, binary, name=name, lock=lock)
        self._master_socket = master_socket
        self._master = MasterClient(master_socket, endpoint=name)
        self._pid = self._seen = 0

    @property
    def pid(self) -> int:
        """Pid of the master according to itself; 0 if it did not answer the last query."""
        return self._pid

    @property
    def master(self) -> MasterClient:
        """Client of the master socket."""
        return self._master

    async def run(
        self,
        *,
        on_exit: OnExit,  # noqa: ARG002 - the container ends the process
        grace: float,  # noqa: ARG002
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Observe HAProxy until cancelled; the files are recovered once no load is in progress."""
        self._sockets = await trio.to_thread.run_sync(choose_socket_directory, self._directory)
        with trio.move_on_after(START_LIMIT):
            while await self._is_running() and not await self._has_loaded():  # noqa: ASYNC110 - there is no event
                await trio.sleep(POLL_INTERVAL)
        await trio.to_thread.run_sync(self._files.recover)
        await trio.to_thread.run_sync(self.keep_config)
        task_status.started()
        while True:
            await trio.sleep(WATCH_INTERVAL)
            # Not during a reload, when the master does not answer.
            async with self._lock:
                await self._observe()

    async def _observe(self) -> MasterState | None:
        try:
            state = await self._master.fetch_state()
        except EndpointError:
            state = None
        pid = state.pid if state is not None else 0
        if pid and pid != self._seen:
            # The new process loaded the files, which lack the runtime changes of the former one.
            if self._seen:
                await trio.to_thread.run_sync(self._files.mark_loaded)
            self._seen = pid
        self._pid = pid
        return state

    async def load(self) -> None:
        """Let HAProxy load `current`; if none runs, wait until the container has started it.

        Raises as `Supervisor.load` does, such as LoadRejectedError.
        """
        # A reload that another controller requested may still be in progress.
        is_running = await self._is_running()
        await self._wait_loaded()
        if not is_running:
            return
        report = await self._master.reload(limit=START_LIMIT)
        if not report.loaded:
            raise LoadRejectedError(report.output)

    async def _wait_loaded(self) -> None:
        with trio.move_on_after(START_LIMIT):
            while not await self._has_loaded():  # noqa: ASYNC110 - there is no event
                await trio.sleep(POLL_INTERVAL)
            return
        raise EndpointTimeoutError(self._name, f"haproxy was not started within {START_LIMIT:g} s; check its container")

    async def _is_running(self) -> bool:
        """Whether master or worker listens: during a reload the master does not, but its former worker does."""
        for path in (self._master_socket, self._sockets / "admin.sock"):
            with contextlib.suppress(OSError):
                async with await trio.open_unix_socket(path):
                    return True
        return False

    async def _has_loaded(self) -> bool:
        """Whether the newest worker answers on the runtime socket."""
        state = await self._observe()
        if state is None or not state.worker:
            return False
        try:
            return await self.runtime.ask_pid() == state.worker
        except EndpointError:
            return False


class AttachedAgent(LocalAgent):
    """Endpoint for the HAProxy with the master socket *master_socket*, which loads from *directory*."""

    _writes_at_once = True

    def __init__(self, name: str, directory: Path, binary: Path, master_socket: Path) -> None:
        super().__init__(name, directory, binary, supervisor=partial(AttachedMaster, master_socket=master_socket))
