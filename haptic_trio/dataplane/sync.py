"""One deployment to one endpoint: repair drift, compare, plan, then apply at runtime or reload.

Changes that need no reload are applied and written to disk first. If the
remaining changes need a reload, it follows. If HAProxy rejects that reload,
the changes that were applied before it are rolled back.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple, TypeAlias

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
from haptic_trio.dataplane.names_in_use import backends_in_use
from haptic_trio.dataplane.operation_counts import count_operations
from haptic_trio.dataplane.planner import Planner
from haptic_trio.errors import HapticError
from haptic_trio.haproxy.causes import UNATTRIBUTED, namespace_of_backend, serves_others
from haptic_trio.haproxy.model import Generation
from haptic_trio.haproxy.plan.capabilities import NEWEST
from haptic_trio.haproxy.plan.operations import Plan
from haptic_trio.haproxy.plan.split import SplitPlan, is_near

_SLOWED: Final = "the namespace %s has caused many reloads"

WaitNewer: TypeAlias = Callable[[Generation], Awaitable[Generation]]
"""Returns the newest generation for an endpoint once it is not the argument."""


async def sync_endpoint(
    endpoint: Endpoint,
    desired: Generation,
    *,
    verify: bool = False,
    may_reload: bool = True,
    slowed: frozenset[str] = frozenset(),
    planner: Planner | None = None,
    checked: Generation | None = None,
    wait_newer: WaitNewer | None = None,
) -> SyncResult:
    """Deploy *desired* to *endpoint*, without a reload as far as possible.

    Nothing is written if the endpoint already runs it. With *verify* the
    process is observed first, and drift is repaired. If the process rejects a
    runtime operation, the generation is activated instead, and the rejection
    is among the reasons. Without *may_reload*, or if all of them are of the
    namespaces *slowed*, changes that need a reload are held back, unless the
    running generation is unknown. So are changes that give the name of a
    server in use to another one. If very many servers change, the result may
    be partial: the caller deploys again, at once, the same generation or a
    newer one. Deployments that share a *planner* share plans. Raises
    EndpointError.

    While the plan is made, and while HAProxy reloads, the process that still
    serves gets the servers of the generations that *wait_newer* returns, and so
    does the new process if the endpoint can change it in time; the caller
    deploys that generation afterwards. *checked* is what *desired* was before its newest data was added:
    the servers of this data need not wait for the plan either.
    """
    planner = planner or Planner()
    began = trio.current_time()
    report = await endpoint.repair() if verify else DriftReport()
    state = await endpoint.observe()
    observed = trio.current_time()
    moving = _MovingServers(endpoint, state, desired, planner, checked)
    split, rejected = await _split(moving, desired, wait_newer)
    running = moving.running
    planned = trio.current_time()
    reasons: tuple[str, ...] = (*rejected, *report.reasons, *split.reasons)
    held: tuple[str, ...] = ()
    must_reload = running is None or bool(rejected)
    effective: Generation | None = None
    weighed = _Weighed.of(split, frozenset(), desired, slowed, is_drift=bool(report.reasons))
    # If a reload is necessary anyway, it applies everything.
    while split.effective is not None and not rejected and not (report.reasons and may_reload):
        try:
            await endpoint.patch(split.effective, Plan(operations=split.operations))
            moving.running = effective = split.effective
            break
        except PatchRejectedError as exc:
            reasons = (f"patch rejected: {exc}", *reasons)
            using = frozenset(map(namespace_of_backend, backends_in_use(exc))) - weighed.withheld
        weighed = _Weighed.of(split, weighed.withheld | using, desired, slowed, is_drift=bool(report.reasons))
        must_reload = must_reload or not using
        if must_reload or (may_reload and not weighed.is_slowed):
            break
        # A tenant can keep servers in use. The changes of others go ahead of the reload that this one waits for.
        split = await planner.split(moving.running, desired, moving.capabilities, withheld=weighed.withheld)
        weighed = _Weighed.of(split, weighed.withheld, desired, slowed, is_drift=bool(report.reasons))
    if reasons and not (must_reload or (may_reload and not weighed.is_slowed)):
        waiting = sorted(weighed.causes) if weighed.is_slowed else ()
        reasons, held = (), (*reasons, *(_SLOWED % name for name in waiting))
    if reasons:
        await _activate(moving, desired, running, wait_newer, is_patched=effective is not None)
    if reasons and report.reasons:
        # Differences that remain after the reload are permanent; this call records them.
        await endpoint.repair()
    return SyncResult(
        endpoint=endpoint.name,
        changed=bool(effective is not None or running is not state.running or report.operations or reasons),
        reloaded=bool(reasons),
        reasons=reasons,
        held=held,
        causes=weighed.causes,
        affected=weighed.affected,
        # A reload applies everything.
        is_partial=split.is_partial and not reasons,
        operations=report.operations + (len(split.operations) if effective is not None else 0),
        changes=count_operations(split.operations) if effective is not None else {},
        drift=report.found,
        seconds=trio.current_time() - began,
        observed=observed - began,
        planned=planned - began,
    )


class _Weighed(NamedTuple):
    """Namespaces whose changes wait for a reload, and whether they have to wait longer."""

    withheld: frozenset[str]
    """Namespaces with changes that the process has rejected since removed servers are in use."""
    causes: frozenset[str]
    affected: frozenset[str]
    is_slowed: bool

    @staticmethod
    def of(
        split: SplitPlan, withheld: frozenset[str], desired: Generation, slowed: frozenset[str], *, is_drift: bool
    ) -> "_Weighed":
        causes, affected = split.causes | withheld, split.affected | withheld
        # Drift belongs to no namespace. Where HAProxy serves one namespace alone, its reloads end no connections of
        # others.
        if is_drift or (causes and not serves_others(desired.config, affected)):
            affected |= UNATTRIBUTED
        return _Weighed(withheld, causes, affected, bool(causes) and affected <= slowed)


class _MovingServers:
    """The process of *endpoint* while *desired* is deployed to it: its servers move as in newer generations."""

    def __init__(
        self,
        endpoint: Endpoint,
        state: ObservedState,
        desired: Generation,
        planner: Planner,
        checked: Generation | None,
    ) -> None:
        self.endpoint = endpoint
        self.desired = desired
        self.planner = planner
        self.running = state.running
        """The generation that the process runs."""
        self.before = desired
        """The newest generation whose moves the process has."""
        self.capabilities = state.capabilities
        self._checked = checked
        self._seen = desired
        self._is_planned = False
        self._waiting = trio.CancelScope()

    async def move_until_planned(self, wait_newer: WaitNewer, failures: list[EndpointError]) -> None:
        """Move servers until `end_planning`, or until a change fails: then add the error to *failures*."""
        checked = self._checked
        # If the two differ in very much, to find the moves in them takes longer than the plan.
        since = checked if checked is not None and is_near(checked, self.desired) else self.desired
        while self.running is not None and not self._is_planned:
            if since is self._seen:
                with trio.CancelScope() as self._waiting:
                    self._seen = await wait_newer(self._seen)
                if self._waiting.cancelled_caught:
                    return
            try:
                await self._move(self._patch, since)
            except EndpointError as exc:
                failures.append(exc)
                return
            since = self.before

    def end_planning(self) -> None:
        """End `move_until_planned` after the change in progress."""
        self._is_planned = True
        self._waiting.cancel(reason="the deployment is planned")

    async def move_former(self, wait_newer: WaitNewer) -> None:
        """Move servers of the process that is being replaced; ends when it is replaced or fails."""
        endpoint = self.endpoint
        if not isinstance(endpoint, ReplacesProcess):
            return
        while self.running is not None:
            self._seen = await wait_newer(self._seen)
            successor = await self.planner.with_servers(self.desired, self._seen)
            try:
                await self._move(partial(endpoint.patch_former, successor=successor), self.before)
            except PatchRejectedError:
                # The replacement has not begun yet, or is over. The next change includes this one.
                continue
            except EndpointError:
                return

    async def _patch(self, _running: Generation, effective: Generation, plan: Plan) -> None:
        await self.endpoint.patch(effective, plan)

    async def _move(self, patch: Callable[[Generation, Generation, Plan], Awaitable[None]], since: Generation) -> None:
        """Move servers as from *since* to the newest generation, in several changes if there are very many."""
        newer, is_partial = self._seen, True
        while is_partial and self.running is not None:
            split = await self.planner.follow(self.running, since, newer, self.capabilities)
            is_partial = split.is_partial
            if split.effective is not None:
                await patch(self.running, split.effective, Plan(operations=split.operations))
                self.running = split.effective
        self.before = newer


async def _split(
    moving: _MovingServers, desired: Generation, wait_newer: WaitNewer | None
) -> tuple[SplitPlan, tuple[str, ...]]:
    """Return the plan, and why the process rejected a moved server meanwhile."""
    running, planner, capabilities = moving.running, moving.planner, moving.capabilities
    if running is not None and running.id == desired.id:
        return SplitPlan(None, (), ()), ()
    if running is None or wait_newer is None:
        return await planner.split(running, desired, capabilities), ()
    if (quick := planner.split_at_once(running, desired, capabilities)) is not None:
        return quick, ()
    failures: list[EndpointError] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(moving.move_until_planned, wait_newer, failures)
        split = await planner.split(running, desired, capabilities)
        moving.end_planning()
    for failure in failures:
        if not isinstance(failure, PatchRejectedError):
            raise failure
    if split.effective is not None and moving.running is not running:
        split = await _with_moves(moving, split, desired)
    # Where names are in use, the process is as before, and the deployment decides.
    return split, tuple(
        f"patch rejected: {failure}"
        for failure in failures
        if not isinstance(failure, PatchRejectedError) or not backends_in_use(failure)
    )


async def _with_moves(moving: _MovingServers, split: SplitPlan, desired: Generation) -> SplitPlan:
    """Return *split*, made before servers moved, with these moves."""
    running, effective = moving.running, split.effective
    assert running is not None
    assert effective is not None
    moved = await moving.planner.follow(effective, desired, moving.before, NEWEST)
    target = moved.effective or effective
    if target.id == running.id:
        return split._replace(effective=None, operations=())
    plan = await moving.planner.plan(running, target, moving.capabilities)
    if plan.reloads:
        return SplitPlan(
            None, (), split.reasons or plan.reasons, causes=split.causes or plan.causes, affected=UNATTRIBUTED
        )
    return split._replace(effective=target, operations=plan.operations)


async def _activate(
    moving: _MovingServers,
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
            following.start_soon(moving.move_former, wait_newer)
        try:
            await moving.endpoint.activate(await moving.planner.with_servers(desired, moving.before))
        except (HapticError, OSError) as exc:
            failure = exc
        following.cancel_scope.cancel(reason="the process has been replaced, or stays")
    if failure is None:
        return
    if isinstance(failure, DeploymentRejectedError) and running is not None and is_patched:
        await _roll_back(moving, running, failure)
    raise failure


async def _roll_back(moving: _MovingServers, running: Generation, rejection: EndpointError) -> None:
    endpoint, present = moving.endpoint, moving.running
    assert present is not None
    capabilities = (await endpoint.describe()).capabilities
    plan = await moving.planner.plan(present, running, capabilities)
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
