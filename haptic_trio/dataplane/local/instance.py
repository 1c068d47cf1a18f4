"""Endpoint for an HAProxy instance on this machine.

Crash safety: each change of the process is enclosed by two writes of
`journal.json`, *pending* before it and *committed* after it. A controller that
is killed in between leaves `pending`. The next one points `current` back to
the committed generation, so a restart of HAProxy loads a generation that has
worked, and reports the running generation as unknown, so the next deployment
loads its generation instead of patching. This covers a partial patch, a patch
that was applied but not recorded, a reload without a known outcome, and a
cancelled deployment.

A patch is recorded in the journal of patches before the first command, and
settled after the last one. The files follow later: runtime changes are
collected, checked together, and written out. Until then a restart loads the
files with the recorded patches. A process that another program has reloaded
runs the files alone; the next patch or drift check finds that.
"""

import contextlib
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

import trio

from haptic_trio.dataplane.binary import probe_version
from haptic_trio.dataplane.disk import UnsafePathError, clear_directory
from haptic_trio.dataplane.endpoint import (
    NAMED_FILES,
    DeploymentRejectedError,
    DriftReport,
    EndpointError,
    EndpointInfo,
    EndpointStorageError,
    EndpointTimeoutError,
    ObservedState,
    PatchRejectedError,
    PortsUnavailableError,
)
from haptic_trio.dataplane.figures import InstanceFigures, ask_figures
from haptic_trio.dataplane.local.check import (
    CheckDirectory,
    CheckFailedError,
    CheckTimeoutError,
    ConfigRejectedError,
    Priority,
    check_config,
    find_acceptance,
    run_check,
)
from haptic_trio.dataplane.local.directory_lock import lock_directory
from haptic_trio.dataplane.local.files.instance_directory import GenerationFiles
from haptic_trio.dataplane.local.files.last_write import LastWrite
from haptic_trio.dataplane.local.files.leftovers import Leftovers
from haptic_trio.dataplane.local.former_worker import FormerWorker
from haptic_trio.dataplane.local.loading.new_worker import NewWorker
from haptic_trio.dataplane.local.loading.reduced_check import CHECK_LIMIT, passes_reduced_check
from haptic_trio.dataplane.local.ports import find_conflicts, read_conflicts
from haptic_trio.dataplane.local.process_log import describe_load
from haptic_trio.dataplane.local.runtime import OtherWorkerError
from haptic_trio.dataplane.local.supervisor import LoadRejectedError, OnExit, Supervisor, SupervisorFactory
from haptic_trio.dataplane.local.worker import WorkerState
from haptic_trio.dataplane.names_in_use import NamesInUseError
from haptic_trio.errors import text_of
from haptic_trio.haproxy.config.quoted import describe_problems
from haptic_trio.haproxy.model import Generation
from haptic_trio.haproxy.plan.capabilities import Capabilities
from haptic_trio.haproxy.plan.delta import make_delta
from haptic_trio.haproxy.plan.operations import Plan
from haptic_trio.haproxy.runtime.differences import Kind
from haptic_trio.logs import get_logger

WRITE_OUT_INTERVAL = 10.0
"""Seconds in which runtime changes are collected before they are checked together and written out."""


