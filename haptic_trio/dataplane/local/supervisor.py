"""Supervisor of one HAProxy: starts, adopts, reloads, restarts and ends its master process."""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

import trio

from haptic_trio.backoff import Backoff
from haptic_trio.dataplane.endpoint import EndpointError, EndpointTimeoutError, EndpointUnreachableError
from haptic_trio.dataplane.local.check import PRELUDE, PRELUDE_NAME, ConfigRejectedError, run_check
from haptic_trio.dataplane.local.files.instance_directory import CONFIG_NAME, GenerationFiles
from haptic_trio.dataplane.local.files.process_config import ProcessConfig
from haptic_trio.dataplane.local.files.restart_files import DamagedFilesError, prepare_restart
from haptic_trio.dataplane.local.master import MasterClient, ReloadReport
from haptic_trio.dataplane.local.old_workers import OldWorkers
from haptic_trio.dataplane.local.process import (
    RECORD_NAME,
    TERMINATE_LIMIT,
    MasterProcess,
    ProcessRecord,
    find_masters,
    find_record,
    read_record,
    spawn,
    write_record,
)
from haptic_trio.dataplane.local.process_log import ProcessLog, StartFailures, describe_load
from haptic_trio.dataplane.local.runtime import RuntimeClient
from haptic_trio.dataplane.local.sockets import choose_socket_directory, require_writable
from haptic_trio.errors import HapticError, text_of
from haptic_trio.logs import get_logger

OnExit = Literal["leave", "stop"]
"""HAProxy at the end of its supervisor: it continues and can be adopted, or it is ended."""

START_LIMIT = 60.0
"""Seconds for a start or a reload; HAProxy needs about one for 20,000 backends or 1,000 certificates."""
POLL_INTERVAL = 0.01
"""Seconds between two checks of a starting process."""
FIRST_DELAY = 0.1
LONGEST_DELAY = 10.0
"""Seconds before a restart after a failure: doubled from the first to the longest."""
STABLE_AFTER = 10.0
"""Seconds after which an exit does not count as a failed start."""
UPKEEP_INTERVAL = 10.0
"""Seconds between two checks of the size of HAProxy's log file and of the record of the process."""


class LoadRejectedError(HapticError):
    """HAProxy rejected the load; `output` has its messages, which may quote Secrets. Permanent."""

    def __init__(self, output: str) -> None:
        self.output = output
        super().__init__(describe_load(output))


