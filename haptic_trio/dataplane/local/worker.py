"""Observed state of the worker process: applies runtime changes, compares, repairs.

A removed server with open connections stays in the process, in maintenance,
until they end (`haproxy/runtime/conversation`). It is in no file and in no
plan. Each later change and each observation first tries to delete it; if it
is added again meanwhile, it is revived (`haproxy/runtime/leftovers`). A server
that is replaced under its name is deleted before all else: if it is in use, the
change is rejected, and the process is as before.
"""

from collections.abc import Awaitable, Callable, Sequence

import trio

from haptic_trio.dataplane.endpoint import DriftReport, EndpointError, PatchRejectedError
from haptic_trio.dataplane.local.runtime import RuntimeClient
from haptic_trio.dataplane.names_in_use import NamesInUseError
from haptic_trio.dataplane.permanent_errors import PermanentFindings
from haptic_trio.haproxy.model import Generation
from haptic_trio.haproxy.plan.capabilities import Capabilities
from haptic_trio.haproxy.plan.operations import Operation, Removal
from haptic_trio.haproxy.runtime.differences import count_kinds, reload_reasons, repair_operations
from haptic_trio.haproxy.runtime.leftovers import Leftover, find_taken, note_leftovers, revive, split_replaced
from haptic_trio.haproxy.runtime.read_back import Differences, ReadBack
from haptic_trio.haproxy.runtime.replies import UnreadableReplyError
from haptic_trio.logs import get_logger

FindFormer = Callable[[], Awaitable[Generation | None]]
"""Returns the generation that ran before a change."""


class WorkerState:
    """State of the worker of instance *name* that is not in its files. The caller serialises calls."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._leftovers: tuple[int, tuple[Leftover, ...]] = 0, ()
        self._log = get_logger("worker").bind(instance=name)
        self._permanent = PermanentFindings(self._log)

    async def apply(
        self,
        runtime: RuntimeClient,
        operations: Sequence[Operation],
        *,
        worker: int,
        patient: bool = True,
        capabilities: Capabilities,
        find_former: FindFormer,
        restores: bool = False,
    ) -> None:
        """Apply *operations* to the process with pid *worker*; raises EndpointError as `RuntimeClient.apply` does.

        If *restores*, names that are in use raise NamesInUseError, unless the
        process cannot be brought back to the state before.
        """
        left = await self._retry(runtime, worker, patient=patient)
        operations, left = revive(operations, left)
        if restores:
            if taken := find_taken(operations, left):
                raise NamesInUseError(self._name, taken)
            replaced, operations = split_replaced(operations)
            if used := await runtime.apply(replaced, worker=worker, patient=patient) if replaced else ():
                former = await find_former()
                if (
                    former is None
                    or (await self.repair(runtime, former, worker=worker, capabilities=capabilities)).reasons
                ):
                    raise PatchRejectedError(self._name, "servers that are replaced are in use, and cannot be restored")
                raise NamesInUseError(self._name, used)
        # Revived servers must not be deleted, also if this fails.
        self._leftovers = worker, left
        if removals := await runtime.apply(operations, worker=worker, patient=patient):
            noted = note_leftovers(removals, await find_former(), capabilities)
            self._leftovers = worker, (*left, *noted)

    def adopt(self, worker: int, removals: Sequence[Removal], running: Generation, capabilities: Capabilities) -> None:
        """Take note that *worker* is the one with *running*, where *removals* could not be carried out yet."""
        self._leftovers = worker, note_leftovers(removals, running, capabilities)

    async def repair(
        self, runtime: RuntimeClient, generation: Generation, *, worker: int, capabilities: Capabilities
    ) -> DriftReport:
        """Repair at runtime how the process with pid *worker* differs from *generation*.

        A difference that remains after a reload is logged once and no longer
        reported. Raises EndpointError.
        """
        differences = await self._observe(runtime, generation, worker, capabilities)
        known = {one.removal for one in self._left_in(worker)}
        adopted = [Leftover(removal) for removal in differences.left_over if removal not in known]
        self._leftovers = worker, (*self._left_in(worker), *adopted)
        await self._retry(runtime, worker)
        findings = self._permanent.without_permanent(differences.findings, worker)
        found, reasons, operations = count_kinds(findings), reload_reasons(findings), repair_operations(findings)
        if reasons or not operations:
            return DriftReport(found=found, reasons=reasons)
        try:
            removals = await runtime.apply(operations, worker=worker)
        except PatchRejectedError as exc:
            return DriftReport(found=found, reasons=(f"repair rejected: {exc}",))
        noted = note_leftovers(removals, None, capabilities)
        self._leftovers = worker, (*self._left_in(worker), *noted)
        return DriftReport(found=found, operations=len(operations))

    async def _observe(
        self, runtime: RuntimeClient, generation: Generation, worker: int, capabilities: Capabilities
    ) -> Differences:
        # With thousands of servers each of these would block the event loop.
        reader = await trio.to_thread.run_sync(ReadBack, generation, capabilities)
        answers = await runtime.read(reader.questions, worker=worker)
        try:
            return await trio.to_thread.run_sync(reader.compare, answers)
        except UnreadableReplyError as exc:
            raise EndpointError(self._name, str(exc)) from exc

    def _left_in(self, worker: int) -> tuple[Leftover, ...]:
        of, left = self._leftovers
        # Leftovers end with their worker.
        return left if of == worker else ()

    async def _retry(self, runtime: RuntimeClient, worker: int, *, patient: bool = True) -> tuple[Leftover, ...]:
        left = self._left_in(worker)
        if left:
            still = set(await runtime.retry([one.removal for one in left], worker=worker, patient=patient))
            left = tuple(one for one in left if one.removal in still)
        self._leftovers = worker, left
        return left
