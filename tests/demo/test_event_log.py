"""Waiting for what the controller says."""

import trio
import trio.testing

from haptic_trio.demo.event_log import EventLog
from haptic_trio.messages import EndpointLost, LeadershipChanged


def leader(identity: str) -> LeadershipChanged:
    return LeadershipChanged(is_leader=True, identity=identity, transitions=1)


async def test_an_event_that_was_recorded_before_is_found() -> None:
    log = EventLog()
    log.take(EndpointLost(endpoint="a"))
    log.take(EndpointLost(endpoint="b"))

    with trio.fail_after(5):
        assert (await log.wait_for(EndpointLost, lambda event: event.endpoint == "b", since=0)).endpoint == "b"


async def test_events_before_the_given_point_do_not_count(nursery: trio.Nursery) -> None:
    log = EventLog()
    log.take(leader("old"))
    since = len(log)
    found: list[LeadershipChanged] = []

    async def wait() -> None:
        found.append(await log.wait_for(LeadershipChanged, lambda _event: True, since=since))

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    log.take(EndpointLost(endpoint="other kind"))
    await trio.testing.wait_all_tasks_blocked()
    assert not found
    log.take(leader("new"))
    await trio.testing.wait_all_tasks_blocked()

    assert [event.identity for event in found] == ["new"]
