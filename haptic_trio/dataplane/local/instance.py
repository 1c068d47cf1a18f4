"""Endpoint for an HAProxy instance on this machine.

How a crash is survived: whatever is done to the process stands between two
writes of the journal (`files`), *pending* before and *committed* after. A
controller that is killed in between leaves `pending` behind. The next one
turns `current` back to the committed generation, so HAProxy, should it die,
comes back with what has worked; and it reports that nobody knows what runs,
so the next deployment loads its generation instead of patching on top of a
guess, even when it is the committed one. A half-applied patch, a patch that
was applied but not noted, a reload whose outcome nobody read: all end there. A
deployment that was cancelled ends there too, without a crash.

A patch is noted in the journal of patches before the process is told anything,
and settled after. The files follow later: what the process was told in the
meantime is gathered, checked as a whole, and written out. Until then a process
that has to be started anew gets the files with the notes; one that somebody
else has had reloaded has the files alone, which the next patch or look finds.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import trio

from haptic_trio.dataplane.binary import probe_version
from haptic_trio.dataplane.disk import UnsafePathError
from haptic_trio.dataplane.endpoint import (
    DeploymentRefusedError,
    DriftReport,
    EndpointError,
    EndpointInfo,
    EndpointStorageError,
    EndpointTimeoutError,
    PatchRefusedError,
    PortsUnavailableError,
    Survey,
)
from haptic_trio.dataplane.local.check import (
    CheckDirectory,
    CheckFailedError,
    CheckTimeoutError,
    ConfigRefusedError,
    check_config,
    find_acceptance,
    run_check,
)
from haptic_trio.dataplane.local.instance_directory import GenerationFiles
from haptic_trio.dataplane.local.ports import find_conflicts, read_conflicts
from haptic_trio.dataplane.local.runtime import OtherWorkerError
from haptic_trio.dataplane.local.supervisor import LoadRefusedError, OnExit, Supervisor, SupervisorFactory
from haptic_trio.dataplane.local.worker import WorkerState
from haptic_trio.errors import HapticError
from haptic_trio.haproxy.config.check_output import parse_check_output
from haptic_trio.haproxy.config.reduced import reduce_generation
from haptic_trio.haproxy.model import Generation
from haptic_trio.haproxy.plan.capabilities import Capabilities
from haptic_trio.haproxy.plan.delta import make_delta
from haptic_trio.haproxy.plan.operations import Plan
from haptic_trio.haproxy.runtime.differences import Kind
from haptic_trio.logs import get_logger

CHECK_LIMIT = 60.0
"""Seconds that the check before a load may take."""
WRITE_OUT_INTERVAL = 10.0
"""Seconds in which changes at runtime are gathered before they are checked as a whole and written out."""
NAMED_FILES = 5
"""Files that a report names at most."""


class InstanceLockedError(HapticError):
    """Another controller has this instance, or this state directory; trying again helps after that one has ended."""


class LocalAgent:
    """The instance *name* in *directory*, kept by what *supervisor* makes; an Endpoint while `run` runs."""

    _writes_at_once = False
    """Whether the files follow each patch: HAProxy may be started by somebody who knows of no note."""

    def __init__(self, name: str, directory: Path, binary: Path, *, supervisor: SupervisorFactory = Supervisor) -> None:
        self._name = name
        self._directory = directory
        self._scratch = directory / "check"
        self._files = GenerationFiles(directory)
        self._lock = trio.Lock()
        self._supervisor = supervisor(directory, self._files, binary, name=name, lock=self._lock)
        self._capabilities: tuple[int, Capabilities] = 0, Capabilities()
        self._worker = WorkerState(name)
        self._told = 0
        """The worker that was told what is noted."""
        self._patched = trio.Event()
        self._log = get_logger("agent").bind(instance=name)

    @property
    def name(self) -> str:
        """Unique and stable, such as `local-1`."""
        return self._name

    async def run(
        self, *, on_exit: OnExit, grace: float, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Own the directory and its HAProxy until cancelled; see `Supervisor.run`."""
        with lock_directory(self._directory):
            await trio.to_thread.run_sync(self._clear_scratch)
            async with trio.open_nursery() as nursery:
                await nursery.start(partial(self._supervisor.run, on_exit=on_exit, grace=grace))
                nursery.start_soon(self._write_out)
                task_status.started()

    def _clear_scratch(self) -> None:
        # Checks of a controller that was killed have left their files, and keys among them.
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir(mode=0o700)

    async def describe(self) -> EndpointInfo:
        """Return what runs; an instance without a process has pid 0."""
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
                capabilities=await self._ask_capabilities(worker) if worker else Capabilities(),
            )

    async def _ask_capabilities(self, worker: int) -> Capabilities:
        known, capabilities = self._capabilities
        if known != worker:
            version = await trio.to_thread.run_sync(probe_version, self._supervisor.binary)
            capabilities = await self._supervisor.runtime.ask_capabilities(version.number)
            self._capabilities = worker, capabilities
        return capabilities

    async def survey(self) -> Survey:
        """Return what `fetch_running` does, and what the newest known worker can be told."""
        async with self._exclusive():
            running = await self._read_running()
            if running is None or not self._supervisor.pid:
                return Survey(running=running)
            worker, capabilities = self._capabilities
            # Another worker of the same binary can do the same, and a patch looks who answers.
            if not worker:
                capabilities = await self._ask_capabilities((await self._supervisor.master.fetch_state()).worker)
            return Survey(running=running, capabilities=capabilities)

    async def fetch_running(self) -> Generation | None:
        """Return what the process runs according to the disk, which hands may have changed; None when unknown."""
        async with self._exclusive():
            return await self._read_running()

    async def _read_running(self) -> Generation | None:
        if not self._files.clear:
            return None
        return self._files.find_running() or await trio.to_thread.run_sync(self._files.read_running)

    async def activate(self, generation: Generation) -> None:
        """Stage, check, switch, and load; on refusal files and process are as before."""
        async with self._exclusive():
            running = await trio.to_thread.run_sync(self._files.read_running)
            name = await trio.to_thread.run_sync(self._files.stage, generation)
            # What the controller has had this binary check is not checked twice; an agent elsewhere knows of no check.
            is_checked = find_acceptance(self._supervisor.binary, generation) is not None
            if not is_checked and (running is None or not await self._passes_reduced_check(running, generation)):
                await self._check(name)
            await self._require_ports(generation, running)
            former_is_clear = self._files.clear
            await trio.to_thread.run_sync(self._files.begin, name)
            await trio.to_thread.run_sync(self._files.switch, name)
            try:
                await self._supervisor.load()
            except LoadRefusedError as exc:
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(partial(self._files.abandon, clear=former_is_clear))
                if unbound := read_conflicts(exc.output):
                    raise PortsUnavailableError(self._name, unbound) from exc
                raise DeploymentRefusedError(self._name, self._quote(exc.output)) from exc
            except (EndpointError, OSError):
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(partial(self._files.abandon, clear=False))
                raise
            await self._commit(name, generation)

    def _quote(self, output: str) -> str:
        errors = parse_check_output(output.replace(f"{self._files.current}/", "")).errors
        return "; ".join(map(str, errors)) or output

    async def _check(self, name: str) -> None:
        configs = [self._supervisor.process_config, self._files.path_of(name)]
        try:
            await run_check(self._supervisor.binary, configs, limit=CHECK_LIMIT)
        except ConfigRefusedError as exc:
            raise DeploymentRefusedError(self._name, str(exc)) from exc
        except (CheckTimeoutError, CheckFailedError) as exc:
            raise EndpointTimeoutError(self._name, str(exc)) from exc

    async def _passes_reduced_check(self, running: Generation, generation: Generation) -> bool:
        """Whether HAProxy accepts a reduced configuration with the differences to *running*.

        False if only a check of the complete configuration can decide. Loading
        reads the complete configuration anyway, and leaves the process
        unchanged if that fails, so the check need not read it as well.
        """
        reduced = await trio.to_thread.run_sync(reduce_generation, running, generation)
        if reduced is None:
            return False
        try:
            await check_config(self._supervisor.binary, reduced, limit=CHECK_LIMIT, root=self._scratch)
        except (ConfigRefusedError, CheckTimeoutError, CheckFailedError):
            return False
        return True

    async def _require_ports(self, generation: Generation, running: Generation | None) -> None:
        # A process that is gone has no port any more: others may have taken them since.
        former = running.config if running is not None and self._supervisor.pid else None
        if unbound := await trio.to_thread.run_sync(find_conflicts, generation.config, former):
            raise PortsUnavailableError(self._name, unbound)

    async def patch(self, generation: Generation, plan: Plan) -> None:
        """Apply the operations of *plan* to the worker, then make the files those of *generation*.

        Raises PatchRefusedError, with the former files in place, when the
        worker refuses one, or when the process cannot be trusted to be what
        the plan was made from: no process, an interrupted deployment before,
        or files changed by hand.
        """
        async with self._exclusive():
            self._require_known()
            # What was noted says who was told it. Another worker that answers knows nothing of that, and is refused.
            uses_lines = bool(self._told and self._files.read_notes())
            worker = self._told if uses_lines else (await self._supervisor.master.fetch_state()).worker
            capabilities = await self._ask_capabilities(worker)
            await trio.to_thread.run_sync(self._note, generation)
            try:
                await self._worker.apply(
                    self._supervisor.runtime,
                    plan.operations,
                    worker=worker,
                    patient=not uses_lines,
                    capabilities=capabilities,
                    find_former=partial(trio.to_thread.run_sync, self._files.read_running),
                )
            except OtherWorkerError as exc:
                # It has taken what it was told, so the note stays open: what runs is not known.
                raise PatchRefusedError(self._name, "haproxy was reloaded by somebody else") from exc
            # The process has changed already: that is noted whatever comes. Does not wait for the disk.
            self._files.settle(generation)
            self._told = worker
            if self._writes_at_once:
                await trio.to_thread.run_sync(self._files.join, generation)
            else:
                self._patched.set()

    def _note(self, generation: Generation) -> None:
        running = self._files.read_intact()
        if running is None:
            raise PatchRefusedError(self._name, "the files were changed by hand: what runs is not known")
        self._files.note(make_delta(running, generation))

    async def _write_out(self) -> None:
        """Check what the process was told at runtime, now and then, and make it the files that HAProxy loads."""
        directory = CheckDirectory(self._scratch)
        try:
            while True:
                await self._patched.wait()
                await trio.sleep(WRITE_OUT_INTERVAL)
                self._patched = trio.Event()
                with contextlib.suppress(EndpointStorageError):
                    await self._write_out_once(directory)
        finally:
            directory.remove()

    async def _write_out_once(self, directory: CheckDirectory) -> None:
        async with self._exclusive():
            generation = await self._read_running()
        if generation is None:
            return
        try:
            await check_config(
                self._supervisor.binary, generation, limit=CHECK_LIMIT, background=True, directory=directory
            )
        except (ConfigRefusedError, CheckTimeoutError, CheckFailedError) as exc:
            if not isinstance(exc, ConfigRefusedError):
                # No verdict: it is asked again.
                self._patched.set()
            # The files stay those that are known to be good; whoever deployed it makes the same check, and tells why.
            self._log.warning("what haproxy was told is not written out", error=str(exc))
            return
        async with self._exclusive():
            if self._files.clear and any(note.id == generation.id for note in self._files.read_notes()):
                await trio.to_thread.run_sync(self._files.join, generation)

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
            raise PatchRefusedError(self._name, "no haproxy runs")
        if not self._files.clear:
            raise PatchRefusedError(self._name, "a deployment was interrupted: what runs is not known")

    async def _commit(self, name: str, generation: Generation) -> None:
        # The process has changed already: the note of that is not given up. As all of these, bounded by the disk alone.
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._files.commit, name, generation)

    @contextlib.asynccontextmanager
    async def _exclusive(self) -> AsyncIterator[None]:
        """Hold the instance, and map what its disk refuses."""
        async with self._lock:
            try:
                yield
            except OSError as exc:
                raise EndpointStorageError(self._name, str(exc)) from exc
            except UnsafePathError as exc:
                raise DeploymentRefusedError(self._name, str(exc)) from exc


@contextlib.contextmanager
def lock_directory(directory: Path) -> Iterator[None]:
    """Have *directory*, which is made, for this process alone; raises InstanceLockedError when another one has it."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # Ends with this process, however it ends; HAProxy does not inherit it.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        raise InstanceLockedError(f"{directory} belongs to another controller") from exc
    else:
        yield
    finally:
        os.close(descriptor)
