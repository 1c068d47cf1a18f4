"""Discovery: publishes the HAProxy endpoints of the process to the iteration."""

import trio

from haptic_trio.channels import Facts, Latest
from haptic_trio.dataplane.endpoint import Endpoint
from haptic_trio.messages import EndpointLost, EndpointsDiscovered


async def run_discovery(
    instances: Latest[tuple[Endpoint, ...]],
    endpoints: Latest[EndpointsDiscovered],
    *,
    facts: Facts,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Publish the local instances, and each change of them, for as long as it runs.

    started() means that the present instances are published.
    """
    known: set[str] = set()

    def publish(found: tuple[Endpoint, ...]) -> None:
        names = {endpoint.name for endpoint in found}
        for name in sorted(known - names):
            facts.tell(EndpointLost(endpoint=name))
        known.clear()
        known.update(names)
        message = EndpointsDiscovered(endpoints=found)
        endpoints.put(message)
        facts.tell(message)

    seen, found = await instances.wait_newer(0)
    publish(found)
    task_status.started()
    while True:
        seen, found = await instances.wait_newer(seen)
        publish(found)
