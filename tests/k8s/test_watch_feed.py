"""The buffer between watch and reader, and the merging of namespaces."""

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.k8s.client import Deleted, Listed, Upserted, WatchEvent
from haptic_trio.k8s.resource import Resource, ref_of
from haptic_trio.k8s.watch_feed import Drainable, Feed, NamespaceMerge
from tests.k8s.objects import service

NAMESPACES = ("one", "two", "three")


def upserts(*names: str) -> list[WatchEvent]:
    return [Upserted(service(name)) for name in names]


async def test_feed_yields_what_it_is_given_and_ends_after_it_is_closed() -> None:
    feed = Feed()
    await feed.put(upserts("a", "b"))
    feed.close()

    assert [event async for event in feed] == upserts("a", "b")


async def test_reader_waits_for_the_next_event(nursery: trio.Nursery, autojump_clock: trio.testing.MockClock) -> None:
    feed = Feed()

    async def later() -> None:
        await trio.sleep(10)
        await feed.put(upserts("a"))

    nursery.start_soon(later)
    assert [await anext(feed)] == upserts("a")
    assert trio.current_time() == 10


async def test_drain_takes_all_that_is_there_without_waiting() -> None:
    feed = Feed()
    assert isinstance(feed, Drainable)
    assert feed.drain() == ()
    await feed.put(upserts("a", "b", "c"))
    assert [await anext(feed), *feed.drain()] == upserts("a", "b", "c")
    assert feed.drain() == ()


@pytest.mark.parametrize("way", ["anext", "drain", "close"])
async def test_writer_waits_while_the_reader_is_too_far_behind(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, way: str
) -> None:
    feed = Feed(buffer=2)
    with trio.move_on_after(5) as waiting:
        await feed.put(upserts("a", "b", "c"))
    assert waiting.cancelled_caught
    written = trio.Event()

    async def write() -> None:
        await feed.put(())
        written.set()

    nursery.start_soon(write)
    await trio.testing.wait_all_tasks_blocked()
    assert not written.is_set()
    match way:
        case "anext":
            await anext(feed)
        case "drain":
            feed.drain()
        case "close":
            feed.close()
    await written.wait()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(NAMESPACES),
        st.sampled_from(["list", "put", "remove"]),
        st.sets(st.sampled_from("abcd"), max_size=3),
        st.integers(0, 2),
    ),
    max_size=30,
)


@given(STEPS)
def test_merged_namespaces_are_seen_as_the_sum_of_all_once_each_is_listed(
    steps: list[tuple[str, str, set[str], int]],
) -> None:
    merge = NamespaceMerge(NAMESPACES)
    state: dict[str, dict[str, Resource] | None] = dict.fromkeys(NAMESPACES)
    view: dict[object, Resource] | None = None
    for namespace, action, names, note in steps:
        objects = {name: service(name, namespace, note=note) for name in names}
        known = state[namespace]
        events: list[WatchEvent] = []
        if action == "list" or known is None:
            state[namespace] = objects
            events = [Listed(tuple(objects.values()))]
        elif action == "put":
            known |= objects
            events = [Upserted(each) for each in objects.values()]
        else:
            events = [Deleted(known.pop(name)) for name in names & known.keys()]
        for event in merge.take(namespace, events):
            match event:
                case Listed(listed):
                    assert view is None, "a second list would have to be complete"
                    view = {ref_of(each): each for each in listed}
                case Upserted(resource):
                    assert view is not None
                    view[ref_of(resource)] = resource
                case Deleted(resource):
                    assert view is not None
                    del view[ref_of(resource)]
        if all(known is not None for known in state.values()):
            assert view == {ref_of(each): each for known in state.values() for each in (known or {}).values()}
        else:
            assert view is None
