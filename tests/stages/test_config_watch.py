"""The watch of ConfigMap and Secret, from the first list to the end of the process."""

from functools import partial

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from haptic_trio.channels import ConfigSeen, EventBuffer, Latest
from haptic_trio.messages import ProblemsReported
from haptic_trio.stages.config_watch import CONFIG_MAPS, SECRETS, run_config_watch
from tests.support.components.cluster import MemoryCluster
from tests.support.components.controller import SOURCE, config_map, credentials
from tests.support.messages import drain


async def test_pairs_are_published_once_each(nursery: trio.Nursery) -> None:
    cluster, candidates = MemoryCluster(config_map()), Latest[ConfigSeen]()
    cluster.silence(SECRETS)
    nursery.start_soon(partial(run_config_watch, cluster, SOURCE, candidates, events=EventBuffer()))
    await wait_all_tasks_blocked()
    assert candidates.value is None

    cluster.answer(SECRETS)
    _, seen = await candidates.wait_newer(0)
    assert (seen.config_map is not None, seen.secret) == (True, None)
    cluster.relist()
    await wait_all_tasks_blocked()
    assert candidates.version == 1
    cluster.put(credentials("one"))
    _, seen = await candidates.wait_newer(1)
    assert seen.secret is not None
    cluster.remove(config_map())
    _, seen = await candidates.wait_newer(2)
    assert seen.config_map is None


async def test_failed_watch_is_reported_and_opened_again(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    cluster, candidates, events = MemoryCluster(config_map()), Latest[ConfigSeen](), EventBuffer()
    cluster.failures[CONFIG_MAPS] = [OSError("no route to host")] * 2
    nursery.start_soon(partial(run_config_watch, cluster, SOURCE, candidates, events=events))

    with trio.fail_after(60):
        await candidates.wait_newer(0)
    assert trio.current_time() == 1.5
    reported = [event for event in drain(events) if isinstance(event, ProblemsReported)]
    assert [event.problems[0].message for event in reported] == ["no route to host"] * 2
