"""Discovery: passes the endpoints of the process to the iteration, and reports lost ones."""

import trio

from haptic_trio.channels import EventBuffer, Latest
from haptic_trio.dataplane.endpoint import Endpoint
from haptic_trio.messages import EndpointLost, EndpointsDiscovered


async def run_discovery(
    found: Latest[tuple[Endpoint, ...]],
    endpoints: Latest[EndpointsDiscovered],
    *,
    events: EventBuffer,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Publish the endpoints in *found*, and each change, until cancelled.

    The sources of endpoints live as long as the process and know nothing of
    iterations; an iteration that starts gets all present endpoints in one
    `EndpointsDiscovered`. A lost endpoint is missing in the next one and
    reported by `EndpointLost`. started() once the present endpoints are published.
    """
    known: set[str] = set()

    def publish(present: tuple[Endpoint, ...]) -> None:
        names = {endpoint.name for endpoint in present}
        for name in sorted(known - names):
            events.record(EndpointLost(endpoint=name))
        known.clear()
        known.update(names)
        message = EndpointsDiscovered(endpoints=present)
        endpoints.put(message)
        events.record(message)

    seen, present = await found.wait_newer(0)
    publish(present)
    task_status.started()
    while True:
        seen, present = await found.wait_newer(seen)
        publish(present)
