"""An HAProxy instance on this machine, as an endpoint.

How a crash is survived: whatever is done to the process stands between two
writes of the journal (`files`), *pending* before and *committed* after. A
controller that is killed in between leaves `pending` behind. The next one
turns `current` back to the committed generation, so HAProxy, should it die,
comes back with what has worked; and it reports that nobody knows what runs,
so the next deployment loads its generation instead of patching on top of a
guess, even when it is the committed one. A half-applied patch, a patch that
was applied but not noted, a reload whose outcome nobody read: all end there. A
deployment that was cancelled ends there too, without a crash.

For the same reason a patch changes the process first and the files last. The
other order would let a reload of somebody else's doing load files whose
operations then meet a process that has them already.

A server that a patch removes and that connections still use stays in the
process in maintenance for as long as they last (`haproxy/conversation`). It is
in no file and in no plan; each later patch tries first to delete it. The name
is taken until then: a patch that needs it is refused, and a reload follows.
"""

import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import trio

from haptic_trio.dataplane.binary import HaproxyVersion, probe_version
from haptic_trio.dataplane.check import CheckTimeoutError, ConfigRefusedError, run_check
from haptic_trio.dataplane.disk import UnsafePathError
from haptic_trio.dataplane.endpoint import (
    DeploymentRefusedError,
    EndpointError,
    EndpointInfo,
    EndpointStorageError,
    EndpointTimeoutError,
    PatchRefusedError,
)
from haptic_trio.dataplane.files import GenerationFiles
from haptic_trio.dataplane.ports import find_conflict
from haptic_trio.dataplane.supervisor import LoadRefusedError, OnExit, Supervisor
from haptic_trio.errors import HapticError
from haptic_trio.haproxy.capabilities import Capabilities
from haptic_trio.haproxy.check_output import parse_check_output
from haptic_trio.haproxy.model import Generation
from haptic_trio.haproxy.operations import Plan

CHECK_LIMIT = 60.0
"""Seconds that the check before a load may take."""


class InstanceLockedError(HapticError):
    """Another controller has this instance, or this state directory; trying again helps after that one has ended."""


class LocalAgent:
    """The instance *name* in *directory*; an Endpoint while `run` runs."""

    def __init__(self, name: str, directory: Path, binary: Path) -> None:
        self._name = name
        self._directory = directory
        self._files = GenerationFiles(directory)
        self._lock = trio.Lock()
        self._supervisor = Supervisor(directory, self._files, binary, name=name, lock=self._lock)
        self._capabilities: tuple[int, Capabilities] = 0, Capabilities()
        self._leftovers: tuple[int, tuple[str, ...]] = 0, ()

    @property
    def name(self) -> str:
        """Unique and stable, such as `local-1`."""
        return self._name

    async def run(
        self, *, on_exit: OnExit, grace: float, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Own the directory and its HAProxy until cancelled; see `Supervisor.run`."""
        with lock_directory(self._directory):
            await trio.to_thread.run_sync(self._files.recover)
            async with trio.open_nursery() as nursery:
                await nursery.start(partial(self._supervisor.run, on_exit=on_exit, grace=grace))
                task_status.started()

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
                capabilities=await self._ask_capabilities(worker, version) if worker else Capabilities(),
            )

    async def _ask_capabilities(self, worker: int, version: HaproxyVersion) -> Capabilities:
        known, capabilities = self._capabilities
        if known != worker:
            capabilities = await self._supervisor.runtime.ask_capabilities(version.number)
            self._capabilities = worker, capabilities
        return capabilities

    async def fetch_running(self) -> Generation | None:
        """Return what the process runs according to the disk, which hands may have changed; None when unknown."""
        async with self._exclusive():
            return await self._read_running()

    async def _read_running(self) -> Generation | None:
        return await trio.to_thread.run_sync(self._files.read_running) if self._files.clear else None

    async def activate(self, generation: Generation) -> None:
        """Stage, check, switch, and load; on refusal files and process are as before."""
        async with self._exclusive():
            name = await trio.to_thread.run_sync(self._files.stage, generation)
            await self._check(name)
            await self._require_ports(generation)
            former_is_clear = self._files.clear
            await trio.to_thread.run_sync(self._files.begin, name)
            await trio.to_thread.run_sync(self._files.switch, name)
            try:
                await self._supervisor.load()
            except LoadRefusedError as exc:
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(partial(self._files.abandon, clear=former_is_clear))
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
        except CheckTimeoutError as exc:
            raise EndpointTimeoutError(self._name, str(exc)) from exc

    async def _require_ports(self, generation: Generation) -> None:
        def find() -> str:
            running = self._files.read_running()
            return find_conflict(generation.config, running.config if running is not None else None)

        conflict = await trio.to_thread.run_sync(find)
        if conflict:
            raise DeploymentRefusedError(self._name, conflict)

    async def patch(self, generation: Generation, plan: Plan) -> None:
        """Apply the operations of *plan* to the worker, then make the files those of *generation*.

        Raises PatchRefusedError, with the former files in place, when the
        worker refuses one, or when the process cannot be trusted to be what
        the plan was made from: no process, an interrupted deployment before,
        or files changed by hand.
        """
        async with self._exclusive():
            await self._require_known()
            name = await trio.to_thread.run_sync(self._files.stage, generation)
            await trio.to_thread.run_sync(self._files.begin, name)
            worker = (await self._supervisor.master.fetch_state()).worker
            await self._patch_worker(plan, worker)
            await trio.to_thread.run_sync(self._files.switch, name)
            await self._commit(name, generation)

    async def _patch_worker(self, plan: Plan, worker: int) -> None:
        runtime = self._supervisor.runtime
        of, removals = self._leftovers
        # With its worker what was left over has gone.
        left = await runtime.retry(removals, worker=worker) if removals and of == worker else ()
        self._leftovers = worker, left
        self._leftovers = worker, (*left, *await runtime.apply(plan.operations, worker=worker))

    async def _require_known(self) -> None:
        if not self._supervisor.pid:
            raise PatchRefusedError(self._name, "no haproxy runs")
        if not self._files.clear:
            raise PatchRefusedError(self._name, "a deployment was interrupted: what runs is not known")
        if not await trio.to_thread.run_sync(self._files.is_intact):
            raise PatchRefusedError(self._name, "the files were changed by hand: what runs is not known")

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
