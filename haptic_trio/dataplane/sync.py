"""One deployment to one endpoint: compare, plan, and take the cheaper way."""

from functools import partial

import trio

from haptic_trio.dataplane.endpoint import Endpoint, PatchRefusedError, SyncResult
from haptic_trio.haproxy.capabilities import Capabilities
from haptic_trio.haproxy.model import Generation
from haptic_trio.haproxy.plan import make_plan


async def sync_endpoint(endpoint: Endpoint, desired: Generation) -> SyncResult:
    """Bring *endpoint* to *desired*, without a reload where that is possible.

    An endpoint that has it already is not written to. When the running
    process refuses a runtime operation the generation is activated instead,
    and the refusal is among the reasons. Raises EndpointError.
    """
    began = trio.current_time()
    running = await endpoint.fetch_running()
    if running is not None and running.id == desired.id:
        return SyncResult(endpoint=endpoint.name, changed=False, reloaded=False, seconds=trio.current_time() - began)
    # Without a process to plan for, there is nothing to ask.
    capabilities = (await endpoint.describe()).capabilities if running is not None else Capabilities()
    # Comparing thousands of sections takes longer than the event loop may wait.
    plan = await trio.to_thread.run_sync(partial(make_plan, running, desired, capabilities=capabilities))
    reasons = plan.reasons
    if not plan.reloads:
        try:
            await endpoint.patch(desired, plan)
        except PatchRefusedError as exc:
            reasons = (f"patch refused: {exc}",)
    if reasons:
        await endpoint.activate(desired)
    return SyncResult(
        endpoint=endpoint.name,
        changed=True,
        reloaded=bool(reasons),
        reasons=reasons,
        operations=0 if reasons else len(plan.operations),
        seconds=trio.current_time() - began,
    )
