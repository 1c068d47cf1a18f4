"""Events of an agent: what two observations report, and what a listener gets."""

import pytest
import trio

from haptic_trio.dataplane.agent.events import QUEUE, Observation, Observer, Subscription, compare_observations
from haptic_trio.dataplane.agent.messages import AgentEvent, EventKind
from haptic_trio.dataplane.endpoint import EndpointInfo, EndpointUnreachableError
from tests.support.components.endpoints import MemoryEndpoint, generation

RUNS = Observation(pid=7, reloads=1, generation="a")


@pytest.mark.parametrize(
    ("before", "after", "deployed", "kinds"),
    [
        (RUNS, RUNS, False, ()),
        (RUNS, Observation(generation="a"), False, (EventKind.CRASHED,)),
        (Observation(generation="a"), RUNS, False, (EventKind.STARTED,)),
        (RUNS, Observation(pid=8, generation="a"), False, (EventKind.CRASHED, EventKind.STARTED)),
        (RUNS, Observation(pid=7, reloads=2, generation="a"), False, (EventKind.RELOADED,)),
        (RUNS, Observation(pid=7, reloads=2, generation="b"), True, (EventKind.RELOADED, EventKind.GENERATION)),
        (RUNS, Observation(pid=7, reloads=1, generation="b"), False, (EventKind.DRIFT,)),
        (RUNS, Observation(pid=7, reloads=1), False, (EventKind.DRIFT,)),
    ],
)
def test_difference_of_two_observations_gives_the_events(
    before: Observation, after: Observation, deployed: bool, kinds: tuple[EventKind, ...]
) -> None:
    assert compare_observations(before, after, deployed=deployed) == kinds


def event(number: int) -> AgentEvent:
    return AgentEvent(kind=EventKind.RELOADED, sequence=number)


async def test_a_listener_gets_events_in_order() -> None:
    subscription = Subscription()
    for number in range(QUEUE):
        subscription.put(event(number))
    assert [(await subscription.receive()).sequence for _ in range(QUEUE)] == list(range(QUEUE))


async def test_slow_subscriber_gets_resync_instead_of_unread_events() -> None:
    subscription = Subscription()
    for number in range(QUEUE + 5):
        subscription.put(event(number))
    mark = await subscription.receive()
    assert (mark.kind, mark.sequence) == (EventKind.RESYNC, QUEUE + 4)
    subscription.put(event(1000))
    assert (await subscription.receive()).sequence == 1000


class Flickering(MemoryEndpoint):
    """An endpoint whose HAProxy goes away, or does not answer, as the test says."""

    pid = 1
    old_workers = 0
    answers = True

    async def describe(self) -> EndpointInfo:
        if not self.answers:
            raise EndpointUnreachableError(self.name, "told to fail")
        info = await super().describe()
        return EndpointInfo(
            name=info.name, version="2.8", generation=info.generation, pid=self.pid, old_workers=self.old_workers
        )


async def test_observer_sends_hello_and_then_changes_to_subscribers() -> None:
    endpoint = Flickering("one", running=generation("a"))
    observer = Observer(endpoint, boot="x")
    async with observer.turn:
        await observer.observe()
        with observer.subscribe() as subscription:
            hello = await subscription.receive()
            assert (hello.kind, hello.sequence, hello.boot) == (EventKind.HELLO, 0, "x")
            assert hello.generation == generation("a").id
            endpoint.running = generation("b")
            await observer.observe(deployed=True)
            reported = await subscription.receive()
            assert (reported.kind, reported.sequence, reported.deployed) == (EventKind.GENERATION, 1, True)
    assert observer.subscribers == 0


async def test_events_have_the_number_of_old_workers_and_a_change_of_it_is_none() -> None:
    endpoint = Flickering("one", running=generation("a"))
    observer = Observer(endpoint, boot="x")
    await observer.observe()
    endpoint.old_workers = 3
    await observer.observe()
    assert observer.sequence == 0
    assert observer.present(EventKind.HEARTBEAT).old_workers == 3


async def test_an_agent_is_ready_while_a_generation_is_applied_and_haproxy_answers() -> None:
    endpoint = Flickering("one")
    observer = Observer(endpoint, boot="x")
    await observer.observe()
    assert not observer.health().ready
    endpoint.running = generation("a")
    await observer.observe()
    assert observer.health().ready
    endpoint.answers = False
    await observer.observe()
    assert not observer.health().ready
    endpoint.answers, endpoint.pid = True, 0
    await observer.observe()
    assert not observer.health().ready


async def test_agent_without_observations_is_not_live(autojump_clock: trio.testing.MockClock) -> None:
    observer = Observer(Flickering("one"), boot="x", local=False)
    async with trio.open_nursery() as nursery:
        await nursery.start(observer.run)
        await trio.sleep(1000)
        assert observer.health().live
        await observer.turn.acquire()
        await trio.sleep(1000)
        assert not observer.health().live
        observer.turn.release()
        nursery.cancel_scope.cancel()
