"""From a source's events to keys: boundaries of listings, missed deletes, and resuming."""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from haptic_trio.workqueue.extras.subscription import (
    SNAPSHOT_PRIORITY,
    Event,
    EventKind,
    EventMapper,
    Source,
    Subscription,
)

START, END = EventKind.SNAPSHOT_START, EventKind.SNAPSHOT_END
UPSERT, DELETE = EventKind.UPSERT, EventKind.DELETE


def make_mapper() -> EventMapper[str]:
    return EventMapper(lambda obj: (obj,), one_to_one=True)


def apply_all(mapper: EventMapper[str], *events: Event[str]) -> list[str]:
    return [key for event in events for key, _ in mapper.apply(event)]


def listing(index: int, *keys: str) -> list[Event[str]]:
    return [Event(index, START), *(Event(0, UPSERT, key) for key in keys), Event(index, END)]


def test_upserts_and_deletes_alike_give_their_key() -> None:
    assert apply_all(make_mapper(), Event(1, UPSERT, "a"), Event(2, DELETE, "a")) == ["a", "a"]


def test_keys_of_a_listing_stand_behind_those_of_changes() -> None:
    mapper = make_mapper()
    priorities = [
        priority for event in [*listing(5, "a"), Event(6, UPSERT, "b")] for _, priority in mapper.apply(event)
    ]
    assert priorities == [SNAPSHOT_PRIORITY, 0]


def test_events_up_to_the_resumed_index_are_skipped_but_not_those_of_the_same_transaction() -> None:
    mapper = make_mapper()
    apply_all(mapper, *listing(5, "a"))
    mapper.begin_stream()
    events = (Event(4, UPSERT, "old"), Event(5, UPSERT, "old"), Event(6, UPSERT, "b"), Event(6, UPSERT, "c"))
    assert apply_all(mapper, *events, Event(5, UPSERT, "older")) == ["b", "c"]
    assert mapper.index == 6


def test_a_new_listing_resets_the_index_so_that_older_entries_count_again() -> None:
    mapper = make_mapper()
    apply_all(mapper, Event(100, UPSERT, "a"))
    mapper.begin_stream()
    assert apply_all(mapper, *listing(7, "a", "b"), Event(8, UPSERT, "c")) == ["a", "b", "c"]
    assert mapper.index == 8


def test_deletes_missed_between_two_listings_are_found() -> None:
    mapper = make_mapper()
    apply_all(mapper, *listing(5, "a", "b"), Event(6, UPSERT, "c"), Event(7, DELETE, "b"))
    assert sorted(apply_all(mapper, *listing(9, "c"))) == ["a", "c"]
    assert apply_all(mapper, *listing(10, "c")) == ["c"]


def test_a_listing_that_breaks_off_loses_neither_keys_nor_missed_deletes() -> None:
    mapper = make_mapper()
    apply_all(mapper, *listing(5, "a", "b"))
    apply_all(mapper, Event(9, START), Event(0, UPSERT, "c"))
    mapper.begin_stream()
    assert mapper.index is None
    assert sorted(apply_all(mapper, *listing(9, "b"))) == ["a", "b", "c"]


def test_a_listing_that_broke_off_does_not_swallow_the_changes_of_a_source_that_sends_none() -> None:
    mapper = make_mapper()
    mapper.apply(Event(9, START))
    mapper.begin_stream()
    assert mapper.apply(Event(3, UPSERT, "a")) == [("a", 0)]
    assert mapper.index == 3


def test_with_transformers_a_delete_does_not_forget_a_key_that_another_object_may_share() -> None:
    mapper = EventMapper[str](lambda obj: (obj[0],), one_to_one=False)
    apply_all(mapper, *listing(5, "shared-1", "shared-2"), Event(6, DELETE, "shared-1"))
    assert apply_all(mapper, *listing(9)) == ["s"]


