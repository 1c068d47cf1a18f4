"""Drift of a process behind a Data Plane API: found, and repaired at runtime or by a reload."""

from haptic_trio.dataplane.dataplaneapi.client import ApiClient, ApiStatusError
from haptic_trio.dataplane.dataplaneapi.observe import observe_process
from haptic_trio.dataplane.dataplaneapi.runtime import RuntimeApi
from haptic_trio.dataplane.dataplaneapi.snapshot import Snapshot
from haptic_trio.dataplane.endpoint import NAMED_FILES, DriftReport, PatchRejectedError
from haptic_trio.dataplane.permanent_errors import PermanentFindings
from haptic_trio.errors import text_of
from haptic_trio.haproxy.model import Generation
from haptic_trio.haproxy.plan.capabilities import Capabilities
from haptic_trio.haproxy.plan.operations import DeleteServer
from haptic_trio.haproxy.runtime.differences import Kind, count_kinds, reload_reasons, repair_operations
from haptic_trio.haproxy.runtime.replies import UnreadableReplyError
from haptic_trio.logs import get_logger


class DriftRepair:
    """Compares and repairs the process behind one API; remembers differences that a reload did not repair."""

    def __init__(self, api: ApiClient, runtime: RuntimeApi) -> None:
        self._api = api
        self._runtime = runtime
        self._log = get_logger("dataplaneapi").bind(endpoint=api.endpoint)
        self._permanent = PermanentFindings(self._log)

    async def repair(self, seen: Snapshot, capabilities: Capabilities, *, worker: int) -> DriftReport:
        """Compare configuration, files and the process with pid *worker* with the last deployment.

        The report is empty if the API cannot show the process. Raises
        EndpointError if the API does not answer.
        """
        if seen.edited:
            names = ", ".join(seen.edited[:NAMED_FILES])
            return DriftReport(found={Kind.FILES.value: len(seen.edited)}, reasons=(f"changed by others: {names}",))
        if seen.generation is None:
            return DriftReport()
        try:
            return await self._compare(seen, seen.generation, capabilities, worker)
        except (ApiStatusError, UnreadableReplyError) as exc:
            self._log.warning("process cannot be observed", error=text_of(exc))
            return DriftReport()

    async def _compare(
        self, seen: Snapshot, generation: Generation, capabilities: Capabilities, worker: int
    ) -> DriftReport:
        observed = await observe_process(self._api, self._runtime, generation, capabilities, seen.paths)
        for removal in observed.differences.left_over:
            if isinstance(removal, DeleteServer):
                await self._runtime.delete_unused(removal)
        findings = self._permanent.without_permanent(observed.differences.findings, worker)
        found, reasons, operations = count_kinds(findings), reload_reasons(findings), repair_operations(findings)
        if reasons or not operations:
            return DriftReport(found=found, reasons=reasons)
        try:
            await self._runtime.apply(operations, generation, present=observed.maps, paths=seen.paths)
        except PatchRejectedError as exc:
            return DriftReport(found=found, reasons=(f"repair rejected: {exc}",))
        return DriftReport(found=found, operations=len(operations))