class LocalAgent:
    """Endpoint for the instance *name* in *directory*, usable while `run` runs; *supervisor* makes its supervisor."""

    _writes_at_once = False
    """Whether files are written with each patch: the container of HAProxy does not read the journal of patches."""

    def __init__(self, name: str, directory: Path, binary: Path, *, supervisor: SupervisorFactory = Supervisor) -> None:
        self._name = name
        self._directory = directory
        self._scratch = directory / "check"
        self._files = GenerationFiles(directory)
        self._lock = trio.Lock()
        self._supervisor = supervisor(directory, self._files, binary, name=name, lock=self._lock)
        self._capabilities: tuple[int, Capabilities] = 0, Capabilities()
        self._worker = WorkerState(name)
        self._patched_worker = 0
        """Pid of the worker that has the recorded patches; 0 if none."""
        self._fresh_worker = 0
        """Pid of a worker that was loaded and not patched since: the one before it may still answer; 0 if none."""
        self._patched = trio.Event()
        self._known: Generation | None = None
        """The last known running generation, for `restore_files`."""
        self._former = FormerWorker(name, self._files, self._worker)
        self._last_write = LastWrite()
        self._log = get_logger("agent").bind(instance=name)
        self._leftovers = Leftovers(self._files, self._exclusive, self._log)

    @property
    def name(self) -> str:
        """Unique and stable, such as `local-1`."""
        return self._name

    @property
    def old_workers(self) -> int:
        """Number of workers that finish their connections after a reload, a few seconds ago."""
        return self._supervisor.old_workers.count

    async def read_figures(self, backends: Sequence[str]) -> InstanceFigures:
        """See `ReadsFigures.read_figures`."""
        return await ask_figures(self._supervisor.runtime.ask, self.name, backends)

    async def run(
        self, *, on_exit: OnExit, grace: float, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Own the directory and its HAProxy until cancelled; see `Supervisor.run`."""
        async with lock_directory(self._directory):
            # A killed controller left the files of its checks, which may contain keys.
            await trio.to_thread.run_sync(clear_directory, self._scratch)
            async with trio.open_nursery() as nursery:
                await nursery.start(partial(self._supervisor.run, on_exit=on_exit, grace=grace))
                nursery.start_soon(self._write_out)
                nursery.start_soon(self._leftovers.run)
                task_status.started()

    async def describe(self) -> EndpointInfo:
        """Return the observed state; pid is 0 without a process."""
        async with self._exclusive():
            version = await trio.to_thread.run_sync(probe_version, self._supervisor.binary)
            running = await self._read_running()
            pid = self._supervisor.pid
            state = await self._supervisor.master.fetch_state() if pid else None
            worker = state.worker if state is not None else 0
            return EndpointInfo(
                name=self._name,
                version=version.text,
                generation=running.id if running is not None else "",
                reloads=state.reloads if state is not None else 0,
                pid=pid,
                old_workers=len(state.old_workers) if state is not None else 0,
                capabilities=await self._ask_capabilities(worker) if worker else Capabilities(),
            )

    async def _ask_capabilities(self, worker: int) -> Capabilities:
        known, capabilities = self._capabilities
        if known != worker:
            version = await trio.to_thread.run_sync(probe_version, self._supervisor.binary)
            capabilities = await self._supervisor.runtime.ask_capabilities(version.number)
            self._capabilities = worker, capabilities
        return capabilities

    async def observe(self) -> ObservedState:
        """Return the running generation and the capabilities of the newest known worker."""
        async with self._exclusive():
            running = await self._read_running()
            if running is None or not self._supervisor.pid:
                return ObservedState(running=running)
            worker, capabilities = self._capabilities
            # Workers of the same binary have the same capabilities; a patch verifies the pid of the worker.
            if not worker:
                capabilities = await self._ask_capabilities((await self._supervisor.master.fetch_state()).worker)
            return ObservedState(running=running, capabilities=capabilities)

    async def fetch_running(self) -> Generation | None:
        """Return the running generation according to the files, manual edits included; None if unknown."""
        async with self._exclusive():
            return await self._read_running()

    async def _read_running(self) -> Generation | None:
        if not self._files.clear:
            return None
        if running := self._files.find_running() or await trio.to_thread.run_sync(self._files.read_running):
            self._known = running
        return running

    async def restore_files(self) -> None:
        """Write the removed files again, from memory; a running HAProxy that lost its sockets is replaced."""
        async with self._exclusive():
            await trio.to_thread.run_sync(clear_directory, self._scratch)
            await trio.to_thread.run_sync(self._files.recover)
            await self._supervisor.restore()
            if (generation := self._known) is not None:
                name = await trio.to_thread.run_sync(self._files.stage, generation)
                await trio.to_thread.run_sync(self._files.begin, name)
                await trio.to_thread.run_sync(self._files.switch, name)
                await self._supervisor.load()
                await self._last_write.finish(partial(self._files.commit, name, generation))
                self._leftovers.request_removal()

    async def activate(self, generation: Generation) -> None:
        """Stage, check, switch, and load; after a rejection files and process are as before."""
        self._former.expect()
        try:
            async with self._exclusive():
                await self._activate(generation)
        finally:
            await self._former.end()  # noqa: ASYNC102  shields itself, with a limit

    async def _activate(self, generation: Generation) -> None:
        running = await trio.to_thread.run_sync(self._files.read_running)
        former_is_clear = self._files.clear
        await self._begin_former(running)
        socket, name = await trio.to_thread.run_sync(self._supervisor.renew_config), ""
        # The controller may have checked it with this binary already; a remote agent checks it here.
        is_checked = find_acceptance(self._supervisor.binary, generation) is not None
        if not is_checked and not await passes_reduced_check(
            self._supervisor.binary, running, generation, root=self._scratch
        ):
            name = await trio.to_thread.run_sync(self._files.stage, generation)
            await self._check(name)
        await self._require_ports(generation, running)
        # As late as possible: what moves from now on is in no file.
        files = self._former.successor or generation
        if not name or files is not generation:
            name = await trio.to_thread.run_sync(self._files.stage, files)
        await trio.to_thread.run_sync(self._files.begin, name)
        await trio.to_thread.run_sync(self._files.switch, name)
        try:
            new = NewWorker(socket, files, self._former, self._capabilities[1])
            loaded = await new.run(self._supervisor.load)
        except LoadRejectedError as exc:
            await self._last_write.finish(partial(self._files.abandon, clear=former_is_clear))  # noqa: ASYNC120  shields itself
            if unbound := read_conflicts(exc.output):
                raise PortsUnavailableError(self._name, unbound) from exc
            output = exc.output.replace(f"{self._files.current}/", "")
            raise DeploymentRejectedError(self._name, describe_load(output)) from exc
        except (EndpointError, OSError):
            await self._last_write.finish(partial(self._files.abandon, clear=False))  # noqa: ASYNC120  shields itself
            raise
        # The process has changed.
        await self._last_write.finish(partial(self._files.commit, name, files, loaded.running))
        self._leftovers.request_removal()
        self._known = loaded.running
        # Without moves its pid is not known yet. Patches may be recorded nevertheless: of the text alone.
        self._patched_worker = self._fresh_worker = loaded.pid
        if loaded.pid:
            self._worker.adopt(loaded.pid, loaded.removals, files, self._capabilities[1])
            await self._note_patched(loaded.running)
        if self._former.is_overdue or loaded.is_unknown:
            self._log.warning("a change of a worker has failed during a reload: the next deployment reloads")
            self._files.distrust()

    async def _begin_former(self, running: Generation | None) -> None:
        """Let the present worker be changed while it is being replaced, if its generation is known."""
        if running is None or self._writes_at_once or not (self._files.clear and self._supervisor.pid):
            return
        with contextlib.suppress(EndpointError):
            worker = (await self._supervisor.master.fetch_state()).worker
            self._former.begin(worker, await self._ask_capabilities(worker), running)
            self._patched_worker = worker

    async def patch_former(
        self, running: Generation, generation: Generation, plan: Plan, successor: Generation | None = None
    ) -> None:
        """See `ReplacesProcess.patch_former`."""
        await self._former.patch(self._supervisor.runtime, running, generation, plan, successor)
        self._patched.set()

    async def _check(self, name: str) -> None:
        configs = [self._supervisor.process_config, self._files.path_of(name)]
        try:
            await run_check(self._supervisor.binary, configs, limit=CHECK_LIMIT)
        except ConfigRejectedError as exc:
            raise DeploymentRejectedError(self._name, describe_problems(exc.problems)) from exc
        except (CheckTimeoutError, CheckFailedError) as exc:
            raise EndpointTimeoutError(self._name, str(exc)) from exc

    async def _require_ports(self, generation: Generation, running: Generation | None) -> None:
        # Without a process, other programs may use the ports now.
        former = running.config if running is not None and self._supervisor.pid else None
        if unbound := await trio.to_thread.run_sync(find_conflicts, generation.config, former):
            raise PortsUnavailableError(self._name, unbound)

    async def patch(self, generation: Generation, plan: Plan) -> None:
        """Apply the operations of *plan* to the worker, then record *generation*.

        Raises PatchRejectedError, with the files unchanged, if the worker
        rejects an operation, or if the running generation is unknown: no
        process, an interrupted deployment, or files changed by hand.
        """
        async with self._exclusive():
            self._require_known()
            # Recorded patches belong to one worker; an answer by another worker is an error.
            is_same = bool(self._patched_worker and self._files.read_patches())
            worker = self._patched_worker if is_same else (await self._supervisor.master.fetch_state()).worker
            capabilities = await self._ask_capabilities(worker)
            await trio.to_thread.run_sync(self._record_patch, generation)
            try:
                await self._worker.apply(
                    self._supervisor.runtime,
                    plan.operations,
                    worker=worker,
                    patient=not is_same or worker == self._fresh_worker,
                    capabilities=capabilities,
                    find_former=partial(trio.to_thread.run_sync, self._files.read_running),
                    restores=True,
                )
            except NamesInUseError:
                self._files.settle(None)
                raise
            except OtherWorkerError as exc:
                # That worker applied the operations, so the record stays open: the running generation is unknown.
                raise PatchRejectedError(self._name, "haproxy was reloaded by another program") from exc
            # The process has changed, so this must not be cancelled. Does not wait for the disk.
            self._files.settle(generation)
            self._known = generation
            self._patched_worker, self._fresh_worker = worker, 0
            await self._note_patched(generation)

    async def _note_patched(self, generation: Generation) -> None:
        """Write the files now, or later, after a patch that leads to *generation* was recorded."""
        if self._writes_at_once:
            await trio.to_thread.run_sync(self._files.join, generation)
            self._leftovers.request_removal()
        else:
            self._patched.set()

    def _record_patch(self, generation: Generation) -> None:
        running = self._files.read_intact()
        if running is None:
            raise PatchRejectedError(self._name, "the files were changed by hand: the running generation is unknown")
        self._files.record_patch(make_delta(running, generation))

    async def _write_out(self) -> None:
        """At intervals, check the runtime changes together and write them to the files that HAProxy loads."""
        async with contextlib.aclosing(CheckDirectory(self._scratch)) as directory:
            while True:
                await self._patched.wait()
                await trio.sleep(WRITE_OUT_INTERVAL)
                self._patched = trio.Event()
                try:
                    await self._write_out_once(directory)
                except EndpointStorageError as exc:
                    self._patched.set()
                    self._log.warning("runtime changes are not written out", error=text_of(exc))

    async def _write_out_once(self, directory: CheckDirectory) -> None:
        async with self._exclusive():
            generation = await self._read_running()
        if generation is None:
            return
        try:
            await check_config(
                self._supervisor.binary, generation, limit=CHECK_LIMIT, priority=Priority.IDLE, directory=directory
            )
        except ConfigRejectedError as exc:
            # The last good files stay; the controller makes the same check and reports the reason.
            self._log.warning("runtime changes are not written out", error=describe_problems(exc.problems))
            return
        except (CheckTimeoutError, CheckFailedError) as exc:
            # Without a verdict the check is repeated.
            self._patched.set()
            self._log.warning("runtime changes are not written out", error=text_of(exc))
            return
        async with self._exclusive():
            if self._files.clear and any(note.id == generation.id for note in self._files.read_patches()):
                await trio.to_thread.run_sync(self._files.join, generation)
                self._leftovers.request_removal()

    async def repair(self) -> DriftReport:
        """Compare files and worker with the committed generation; see `Endpoint.repair`."""
        async with self._exclusive():
            if not (self._files.committed and self._files.clear):
                return DriftReport()
            if edited := await trio.to_thread.run_sync(self._files.find_edited):
                reason = f"files changed by hand: {', '.join(edited[:NAMED_FILES])}"
                return DriftReport(found={Kind.FILES.value: len(edited)}, reasons=(reason,))
            generation = await self._read_running()
            worker = (await self._supervisor.master.fetch_state()).worker if self._supervisor.pid else 0
            if generation is None or not worker:
                return DriftReport(found={Kind.PROCESS.value: 1}, reasons=("process: no haproxy runs",))
            return await self._worker.repair(
                self._supervisor.runtime, generation, worker=worker, capabilities=await self._ask_capabilities(worker)
            )

    def _require_known(self) -> None:
        if not self._supervisor.pid:
            raise PatchRejectedError(self._name, "no haproxy runs")
        if not self._files.clear:
            raise PatchRejectedError(self._name, "a deployment was interrupted: the running generation is unknown")

    @contextlib.asynccontextmanager
    async def _exclusive(self) -> AsyncIterator[None]:
        """Hold the lock of the instance, and map errors of the disk."""
        async with self._lock:
            if self._last_write.is_running:
                raise EndpointStorageError(self._name, "an earlier write to the state directory has not ended")
            try:
                yield
            except OSError as exc:
                raise EndpointStorageError(self._name, str(exc)) from exc
            except UnsafePathError as exc:
                raise DeploymentRejectedError(self._name, str(exc)) from exc