class Supervisor:
    """Supervisor of the instance at *directory*, whose HAProxy loads the current generation of *files*.

    `run` owns the process. `load` and the clients may be used while it runs
    and the caller holds *lock*; the supervisor takes it for a restart. The
    result of *start_options* is added to the command line of each start; it
    is called in a thread, and may raise LoadRejectedError to prevent the start.
    """

    def __init__(
        self,
        directory: Path,
        files: GenerationFiles,
        binary: Path,
        *,
        name: str,
        lock: trio.Lock,
        start_options: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self.binary = binary
        """The binary of the process; an adopted process may run another one than requested."""
        self.output = ProcessLog(directory / "haproxy.log")
        self.old_workers = OldWorkers(name)
        self._directory = directory
        self._files = files
        self._name = name
        self._lock = lock
        self._start_options = start_options
        self._config = ProcessConfig(directory / PRELUDE_NAME, PRELUDE)
        self._record_path = directory / RECORD_NAME
        self._process: MasterProcess | None = None
        self._sockets = directory
        self._wanted = trio.Event()
        self._log = get_logger("supervisor").bind(instance=name)
        self._start_failures = StartFailures(self._log)

    @property
    def process_config(self) -> Path:
        """The first of HAProxy's two configuration files: the settings of the instance."""
        return self._config.path

    @property
    def pid(self) -> int:
        """Pid of the master; 0 if none runs."""
        return self._process.pid if self._process is not None and self._process.is_alive() else 0

    @property
    def master(self) -> MasterClient:
        """Client of the master socket."""
        return MasterClient(self._sockets / "master.sock", endpoint=self._name)

    @property
    def runtime(self) -> RuntimeClient:
        """Client of the runtime socket."""
        return RuntimeClient(self._sockets / "admin.sock", endpoint=self._name)

    async def run(
        self,
        *,
        on_exit: OnExit,
        grace: float,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Keep HAProxy running until cancelled.

        Adopts a process of an earlier controller, and recovers the files once
        its load is complete. Without one, starts HAProxy if a generation is
        on disk, else with the first `load`; started() after that. With
        `on_exit="stop"` HAProxy is ended: gracefully, and after *grace*
        seconds by force.
        """
        try:
            async with self._lock:
                await self._settle()
            task_status.started()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep_up)
                await self._keep_alive()
        finally:
            process = self._process
            if on_exit == "stop":
                if process is not None:
                    with trio.move_on_after(grace + 2 * TERMINATE_LIMIT, shield=True):
                        await process.end(grace=grace)
                self._remove_traces()
            if process is not None:
                process.close()
            self._process = None

    async def load(self) -> None:
        """Make HAProxy run what `current` holds, by a reload or a start; the caller holds the lock.

        Raises LoadRejectedError if HAProxy rejects it, and EndpointError if it
        does not answer, and OSError; in each case the caller points `current` back.
        """
        process = self._process
        if process is None or not await self._is_ready():
            await self._start()
            return
        await trio.to_thread.run_sync(require_writable, self._sockets)
        report = await self._reload(process)
        await trio.to_thread.run_sync(self.output.shorten)
        if not report.loaded:
            raise LoadRejectedError(report.output)

    async def restore(self) -> None:
        """Write the files of the process again, after they were removed; the caller holds the lock."""
        self._sockets = await trio.to_thread.run_sync(choose_socket_directory, self._directory)
        await trio.to_thread.run_sync(self.keep_config)
        if self._process is not None:
            await trio.to_thread.run_sync(self._try_record, self._process)

    async def _reload(self, process: MasterProcess) -> ReloadReport:
        # If the master exits, a worker may keep its end of the connection open, and no answer would arrive.
        outcomes: list[ReloadReport | EndpointError] = []
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                try:
                    outcomes.append(await self.master.reload(limit=START_LIMIT))
                except EndpointError as exc:
                    outcomes.append(exc)
                nursery.cancel_scope.cancel(reason="the master has answered")

            nursery.start_soon(ask)
            while process.is_alive():  # noqa: ASYNC110 - only one task may wait for its exit
                await trio.sleep(POLL_INTERVAL)
            nursery.cancel_scope.cancel(reason="the master has exited")
        if not outcomes:
            raise EndpointUnreachableError(self._name, "haproxy exited during a reload")
        if isinstance(outcomes[0], EndpointError):
            raise outcomes[0]
        return outcomes[0]

    async def _is_ready(self) -> bool:
        """Return True once no reload is in progress; False if no process runs."""
        if self._process is None:
            return False
        try:
            await self._wait_ready(self._process)
        except LoadRejectedError:
            return False
        return True

    async def _settle(self) -> None:
        self._sockets = await trio.to_thread.run_sync(choose_socket_directory, self._directory)
        record = await trio.to_thread.run_sync(find_record, self._directory)
        found = await trio.to_thread.run_sync(find_masters, str(self._config.path))
        # During a reload the command line of a master is briefly empty; the record still has its pid.
        recorded = [record.pid] if record is not None and record.pid not in found else []
        for pid in (*recorded, *found):
            try:
                process = MasterProcess(pid)
            except ProcessLookupError:
                continue
            if self._process is None and await self._adopt(process, record):
                continue
            if pid in found:
                self._log.warning("ending an haproxy that cannot be adopted", pid=pid)
                await process.end(grace=0.0)
            process.close()
        # Not earlier: a process in a reload would lose its files.
        await trio.to_thread.run_sync(self._files.recover)
        await trio.to_thread.run_sync(self.keep_config)
        if self._process is None and self._files.committed:
            self._wanted.set()
            await self._restart()

    async def _adopt(self, process: MasterProcess, record: ProcessRecord | None) -> bool:
        if record is not None and record.pid == process.pid:
            self._sockets = Path(record.sockets)
            self.binary = Path(record.binary)
        try:
            await self._wait_ready(process)
        except (LoadRejectedError, EndpointError) as exc:
            self._log.warning("haproxy does not answer", pid=process.pid, error=text_of(exc))
            return False
        self._process = process
        self._wanted.set()
        await trio.to_thread.run_sync(self._try_record, process)
        self._log.info("haproxy adopted", pid=process.pid)
        return True

    async def _keep_alive(self) -> None:
        delay, backoff = 0.0, Backoff(base=FIRST_DELAY, limit=LONGEST_DELAY)
        while True:
            await self._wanted.wait()
            process = self._process
            if process is None:
                await trio.sleep(delay)
                delay = backoff.next()
                async with self._lock:
                    if self._process is None:
                        await self._restart()
                continue
            since = trio.current_time()
            await process.wait_exit()
            if trio.current_time() - since > STABLE_AFTER:
                delay = 0.0
                backoff.reset()
            async with self._lock:
                if self._process is process:
                    self._forget(process)

    async def _restart(self) -> None:
        """Start HAProxy from the last good generation, if there is one; a failure is logged."""
        try:
            await trio.to_thread.run_sync(partial(self._files.abandon, clear=False))
            if not self._files.committed:
                self._wanted = trio.Event()
                return
            was_patched = await trio.to_thread.run_sync(partial(prepare_restart, self._files, instance=self._name))
            rejection: LoadRejectedError | None = None
            try:
                await self._start()
            except LoadRejectedError as exc:
                rejection = exc
            if rejection is not None:
                # Patches led to a configuration that HAProxy rejects; the generation before it has worked.
                if not (was_patched and await self._is_rejected()):
                    raise rejection
                if not await trio.to_thread.run_sync(self._files.roll_back):
                    raise rejection
                self._log.warning("rolling back to the previous generation", error=text_of(rejection))
                await self._start()
        except (LoadRejectedError, DamagedFilesError, EndpointError, OSError) as exc:
            self._start_failures.take(text_of(exc))
            return
        try:
            await trio.to_thread.run_sync(self._files.mark_loaded)
        except OSError as exc:
            # The next deployment loads its generation.
            self._files.distrust()
            self._log.warning("cannot write the files of the instance", error=text_of(exc))

    async def _is_rejected(self) -> bool:
        """Whether HAProxy rejects the files; else it may have been killed during the start."""
        try:
            await run_check(self.binary, [self._config.path, self._files.current / CONFIG_NAME], limit=START_LIMIT)
        except ConfigRejectedError:
            return True
        except HapticError:
            return False
        return False

    async def _start(self) -> None:
        if self._process is not None:
            self._forget(self._process)
        await trio.to_thread.run_sync(self.output.shorten)
        await trio.to_thread.run_sync(self.keep_config)
        offset = self.output.size()
        try:
            self._process = await trio.to_thread.run_sync(self._spawn)
            self._wanted.set()
            await self._wait_ready(self._process)
        except (LoadRejectedError, ProcessLookupError) as exc:
            if self._process is not None:
                self._forget(self._process, is_start=True)
            reason = exc.output if isinstance(exc, LoadRejectedError) else "haproxy exited without a message"
            raise LoadRejectedError(self.output.read_since(offset) or reason) from exc
        self._start_failures.end()
        self._log.info("haproxy started", pid=self.pid)

    def keep_config(self) -> None:
        """See `ProcessConfig.keep`."""
        self._config.keep(self._sockets)

    def renew_config(self) -> Path:
        """See `ProcessConfig.renew`."""
        return self._config.renew(self._sockets)

    def _spawn(self) -> MasterProcess:
        require_writable(self._sockets)  # it would exit with bound ports, and cut connections for other instances
        # -C: the controller's working directory may be removed, and HAProxy uses its own at every reload.
        # -db: with `daemon` in the configuration the process would detach from its supervisor.
        options = ["-W", "-db", "-C", str(self._directory), "-S", f"{self._sockets}/master.sock,mode,600"]
        files = ["-f", str(self._config.path), "-f", str(self._files.current / CONFIG_NAME)]
        pid = spawn([str(self.binary), *options, *files, *self._start_options()], self.output.path)
        process = MasterProcess(pid)
        self._try_record(process)
        return process

    def _keep_record(self, process: MasterProcess) -> None:
        """Write the record of *process* unless it is there; raises OSError."""
        record = process.record(self.binary, self._sockets)
        # With a full disk, the record of the former process has stayed.
        if read_record(self._record_path) != record:
            write_record(self._record_path, record)

    def _try_record(self, process: MasterProcess) -> None:
        """Write the record of *process*; without it, the process is found by its command line."""
        try:
            self._keep_record(process)
        except OSError as exc:
            self._log.warning("cannot write the record of haproxy", pid=process.pid, error=text_of(exc))

    async def _wait_ready(self, process: MasterProcess) -> None:
        with trio.move_on_after(START_LIMIT):
            while process.is_alive():
                with contextlib.suppress(EndpointUnreachableError):
                    state = await self.master.fetch_state()
                    if state.pid == process.pid and state.worker == await self.runtime.ask_pid():
                        return
                # There is no event for the creation of its sockets.
                await trio.sleep(POLL_INTERVAL)
            raise LoadRejectedError("haproxy has exited")
        raise EndpointTimeoutError(self._name, f"haproxy was not ready within {START_LIMIT:g} s")

    def _forget(self, process: MasterProcess, *, is_start: bool = False) -> None:
        # `debug` for a start, whose error says more.
        (self._log.debug if is_start else self._log.warning)("haproxy exited", pid=process.pid, how=process.reap())
        process.close()
        self._process = None

    def _remove_traces(self) -> None:
        # The directory may be read-only by now; that of the sockets may be outside of it, with other files.
        with contextlib.suppress(OSError):
            for path in (self._record_path, *self._sockets.glob("*.sock")):
                path.unlink(missing_ok=True)
            self._sockets.rmdir()

    async def _keep_up(self) -> None:
        """At intervals, shorten the log file, replace a lost or wrong record of the process, and count old workers."""
        while True:
            await trio.sleep(UPKEEP_INTERVAL)
            if self.pid:
                await self.old_workers.observe(self.master)
            try:
                await trio.to_thread.run_sync(self.output.shorten)
                if self._process is not None:
                    await trio.to_thread.run_sync(self._keep_record, self._process)
            except OSError as exc:
                self._log.warning("cannot write the files of the instance", error=text_of(exc))


class SupervisorFactory(Protocol):
    """Makes the supervisor of an instance; arguments as `Supervisor` takes them."""

    def __call__(
        self, directory: Path, files: GenerationFiles, binary: Path, /, *, name: str, lock: trio.Lock
    ) -> Supervisor: ...
