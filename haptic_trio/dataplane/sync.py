"""One deployment to one endpoint: repair drift, compare, plan, then apply at runtime or reload.

Changes that need no reload are applied and written to disk first. If the
remaining changes need a reload, it follows. If HAProxy rejects that reload,
the changes that were applied before it are rolled back.
"""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import trio

from haptic_trio.dataplane.endpoint import (
    DeploymentRejectedError,
    DriftReport,
    Endpoint,
    EndpointError,
    ObservedState,
    PatchRejectedError,
    PortsUnavailableError,
    ReplacesProcess,
    SyncResult,
)
from haptic_trio.dataplane.planner import Planner
from haptic_trio.errors import HapticError
from haptic_trio.haproxy.model import Generation
from haptic_trio.haproxy.plan.capabilities import Capabilities
from haptic_trio.haproxy.plan.operations import Plan
from haptic_trio.haproxy.plan.split import SplitPlan

WaitNewer: TypeAlias = Callable[[Generation], Awaitable[Generation]]
"""Returns the newest generation for an endpoint once it is not the argument."""


async def sync_endpoint(
    endpoint: Endpoint,
    desired: Generation,
    *,
    verify: bool = False,
    may_reload: bool = True,
    planner: Planner | None = None,
    wait_newer: WaitNewer | None = None,
) -> SyncResult:
    """Deploy *desired* to *endpoint*, without a reload as far as possible.

    Nothing is written if the endpoint already runs it. With *verify* the
    process is observed first, and drift is repaired. If the process rejects a
    runtime operation, the generation is activated instead, and the rejection
    is among the reasons. Without *may_reload* changes that need a reload are
    held back, unless the running generation is unknown. Deployments that share
    a *planner* share plans. Raises EndpointError.

    While HAProxy reloads, the process that still serves gets the servers of the
    generations that *wait_newer* returns. The new process does not have them;
    the caller deploys that generation afterwards.
    """
    planner = planner or Planner()
    began = trio.current_time()
    report = await endpoint.repair() if verify else DriftReport()
    state = await endpoint.observe()
    running = state.running
    observed = trio.current_time()
    split = await _split(state, desired, planner)
    planned = trio.current_time()
    reasons: tuple[str, ...] = (*report.reasons, *split.reasons)
    held: tuple[str, ...] = ()
    must_reload = running is None
    effective: Generation | None = None
    # If drift needs a reload anyway, that reload applies everything.
    if split.effective is not None and not (report.reasons and may_reload):
        try:
            await endpoint.patch(split.effective, Plan(operations=split.operations))
            effective = split.effective
        except PatchRejectedError as exc:
            reasons, must_reload = (f"patch rejected: {exc}", *reasons), True
    if reasons and not (may_reload or must_reload):
        reasons, held = (), reasons
    if reasons:
        former = _FormerProcess(endpoint, effective or running, state.capabilities, planner)
        await _activate(former, desired, running, wait_newer, is_patched=effective is not None)
    if reasons and report.reasons:
        # Differences that remain after the reload are permanent; this call records them.
        await endpoint.repair()
    return SyncResult(
        endpoint=endpoint.name,
        changed=bool(effective is not None or report.operations or reasons),
        reloaded=bool(reasons),
        reasons=reasons,
        held=held,
        operations=report.operations + (len(split.operations) if effective is not None else 0),
        drift=report.found,
        seconds=trio.current_time() - began,
        observed=observed - began,
        planned=planned - began,
    )


async def _split(state: ObservedState, desired: Generation, planner: Planner) -> SplitPlan:
    running = state.running
    if running is not None and running.id == desired.id:
        return SplitPlan(None, (), ())
    return await planner.split(running, desired, state.capabilities)


class _FormerProcess:
    """The process of *endpoint*, with *running*, while another one replaces it."""

    def __init__(
        self, endpoint: Endpoint, running: Generation | None, capabilities: Capabilities, planner: Planner
    ) -> None:
        self.endpoint = endpoint
        self.running = running
        self.planner = planner
        self._capabilities = capabilities

    async def follow(self, desired: Generation, wait_newer: WaitNewer) -> None:
        """Move its servers as they move from *desired* on; ends when the process is replaced or fails."""
        if not isinstance(self.endpoint, ReplacesProcess):
            return
        before = seen = desired
        while self.running is not None:
            seen = await wait_newer(seen)
            split = await self.planner.follow(self.running, before, seen, self._capabilities)
            if split.effective is not None:
                try:
                    await self.endpoint.patch_former(self.running, split.effective, Plan(operations=split.operations))
                except PatchRejectedError:
                    # The replacement has not begun yet, or is over. The next change includes this one.
                    continue
                except EndpointError:
                    return
                self.running = split.effective
            before = seen


async def _activate(
    former: _FormerProcess,
    desired: Generation,
    running: Generation | None,
    wait_newer: WaitNewer | None,
    *,
    is_patched: bool,
) -> None:
    """Activate *desired*; if it is rejected, roll a process that was patched back to *running*."""
    failure: Exception | None = None
    async with trio.open_nursery() as following:
        if wait_newer is not None:
            following.start_soon(former.follow, desired, wait_newer)
        try:
            await former.endpoint.activate(desired)
        except (HapticError, OSError) as exc:
            failure = exc
        following.cancel_scope.cancel(reason="the process has been replaced, or stays")
    if failure is None:
        return
    if isinstance(failure, DeploymentRejectedError) and running is not None and is_patched:
        await _roll_back(former, running, failure)
    raise failure


async def _roll_back(former: _FormerProcess, running: Generation, rejection: EndpointError) -> None:
    endpoint, present = former.endpoint, former.running
    assert present is not None
    capabilities = (await endpoint.describe()).capabilities
    plan = await former.planner.plan(present, running, capabilities)
    try:
        if plan.reloads or not await _is_patched(endpoint, running, plan):
            await endpoint.activate(running)
    except EndpointError as exc:
        then = f"; the rollback failed too: {exc}"
        if isinstance(rejection, PortsUnavailableError):
            raise PortsUnavailableError(endpoint.name, rejection.addresses, then=then) from exc
        raise DeploymentRejectedError(endpoint.name, f"{rejection}{then}") from exc


async def _is_patched(endpoint: Endpoint, generation: Generation, plan: Plan) -> bool:
    try:
        await endpoint.patch(generation, plan)
    except PatchRejectedError:
        return False
    return True
