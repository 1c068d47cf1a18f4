from functools import partial
from itertools import pairwise

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from haptic_trio.channels import Change, EventBuffer
from haptic_trio.heartbeat import Heartbeat
from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.messages import (
    DriftSuspected,
    IndexSynchronized,
    Reason,
    ReconcileTriggered,
    ResourceChanged,
)
from haptic_trio.pipeline.debounce import Debounce, run_debouncer

CHANGE = ResourceChanged(stores=("ingresses",), refs=(ResourceRef("Ingress", "default", "web"),))
INITIAL = ResourceChanged(stores=("ingresses",), refs=(), initial=True)
SYNCHRONIZED = IndexSynchronized(counts={})
DRIFT = DriftSuspected(idle=60)

Ends = tuple[trio.MemorySendChannel[Change], trio.MemoryReceiveChannel[ReconcileTriggered]]


async def start_debouncer(nursery: trio.Nursery, interval: float = 5) -> Ends:
    changes_in, changes_out = trio.open_memory_channel[Change](100)
    triggers_in, triggers_out = trio.open_memory_channel[ReconcileTriggered](50)
    names = iter(f"c{number}" for number in range(1000))
    await nursery.start(
        partial(
            run_debouncer,
            changes_out,
            triggers_in,
            interval=interval,
            next_correlation=names.__next__,
            events=EventBuffer(),
            heartbeat=Heartbeat("debouncer", 30),
        )
    )
    return changes_in, triggers_out


async def test_first_change_triggers_at_once(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    changes, triggers = await start_debouncer(nursery)

    await changes.send(CHANGE)
    trigger = await triggers.receive()

    assert (trigger.reason, trigger.changes) == (Reason.CHANGED, 1)
    assert trigger.objects == CHANGE.refs
    assert trio.current_time() == 0


async def test_changes_that_arrive_together_are_one_trigger(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    changes, triggers = await start_debouncer(nursery)

    for _ in range(3):
        changes.send_nowait(CHANGE)
    trigger = await triggers.receive()
    with trio.move_on_after(60) as quiet:
        await triggers.receive()

    assert trigger.changes == 3
    assert quiet.cancelled_caught


async def test_changes_in_the_refractory_period_become_one_trigger_at_its_end(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    changes, triggers = await start_debouncer(nursery)

    await changes.send(CHANGE)
    await triggers.receive()
    for _ in range(4):
        await trio.sleep(1)
        await changes.send(CHANGE)
    trigger = await triggers.receive()

    assert trigger.changes == 4
    # The timer was not moved by the later changes.
    assert trio.current_time() == 5


async def test_index_synchronisation_triggers_at_once_and_drops_what_waits(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    changes, triggers = await start_debouncer(nursery)

    await changes.send(CHANGE)
    await triggers.receive()
    await changes.send(CHANGE)
    await changes.send(SYNCHRONIZED)
    trigger = await triggers.receive()

    assert (trigger.reason, trigger.changes, trio.current_time()) == (Reason.SYNCHRONIZED, 0, 0)
    with trio.move_on_after(100):
        await triggers.receive()
    assert trio.current_time() == 100


async def test_drift_triggers_at_once_and_takes_waiting_changes_along(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    changes, triggers = await start_debouncer(nursery)

    await changes.send(CHANGE)
    await triggers.receive()
    await trio.sleep(1)
    await changes.send(CHANGE)
    await changes.send(DRIFT)
    trigger = await triggers.receive()

    assert (trigger.reason, trigger.changes, trio.current_time()) == (Reason.DRIFT, 1, 1)
    await changes.send(CHANGE)
    await triggers.receive()
    # The drift trigger opened a refractory period of its own.
    assert trio.current_time() == 6


async def test_first_list_changes_do_not_trigger(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    changes, triggers = await start_debouncer(nursery)

    await changes.send(INITIAL)
    with trio.move_on_after(60) as quiet:
        await triggers.receive()

    assert quiet.cancelled_caught


async def test_debouncer_ends_with_its_input_and_loses_nothing(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    changes, triggers = await start_debouncer(nursery)

    await changes.send(CHANGE)
    await changes.send(CHANGE)
    changes.close()
    counts = [trigger.changes async for trigger in triggers]

    assert sum(counts) == 2
    assert trio.current_time() == 0


async def test_debouncer_closes_its_ends_when_cancelled(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        changes, triggers = await start_debouncer(nursery)
        nursery.cancel_scope.cancel()

    with pytest.raises(trio.BrokenResourceError):
        changes.send_nowait(CHANGE)
    with pytest.raises(trio.EndOfChannel):
        triggers.receive_nowait()


@given(
    st.lists(st.floats(0, 10, allow_nan=False), max_size=60),
    st.floats(0.01, 8, allow_nan=False),
)
def test_every_change_is_taken_within_one_interval_and_triggers_keep_their_distance(
    gaps: list[float], interval: float
) -> None:
    debounce = Debounce(interval)
    now, waiting, triggers = 0.0, list[float](), list[float]()

    def fire_until(limit: float) -> None:
        while (due := debounce.due()) is not None and due <= limit:
            at = max(due, waiting[0])
            first = debounce.first
            taken = debounce.trigger(at)
            assert taken == len(waiting)
            assert first == waiting[0]
            assert all(at - since <= interval + 1e-9 for since in waiting)
            triggers.append(at)
            waiting.clear()
            assert not debounce.pending

    for gap in gaps:
        fire_until(now + gap)
        now += gap
        waiting.append(now)
        debounce.add_change(now)
        fire_until(now)
    fire_until(now + interval)

    assert not waiting
    assert all(later - earlier >= interval - 1e-9 for earlier, later in pairwise(triggers))
