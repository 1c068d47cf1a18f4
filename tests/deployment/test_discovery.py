from functools import partial

import trio
from trio.testing import wait_all_tasks_blocked

from haptic_trio.channels import EventBuffer, Latest
from haptic_trio.dataplane.endpoint import Endpoint
from haptic_trio.deployment.discovery import run_discovery
from haptic_trio.messages import EndpointLost, EndpointsDiscovered
from tests.support.components.endpoints import MemoryEndpoint

ONE, TWO = MemoryEndpoint("one"), MemoryEndpoint("two")


async def test_present_endpoints_are_published_before_discovery_is_ready(nursery: trio.Nursery) -> None:
    found, endpoints = Latest[tuple[Endpoint, ...]](), Latest[EndpointsDiscovered]()
    found.put((ONE, TWO))

    await nursery.start(partial(run_discovery, found, endpoints, events=EventBuffer()))

    assert endpoints.value == EndpointsDiscovered(endpoints=(ONE, TWO))


async def test_lost_endpoint_is_reported_and_no_longer_published(nursery: trio.Nursery) -> None:
    found, endpoints, events = Latest[tuple[Endpoint, ...]](), Latest[EndpointsDiscovered](), EventBuffer()
    found.put((ONE, TWO))
    await nursery.start(partial(run_discovery, found, endpoints, events=events))

    found.put((ONE,))
    await wait_all_tasks_blocked()

    assert endpoints.value == EndpointsDiscovered(endpoints=(ONE,))
    recorded = [events.receiver.receive_nowait() for _ in range(3)]
    assert recorded[1] == EndpointLost(endpoint="two")
