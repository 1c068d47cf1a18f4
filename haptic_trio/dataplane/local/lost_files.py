"""Recovery of an instance whose directory was removed while it runs."""

import contextlib
import os
import signal
from pathlib import Path
from typing import Final, NoReturn

import trio

from haptic_trio.dataplane.endpoint import EndpointError
from haptic_trio.dataplane.local.directory_lock import lock_directory
from haptic_trio.dataplane.local.instance import LocalAgent
from haptic_trio.dataplane.local.process import TERMINATE_LIMIT, MasterProcess
from haptic_trio.dataplane.local.sockets import SocketPathError
from haptic_trio.dataplane.local.supervisor import LoadRejectedError, OnExit, Supervisor
from haptic_trio.errors import text_of
from haptic_trio.logs import get_logger

KEEP_INTERVAL: Final = 1.0
"""Seconds between two checks whether the directory exists."""


class LastingSupervisor(Supervisor):
    """Supervisor that replaces an HAProxy whose sockets were removed: nothing can be sent to it."""

    _replaced: tuple[MasterProcess, ...] = ()
    """Masters that finish their connections."""

    async def run(
        self, *, on_exit: OnExit, grace: float, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """See `Supervisor.run`; when it is cancelled, replaced processes end as the present one does."""
        try:
            await super().run(on_exit=on_exit, grace=grace, task_status=task_status)
        finally:
            for process in self._replaced:
                if on_exit == "stop":
                    with trio.move_on_after(grace + 2 * TERMINATE_LIMIT, shield=True):
                        await process.end(grace=grace)
                process.close()

    async def load(self) -> None:
        """See `Supervisor.load`."""
        process = self._process
        if process is None or await trio.to_thread.run_sync((self._sockets / "master.sock").exists):
            await super().load()
            return
        # Both bind the same ports, so there is always one that accepts connections.
        self._process = None
        try:
            await self._start()
        except BaseException:
            self._keep(process)
            raise
        for ended in [one for one in self._replaced if not one.is_alive()]:
            ended.reap()
            ended.close()
        self._replaced = (*filter(MasterProcess.is_alive, self._replaced), MasterProcess(process.pid))
        self._replaced[-1].send(signal.SIGUSR1)
        # Wakes the task that waits for its exit.
        process.close()

    def _keep(self, process: MasterProcess) -> None:
        """Keep *process* as the present one, as its successor did not become ready."""
        if self._process is not None:
            self._process.send(signal.SIGKILL)
            self._replaced = (*self._replaced, self._process)
        self._process = process


async def keep_directory(agent: LocalAgent, directory: Path) -> NoReturn:
    """Create the *directory* of the running *agent* again each time that it was removed, until cancelled.

    Raises InstanceLockedError if another process has created it meanwhile.
    """
    log = get_logger("agent").bind(instance=agent.name)
    failure = ""
    async with contextlib.AsyncExitStack() as locks:
        while True:
            await trio.sleep(KEEP_INTERVAL)
            if not await trio.to_thread.run_sync(_is_lost, directory):
                continue
            try:
                # The lock of the removed file protects nothing.
                if not await trio.to_thread.run_sync((directory / "lock").exists):
                    await locks.enter_async_context(lock_directory(directory))
                await agent.restore_files()
            except (EndpointError, LoadRejectedError, SocketPathError, OSError) as exc:
                if str(exc) != failure:
                    log.warning("cannot create the state directory", path=str(directory), error=text_of(exc))
                failure = str(exc)
                continue
            failure = ""
            log.warning("the state directory was removed, and is created again", path=str(directory))


def _is_lost(directory: Path) -> bool:
    """Whether parts of *directory* are missing for certain."""
    for name in ("lock", "generations", "folders"):
        try:
            os.lstat(directory / name)
        except FileNotFoundError:
            return True
        except OSError:
            return False
    return False
