"""One deployment to one endpoint: repair drift, compare, plan, then apply at runtime or reload.

Changes that need no reload are applied and written to disk first. If the
remaining changes need a reload, it follows. If HAProxy rejects that reload,
the changes that were applied before it are rolled back.
"""

import trio

from haptic_trio.dataplane.endpoint import (
    DeploymentRejectedError,
    DriftReport,
    Endpoint,
    EndpointError,
    PatchRejectedError,
    PortsUnavailableError,
    Survey,
    SyncResult,
)
from haptic_trio.dataplane.planner import Planner
from haptic_trio.haproxy.model import Generation
from haptic_trio.haproxy.plan.operations import Plan
from haptic_trio.haproxy.plan.split import SplitPlan


async def sync_endpoint(
    endpoint: Endpoint,
    desired: Generation,
    *,
    verify: bool = False,
    may_reload: bool = True,
    planner: Planner | None = None,
) -> SyncResult:
    """Deploy *desired* to *endpoint*, without a reload as far as possible.

    Nothing is written if the endpoint already runs it. With *verify* the
    process is observed first, and drift is repaired. If the process rejects a
    runtime operation, the generation is activated instead, and the rejection
    is among the reasons. Without *may_reload* changes that need a reload are
    held back, unless the running generation is unknown. Deployments that share
    a *planner* share plans. Raises EndpointError.
    """
    planner = planner or Planner()
    began = trio.current_time()
    report = await endpoint.repair() if verify else DriftReport()
    survey = await endpoint.survey()
    running = survey.running
    surveyed = trio.current_time()
    split = await _split(survey, desired, planner)
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
            reasons, must_reload = (f"patch refused: {exc}", *reasons), True
    if reasons and not (may_reload or must_reload):
        reasons, held = (), reasons
    if reasons:
        await _activate(endpoint, desired, running, effective, planner)
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
        surveyed=surveyed - began,
        planned=planned - began,
    )


async def _split(survey: Survey, desired: Generation, planner: Planner) -> SplitPlan:
    running = survey.running
    if running is not None and running.id == desired.id:
        return SplitPlan(None, (), ())
    return await planner.split(running, desired, survey.capabilities)


async def _activate(
    endpoint: Endpoint,
    desired: Generation,
    running: Generation | None,
    effective: Generation | None,
    planner: Planner,
) -> None:
    """Activate *desired*; if it is rejected, roll back from the patched *effective* to *running*."""
    try:
        await endpoint.activate(desired)
    except DeploymentRejectedError as exc:
        if running is None or effective is None:
            raise
        rejection = exc
    else:
        return
    await _roll_back(endpoint, effective, running, rejection, planner)
    raise rejection


async def _roll_back(
    endpoint: Endpoint, effective: Generation, running: Generation, rejection: EndpointError, planner: Planner
) -> None:
    capabilities = (await endpoint.describe()).capabilities
    plan = await planner.plan(effective, running, capabilities)
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