@settings(max_examples=500)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans(), st.booleans())), st.integers(0, 30))
def test_a_resumed_stream_reports_every_changed_key(changes: list[tuple[str, bool, bool]], split: int) -> None:
    """Follow a store, miss some of its changes, relist: keys reported ⊇ keys whose existence changed unseen."""
    mapper = make_mapper()
    store: dict[str, int] = {}
    seen_state: dict[str, bool] = {}
    index = 0

    def report(events: Iterable[Event[str]]) -> None:
        for event in events:
            for key, _ in mapper.apply(event):
                seen_state[key] = key in store

    report(listing(0))
    for key, is_upsert, is_missed in changes:
        index += 1
        if is_upsert:
            store[key] = index
        else:
            store.pop(key, None)
        if not is_missed:
            report([Event(index, UPSERT if is_upsert else DELETE, key)])
        if index == split:
            mapper.begin_stream()
            report(listing(index, *store))
    report(listing(index, *store))
    assert {key for key, exists in seen_state.items() if exists} == set(store)


@dataclass
class ScriptedSource:
    """Plays one stream after another; an exception in it is raised, its end blocks if it is the last."""

    streams: list[list[Event[str] | Exception]]
    asked: list[tuple[float, int | None]] = field(default_factory=list)
    closed: int = 0

    async def events(self, from_index: int | None) -> AsyncIterator[Event[str]]:
        self.asked.append((trio.current_time(), from_index))
        try:
            for item in self.streams.pop(0) if self.streams else []:
                if isinstance(item, Exception):
                    raise item
                yield item
            if not self.streams:
                await trio.sleep_forever()
        finally:
            self.closed += 1


class Recorder:
    """Runs a subscription and keeps what it says."""

    def __init__(self, source: Source[str], mapper: EventMapper[str] | None = None) -> None:
        self.subscription = Subscription(source, mapper or make_mapper())
        self.keys: list[str] = []
        self.source_errors: list[Exception] = []
        self.event_errors: list[Exception] = []

    async def run(self) -> None:
        await self.subscription.run(
            lambda key, _priority: self.keys.append(key),
            on_source_error=self.source_errors.append,
            on_event_error=self.event_errors.append,
        )


async def test_after_an_error_the_stream_is_opened_again_where_it_left_off(autojump_clock: MockClock) -> None:
    source = ScriptedSource([[Event(1, UPSERT, "a"), OSError("gone")], [Event(2, UPSERT, "b")]])
    recorder = Recorder(source)
    with trio.move_on_after(10):
        await recorder.run()
    assert recorder.keys == ["a", "b"]
    assert source.asked == [(0.0, None), (0.5, 1)]
    assert [str(error) for error in recorder.source_errors] == ["gone"]
    assert source.closed == 2


async def test_streams_that_only_end_or_fail_are_opened_ever_more_slowly_until_one_gives_an_event(
    autojump_clock: MockClock,
) -> None:
    failing: list[list[Event[str] | Exception]] = [[OSError("down")] for _ in range(8)]
    source = ScriptedSource([*failing, [Event(1, UPSERT, "a")], [], []])
    recorder = Recorder(source)
    with trio.move_on_after(1000):
        await recorder.run()
    times = [time for time, _ in source.asked]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 0.5, 1.0]


async def test_an_event_that_cannot_be_mapped_is_skipped(autojump_clock: MockClock) -> None:
    def map_object(obj: str) -> list[str]:
        if obj == "bad":
            raise KeyError(obj)
        return [obj]

    events: list[Event[str] | Exception] = [Event(1, UPSERT, "a"), Event(2, UPSERT, "bad"), Event(3, UPSERT, "b")]
    recorder = Recorder(ScriptedSource([events]), EventMapper(map_object, one_to_one=True))
    with trio.move_on_after(10):
        await recorder.run()
    assert recorder.keys == ["a", "b"]
    assert [type(error) for error in recorder.event_errors] == [KeyError]


async def test_a_source_may_be_a_plain_iterator(autojump_clock: MockClock) -> None:
    class Endless:
        def __init__(self) -> None:
            self.index = 0

        def __aiter__(self) -> "Endless":
            return self

        async def __anext__(self) -> Event[str]:
            await trio.sleep(1)
            self.index += 1
            return Event(self.index, UPSERT, f"key-{self.index}")

    class PlainSource:
        def events(self, from_index: int | None) -> AsyncIterator[Event[str]]:
            return Endless()

    recorder = Recorder(PlainSource())
    with trio.move_on_after(2.5):
        await recorder.run()
    assert recorder.keys == ["key-1", "key-2"]


@pytest.mark.parametrize("kind", [START, END])
def test_boundaries_alone_give_no_keys(kind: EventKind) -> None:
    assert make_mapper().apply(Event(3, kind)) == []
