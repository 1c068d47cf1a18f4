"""The number of instances in the store that templates read."""

from functools import partial

import trio

from haptic_trio.channels import Change, Latest
from haptic_trio.dataplane.endpoint import Endpoint
from haptic_trio.deployment.instance_count import INSTANCES, make_instance_store, run_instance_count
from haptic_trio.k8s.store import Store
from haptic_trio.messages import ResourceChanged
from tests.support.components.endpoints import MemoryEndpoint

ONE, TWO, THREE = map(MemoryEndpoint, ("one", "two", "three"))


def number(store: Store) -> int:
    [found] = store.get("all")
    return int(found["spec"]["number"])


async def test_the_store_follows_the_endpoints_and_announces_another_number(nursery: trio.Nursery) -> None:
    changes_in, changes_out = trio.open_memory_channel[Change](5)
    endpoints, store = Latest[tuple[Endpoint, ...]](), make_instance_store()
    endpoints.put((ONE, TWO))
    await nursery.start(partial(run_instance_count, endpoints, changes_in, store))
    assert number(store) == 2

    # Another endpoint in the place of one changes nothing.
    endpoints.put((ONE, THREE))
    endpoints.put((ONE, TWO, THREE))
    change = await changes_out.receive()
    assert isinstance(change, ResourceChanged)
    assert change.stores == (INSTANCES,)
    assert number(store) == 3

    endpoints.put(())
    await changes_out.receive()
    assert number(store) == 1
