"""Endpoint for an HAProxy that another container of the same pod runs.

It is expected to be started, whenever both files are there, as

    haproxy -W -S MASTER_SOCKET -f STATE/process.cfg -f STATE/current/haproxy.cfg

with the same paths, by the same user. Whoever runs it starts it again when it
ends. Nothing here starts, signals or ends it: it is told to load its
configuration again on its master socket, and the first generation is loaded
by its being started.
"""

import contextlib
from functools import partial
from pathlib import Path

import trio

from haptic_trio.dataplane.endpoint import EndpointError, EndpointTimeoutError
from haptic_trio.dataplane.local.instance import LocalAgent
from haptic_trio.dataplane.local.instance_directory import GenerationFiles
from haptic_trio.dataplane.local.master import MasterClient, MasterState
from haptic_trio.dataplane.local.sockets import choose_socket_directory
from haptic_trio.dataplane.local.supervisor import START_LIMIT, LoadRefusedError, OnExit, Supervisor

WATCH_INTERVAL = 0.5
"""Seconds between two looks whether HAProxy runs."""
POLL_INTERVAL = 0.05
"""Seconds between two looks at an HAProxy that is about to be started."""


class AttachedMaster(Supervisor):
    """Stands where a supervisor does, without a process of its own; *master_socket* belongs to HAProxy's master."""

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
        """The master process, as it calls itself; 0 when it did not answer the last time."""
        return self._pid

    @property
    def master(self) -> MasterClient:
        """Client of the master socket."""
        return self._master

    async def run(
        self,
        *,
        on_exit: OnExit,  # noqa: ARG002 - the process is not ours to end
        grace: float,  # noqa: ARG002
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Look whether HAProxy runs, until cancelled; the files are recovered once it loads nothing any more."""
        self._sockets = await trio.to_thread.run_sync(choose_socket_directory, self._directory)
        with trio.move_on_after(START_LIMIT):
            while await self._is_there() and not await self._has_loaded():  # noqa: ASYNC110 - nobody else tells
                await trio.sleep(POLL_INTERVAL)
        await trio.to_thread.run_sync(self._files.recover)
        await trio.to_thread.run_sync(self._write_config)
        task_status.started()
        while True:
            await trio.sleep(WATCH_INTERVAL)
            # While it is told to load it does not answer, and that means nothing.
            async with self._lock:
                await self._look()

    async def _look(self) -> MasterState | None:
        try:
            state = await self._master.fetch_state()
        except EndpointError:
            state = None
        pid = state.pid if state is not None else 0
        if pid and pid != self._seen:
            # Whoever started it gave it the files, which lack what another one was told.
            if self._seen:
                await trio.to_thread.run_sync(self._files.mark_loaded)
            self._seen = pid
        self._pid = pid
        return state

    async def load(self) -> None:
        """Have HAProxy load what `current` holds; where none runs, wait until it has been started with that.

        Raises as `Supervisor.load` does.
        """
        # One that is there may still be loading what somebody told it before, and was not awaited.
        is_there = await self._is_there()
        await self._wait_loaded()
        if not is_there:
            return
        report = await self._master.reload(limit=START_LIMIT)
        if not report.loaded:
            raise LoadRefusedError(report.output)

    async def _wait_loaded(self) -> None:
        with trio.move_on_after(START_LIMIT):
            while not await self._has_loaded():  # noqa: ASYNC110 - nobody else tells
                await trio.sleep(POLL_INTERVAL)
            return
        raise EndpointTimeoutError(self._name, f"nobody has started haproxy within {START_LIMIT:g} s")

    async def _is_there(self) -> bool:
        """Whether anything of HAProxy listens: a master that loads itself anew does not, but its former worker does."""
        for path in (self._master_socket, self._sockets / "admin.sock"):
            with contextlib.suppress(OSError):
                async with await trio.open_unix_socket(path):
                    return True
        return False

    async def _has_loaded(self) -> bool:
        """Whether the newest worker is the one that answers."""
        state = await self._look()
        if state is None or not state.worker:
            return False
        try:
            return await self.runtime.ask_pid() == state.worker
        except EndpointError:
            return False


class AttachedAgent(LocalAgent):
    """The HAProxy with the master socket *master_socket*, which loads from *directory*; an Endpoint."""

    _writes_at_once = True

    def __init__(self, name: str, directory: Path, binary: Path, master_socket: Path) -> None:
        super().__init__(name, directory, binary, supervisor=partial(AttachedMaster, master_socket=master_socket))
