"""Former worker: the process that serves while a load replaces it, and what it runs meanwhile.

Its changes are recorded in the journal of the committed generation, so that it
goes on with them, or is started again with them, if the load is rejected. Each
change comes with its successor: the generation that is being loaded, with this
change. The end of a load waits for a change in progress, and later changes are
rejected. The new worker takes over the socket before the load is complete, so a
change uses one connection to the former worker.
"""

from typing import Final

import msgspec
import trio

from haptic_trio.dataplane.endpoint import EndpointError, EndpointStorageError, PatchRejectedError
from haptic_trio.dataplane.local.files.instance_directory import GenerationFiles
from haptic_trio.dataplane.local.runtime import OtherWorkerError, RuntimeClient
from haptic_trio.dataplane.local.worker import WorkerState
from haptic_trio.haproxy.model import Generation
from haptic_trio.haproxy.plan.capabilities import Capabilities
from haptic_trio.haproxy.plan.delta import make_delta
from haptic_trio.haproxy.plan.operations import Plan

_REPLACED: Final = "the former process has been replaced"
END_LIMIT: Final = 10.0
"""Seconds that the end of a load waits for a change; longer than the time limit for an answer of HAProxy."""


class _Former(msgspec.Struct):
    pid: int
    capabilities: Capabilities
    running: Generation

    async def find_running(self) -> Generation:
        await trio.lowlevel.checkpoint()
        return self.running


class FormerWorker:
    """Changes of the worker of instance *name* between `begin` and `end`, recorded in *files*."""

    def __init__(self, name: str, files: GenerationFiles, state: WorkerState) -> None:
        self.name = name
        self.successor: Generation | None = None
        """Generation that the new worker should run according to the newest change; None without changes."""
        self.is_overdue = False
        """Whether a change was still in progress when the last load ended: it may be recorded for the new worker."""
        self._files = files
        self._state = state
        self._turn = trio.Lock()
        self._former: _Former | None = None
        self._begun: trio.Event | None = None
        self._succeeded = trio.Event()

    @property
    def pid(self) -> int:
        """Pid of the worker; 0 if it cannot be changed."""
        return self._former.pid if self._former is not None else 0

    def expect(self) -> None:
        """Let changes wait for `begin`, which follows soon, or for `end`; resets `is_overdue`."""
        self._begun, self.is_overdue, self.successor = trio.Event(), False, None

    def begin(self, pid: int, capabilities: Capabilities, running: Generation) -> None:
        """Accept changes of the worker *pid*, which runs *running*; the files must be clear."""
        self._former = _Former(pid, capabilities, running)
        if self._begun is not None:
            self._begun.set()

    async def end(self) -> None:
        """Accept no other change, and wait for one in progress, also in a cancelled task."""
        begun, self._begun, self._former = self._begun, None, None
        if begun is not None:
            begun.set()
        self._succeeded.set()
        with trio.move_on_after(END_LIMIT, shield=True):
            async with self._turn:
                return
        self.is_overdue = True

    async def next_successor(self, known: Generation) -> Generation | None:
        """Return the newest successor once it is not *known*; None if there is no other one at the end of the load."""
        while self.successor is None or self.successor is known:
            if self._begun is None:
                return None
            await self._succeeded.wait()
        return self.successor

    async def patch(
        self,
        runtime: RuntimeClient,
        running: Generation,
        generation: Generation,
        plan: Plan,
        successor: Generation | None,
    ) -> None:
        """Apply *plan*, which leads from *running* to *generation*.

        Raises EndpointError if the worker runs something else or has been
        replaced, or if the change is not applied. The new worker gets
        *successor* in any case, unless the load has ended.
        """
        if self._begun is not None:
            if successor is not None:
                self.successor = successor
                self._succeeded.set()
                self._succeeded = trio.Event()
            await self._begun.wait()
        async with self._turn:
            former = self._former
            if former is None or former.running.id != running.id:
                raise PatchRejectedError(self.name, _REPLACED)
            try:
                async with runtime.connected(worker=former.pid) as connected:
                    await self._apply(former, connected, generation, plan)
            except OtherWorkerError as exc:
                raise PatchRejectedError(self.name, _REPLACED) from exc
            except OSError as exc:
                self._former = None
                raise EndpointStorageError(self.name, str(exc)) from exc
            except EndpointError:
                self._former = None
                raise

    async def _apply(self, former: _Former, runtime: RuntimeClient, generation: Generation, plan: Plan) -> None:
        # Not from the files: `current` may lead to those of the new process.
        delta = await trio.to_thread.run_sync(make_delta, former.running, generation)
        await trio.to_thread.run_sync(self._files.record_patch, delta)
        await self._state.apply(
            runtime,
            plan.operations,
            worker=former.pid,
            patient=False,
            capabilities=former.capabilities,
            find_former=former.find_running,
        )
        # After an error the record stays open: if the load is rejected, the running generation is unknown.
        self._files.settle(generation)
        former.running = generation
