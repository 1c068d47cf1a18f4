"""Latest values, counted events, and channel ends that close together."""

from functools import partial

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, assert_checkpoints, assert_no_checkpoints, wait_all_tasks_blocked

from haptic_trio.channels import EVENT_BUFFER, AnyChange, Channels, ConfigSeen, EventBuffer, Latest, pass_on
from haptic_trio.messages import DriftSuspected


class EventType(msgspec.Struct, frozen=True):
    number: int


async def collect(cell: Latest[int], into: list[int]) -> None:
    seen = 0
    while True:
        seen, value = await cell.wait_newer(seen)
        into.append(value)


async def test_cell_without_a_value_lets_its_reader_wait_for_the_first(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    cell = Latest[str]()
    assert (cell.value, cell.version) == (None, 0)

    async def put_later() -> None:
        await trio.sleep(5)
        cell.put("a")

    nursery.start_soon(put_later)

    assert await cell.wait_newer(0) == (1, "a")
    assert trio.current_time() == 5


async def test_late_reader_finds_the_present_value_at_once(autojump_clock: MockClock) -> None:
    cell = Latest[str]()
    cell.put("a")
    cell.put("b")

    assert await cell.wait_newer(0) == (2, "b")
    assert await cell.wait_newer(1) == (2, "b")
    assert trio.current_time() == 0


async def test_slow_reader_skips_to_the_newest_value(nursery: trio.Nursery) -> None:
    cell, seen = Latest[int](), list[int]()
    nursery.start_soon(collect, cell, seen)
    await wait_all_tasks_blocked()
    cell.put(0)
    await wait_all_tasks_blocked()

    for number in range(1, 10):
        cell.put(number)
    await wait_all_tasks_blocked()

    assert seen == [0, 9]
    nursery.cancel_scope.cancel()


async def test_every_reader_gets_the_newest_value(nursery: trio.Nursery) -> None:
    cell, first, second = Latest[int](), list[int](), list[int]()
    for into in (first, second):
        nursery.start_soon(collect, cell, into)
    for number in range(3):
        cell.put(number)
        await wait_all_tasks_blocked()

    assert first == second == [0, 1, 2]
    nursery.cancel_scope.cancel()


async def test_value_that_is_put_again_is_news(autojump_clock: MockClock) -> None:
    cell = Latest[None]()
    cell.put(None)
    seen, _value = await cell.wait_newer(0)
    with trio.move_on_after(1) as waiting:
        await cell.wait_newer(seen)
    assert waiting.cancelled_caught

    cell.put(None)

    assert await cell.wait_newer(seen) == (2, None)


async def test_cancelled_reader_loses_nothing(autojump_clock: MockClock) -> None:
    cell = Latest[str]()
    with trio.move_on_after(1):
        await cell.wait_newer(0)

    cell.put("a")

    assert await cell.wait_newer(0) == (1, "a")


async def test_wait_for_a_present_value_is_a_checkpoint_that_may_be_cancelled() -> None:
    cell = Latest[str]()
    any_change = AnyChange((cell,))
    cell.put("a")

    for wait in (partial(cell.wait_newer, 0), any_change.wait):
        with assert_checkpoints(), trio.CancelScope() as waiting:
            waiting.cancel()
            await wait()
        assert waiting.cancelled_caught

    with assert_checkpoints():
        assert await cell.wait_newer(0) == (1, "a")
    with assert_checkpoints():
        assert await any_change.wait() == ["a"]


async def test_loop_over_a_cell_that_is_never_read_completely_lets_its_writer_run(nursery: trio.Nursery) -> None:
    cell, read = Latest[int](), list[int]()
    cell.put(0)

    async def write() -> None:
        for number in range(1, 4):
            cell.put(number)
            await trio.lowlevel.checkpoint()

    nursery.start_soon(write)
    # A loop without a checkpoint never sees the last value; the bound ends such a test.
    for _ in range(100):
        _, value = await cell.wait_newer(0)
        read.append(value)

    assert read == sorted(read)
    assert read[-1] == 3


@given(st.lists(st.integers(min_value=0, max_value=3), min_size=1, max_size=30))
def test_reader_sees_values_in_order_and_ends_with_the_newest(bursts: list[int]) -> None:
    async def main() -> None:
        cell, seen, number = Latest[int](), list[int](), 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(collect, cell, seen)
            for burst in bursts:
                for _ in range(burst):
                    number += 1
                    cell.put(number)
                await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert seen == sorted(set(seen))
        assert (seen[-1] if seen else 0) == number
        assert len(seen) == sum(burst > 0 for burst in bursts)

    trio.run(main)


async def test_events_arrive_in_order() -> None:
    events = EventBuffer()
    for number in range(3):
        events.record(EventType(number))

    assert [events.receiver.receive_nowait() for _ in range(3)] == [EventType(0), EventType(1), EventType(2)]
    assert events.take_lost() == 0


async def test_events_beyond_the_buffer_are_counted_and_the_earlier_ones_kept() -> None:
    events = EventBuffer(size=2)
    for number in range(5):
        events.record(EventType(number))

    assert [events.receiver.receive_nowait() for _ in range(2)] == [EventType(0), EventType(1)]
    assert events.take_lost() == 3
    assert events.take_lost() == 0


async def test_burst_of_events_fits_the_default_buffer() -> None:
    events = EventBuffer()
    for number in range(EVENT_BUFFER):
        events.record(EventType(number))

    assert events.take_lost() == 0


async def test_event_without_a_reader_has_no_effect() -> None:
    events = EventBuffer()
    events.receiver.close()

    events.record(EventType(1))

    assert events.take_lost() == 0


async def test_leaving_the_block_closes_every_end() -> None:
    with Channels() as channels:
        receivers = [end for end in vars(channels).values() if isinstance(end, trio.MemoryReceiveChannel)]
        senders = [end for end in vars(channels).values() if isinstance(end, trio.MemorySendChannel)]

    assert len(receivers) == len(senders) > 0
    for receiver in receivers:
        with pytest.raises(trio.ClosedResourceError):
            receiver.receive_nowait()
    for sender in senders:
        with pytest.raises(trio.ClosedResourceError):
            sender.send_nowait(None)


async def test_reader_of_a_clone_ends_when_the_originals_and_the_writers_clone_are_closed(
    nursery: trio.Nursery,
) -> None:
    received: list[object] = []

    async def read(changes: trio.MemoryReceiveChannel[object]) -> None:
        with changes:
            received.extend([change async for change in changes])
        nursery.cancel_scope.cancel()

    with Channels() as channels:
        nursery.start_soon(partial(read, channels.changes_out.clone()))
        writer = channels.changes_in.clone()
    with writer:
        await writer.send(DriftSuspected(idle=1))

    with trio.fail_after(1):
        await wait_all_tasks_blocked()
    assert received == [DriftSuspected(idle=1)]


def test_version_of_what_was_seen_depends_on_both_objects() -> None:
    def with_version(version: str) -> dict[str, object]:
        return {"metadata": {"resourceVersion": version}}

    versions = {
        ConfigSeen(config_map, secret).version
        for config_map in (None, with_version("1"), with_version("2"))
        for secret in (None, with_version("1"), with_version("2"))
    }

    assert len(versions) == 9


async def test_a_message_is_passed_on_at_once_while_there_is_room(nursery: trio.Nursery) -> None:
    sender, receiver = trio.open_memory_channel[int](1)

    with assert_no_checkpoints():
        await pass_on(sender, 1)
    nursery.start_soon(pass_on, sender, 2)
    await wait_all_tasks_blocked()

    assert [await receiver.receive(), await receiver.receive()] == [1, 2]
